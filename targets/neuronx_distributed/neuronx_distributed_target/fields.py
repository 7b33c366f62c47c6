"""What a case has: paths and what a field may be, the plainest first (targets/worker.md)."""
from shardfuzz.fields import beyond, choices, refusal

YES, SEVERAL = [False, True], [2, 4, 8]
AXES = ("pp", "dp", "tp")


def spread(*values, needs=None, **more):
    """A field of the layout that does something on several tensor-parallel ranks alone."""
    return choices(*values, layout=True, needs={"layout.tp": SEVERAL, **(needs or {})}, **more)


MOE, ZERO = {"model.experts": [4]}, {"train.zero": [True]}
FIELDS = {
    "model.width": choices(8, 16, 12),
    "model.layers": choices(1, 2, 4, 3),
    "model.heads": choices(4, 8),
    "model.kv_heads": choices(4, 2, 1, 8),
    "model.head_size": choices(2, 4, 3),
    "model.inner": choices(16, 24, 12),
    "model.vocabulary": choices(16, 24, 32),
    "model.experts": choices(0, 4),
    "model.active": choices(2, 1, needs=MOE),
    "model.router": choices("softmax", "sigmoid", needs=MOE),
    "model.router_tokens": choices("all", "own", layout=True, needs={**MOE, "layout.sequence_parallel": [True]}),
    "model.capacity": choices("none", "all", needs=MOE),          # each expert computes all tokens, or its own, of which none is dropped
    "model.normalized": choices(*YES, needs=MOE),
    "model.norm": choices("root", "layer"),
    "model.bias": choices(*YES),
    "model.attention": choices("separate", "joint", "fused"),     # three layers; GQAQKVColumnParallelLinear with three weights; with one
    "model.gated": choices(True, False),
    "model.embedding": choices("rows", "columns"),                # along what ParallelEmbedding is cut
    "model.padding": choices(-1, 3, 0, one_in=8),                 # a token whose embedding has no gradient
    "model.tied": choices(*YES),                                  # the head has the embedding's weight
    "model.frozen": choices("none", "embed", "attention", "feed", "norm1"),
    "model.gathered": choices(*YES),                              # the head's outputs are gathered, and the loss is torch's
    "loss.smoothing": choices(0.0, 0.1, 0.3, one_in=8),
    "data.rows": choices(4, 8),                                   # of a microbatch, on all ranks together
    "data.length": choices(8, 4, 12),
    "data.microbatches": choices(1, 2, 3),
    "data.ignored": choices(*YES),
    "train.steps": choices(1, 2),
    "train.optimizer": choices("adamw", "sgd"),
    "train.max_norm": choices(0.0, 1.0, 0.1, one_in=3),
    "train.precision": choices("float32", "bfloat16"),
    "train.recompute": choices(*YES),
    "train.zero": choices(*YES),
    "train.wide_gradients": choices(*YES, needs=ZERO),            # accumulated in fp32
    "checkpoint.before": choices(0, 1, layout=True, needs={"train.steps": [2]}, one_in=3),   # the step, counted from 0; 0: no checkpoint
    "layout.dp": choices(1, 2, 4, layout=True),
    "layout.tp": choices(1, 2, 4, 8, layout=True),
    "layout.pp": choices(1, 2, 4, layout=True),
    "layout.ep": choices(1, 2, 4, layout=True, needs={**MOE, "layout.dp": [2, 4]}, one_in=8),
    "layout.virtual": choices(1, 2, layout=True, needs={"layout.pp": [2, 4]}),   # stages of a rank
    "layout.sequence_parallel": spread(*YES, one_in=2),
    "layout.platform": choices("trn1", "trn2", layout=True),      # how the library orders ranks and copies of keys
    "seed": {"min": 0, "max": 1000000},
}
REFUSES = [
    refusal("the library recomputes with reentrant checkpoints, which give no gradient where the input has none; torch warns",
            train__recompute=[True], model__frozen=["embed"]),
    refusal("GQAQKVColumnParallelLinear with one weight fails when it is frozen: matmul() gets a tuple", model__attention=["fused"], model__frozen=["attention"]),
    refusal("heads of keys are heads of queries or fewer", model__heads=[4], model__kv_heads=[8]),
    refusal("GQAQKVColumnParallelLinear fails when it makes its bias: '>' not supported between instances of 'tuple' and 'int'",
            model__bias=[True], model__attention=["joint", "fused"]),
    refusal("only the ZeRO-1 optimizer has master weights for bfloat16", train__precision=["bfloat16"], train__zero=[False]),
    refusal("there are fewer heads of keys than ranks, and only GQAQKVColumnParallelLinear makes copies of them",
            model__attention=["separate"], model__kv_heads=[1], layout__tp=SEVERAL),
    refusal("there are fewer heads of keys than ranks, and only GQAQKVColumnParallelLinear makes copies of them",
            model__attention=["separate"], model__kv_heads=[2], layout__tp=[4, 8]),
    refusal("there are fewer heads of keys than ranks, and only GQAQKVColumnParallelLinear makes copies of them",
            model__attention=["separate"], model__kv_heads=[4], layout__tp=[8]),
    refusal("the library cuts the head along the vocabulary, so a tied embedding cannot be cut along its width", model__tied=[True], model__embedding=["columns"],
            layout__tp=SEVERAL),
    *(refusal("a stage has a layer at least", model__layers=[count for count in (1, 2, 3, 4) if count < pp * virtual], layout__pp=[pp], layout__virtual=[virtual])
      for pp, virtual in ((2, 1), (2, 2), (4, 1))),
    *(refusal("an interleaved schedule wants a multiple of pp as number of microbatches", data__microbatches=counts, layout__pp=[pp], layout__virtual=[2])
      for pp, counts in ((2, [1, 3]), (4, [1, 2, 3]))),
    refusal("with expert parallelism and no capacity the library cuts a dimension of one element: it fails", layout__ep=[2, 4], model__capacity=["none"],
            model__experts=[4]),
    refusal("with expert parallelism version 0.18 sums the experts over all ranks; stages of a pipeline do not join, and the ranks wait for ever", layout__ep=[2, 4],
            layout__pp=[2, 4]),
    refusal("with expert parallelism version 0.18 sums the experts over all ranks, whose parts of a sequence have other shapes: it fails", layout__ep=[2, 4],
            layout__sequence_parallel=[True], layout__tp=SEVERAL),
    refusal("with expert parallelism the library reads gate_up_proj, which only gated experts have: it fails", layout__ep=[2, 4], model__gated=[False],
            model__experts=[4]),
    refusal("without ZeRO-1 only the first data-parallel rank saves its optimizer, and loading looks for a file of each rank of ep: it fails", checkpoint__before=[1],
            layout__ep=[2, 4], train__zero=[False]),
    refusal("the ranks of ep are ranks of dp", layout__ep=[4], layout__dp=[1, 2]),
    refusal("the ranks of ep are ranks of dp", layout__ep=[2], layout__dp=[1]),
    refusal("more layers than shardfuzz tries", layout__pp=[4], layout__virtual=[2]),
    *beyond(8, {"layout.dp": [1, 2, 4], "layout.tp": [1, 2, 4, 8], "layout.pp": [1, 2, 4]}),
]
DESCRIBE = {"name": "neuronx-distributed", "ranks": [f"layout.{axis}" for axis in AXES], "fields": FIELDS, "refuses": REFUSES}
