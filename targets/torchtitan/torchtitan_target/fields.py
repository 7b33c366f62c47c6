"""What a case has: paths and what a field may be, the plainest first (targets/worker.md). Paths are torchtitan's words where it has any."""
import itertools

from shardfuzz.fields import beyond, choices, refusal

AXES = ("pp", "replicate", "shard", "tp")   # pipeline_parallel_degree and so on: torchtitan's order of ranks
YES = [False, True]
SEVERAL = {"layout.pp": [2, 4]}
MOE = {"model.experts": [4, 8]}
GROUPED = {"model.kind": ["qwen3", "llama3"]}   # attention in which several queries share a key
V_SHAPED = ["ZBVZeroBubble", "DualPipeV"]
LOOPED = ["Interleaved1F1B", "LoopedBFS", "InterleavedZeroBubble", *V_SHAPED]   # two stages a rank


FIELDS = {
    "model.kind": choices("qwen3", "llama3", "deepseek_v3", one_in=2),
    "model.layers": choices(1, 2, 3, 4, one_in=4),
    "model.heads": choices(4, 8),
    "model.queries_per_key": choices(1, 2, one_in=2, needs=GROUPED),
    "model.vocabulary": choices(32, 48, 40),
    "model.fused_qkv": choices(True, False, one_in=3, needs=GROUPED),
    "model.query_rank": choices(0, 16, one_in=2, needs={"model.kind": ["deepseek_v3"]}),
    "model.tied": choices(*YES, one_in=4),
    "model.further_tokens": choices(0, 1, 2, one_in=4, needs={"model.kind": ["deepseek_v3"]}),   # that are predicted besides the next one
    "model.experts": choices(0, 4, 8, one_in=2, needs={"model.kind": ["qwen3", "deepseek_v3"]}),
    "model.active": choices(2, 1, 3, needs=MOE),
    "model.dense_layers": choices(0, 1, needs=MOE),
    "model.shared_expert": choices(*YES, one_in=3, needs=MOE),
    "model.score": choices("softmax", "sigmoid", needs=MOE),
    "model.route_norm": choices(True, False, needs=MOE),
    "model.grouped": choices(*YES, one_in=4, needs=MOE),   # experts in two groups, of which a token uses one
    "model.balance": choices(0.0, 0.01, one_in=2, needs=MOE),
    "data.rows": choices(2, 1, 4),
    "data.length": choices(8, 12, 16),
    "data.microbatches": choices(1, 2, 3, 4, 8, one_in=2),
    "data.ignored": choices(*YES, one_in=2),
    "train.steps": choices(1, 2, 3, one_in=2),
    "train.chunks": choices(0, 2, 4, one_in=3),
    "train.recompute": choices("none", "full", "selective", one_in=3),
    "train.precision": choices("float32", "bfloat16", one_in=3),
    "train.max_norm": choices(1000.0, 1.0, one_in=2),
    "train.optimizer": choices("AdamW", "Adam"),
    "train.groups": choices(*YES),
    "train.implementation": choices("for-loop", "foreach", "fused", one_in=4),
    "train.warmup": choices(0, 2),
    "layout.pp": choices(1, 2, 4, layout=True, one_in=4),
    "layout.replicate": choices(1, 2, layout=True, one_in=5),
    "layout.shard": choices(1, 2, 4, layout=True, one_in=2),
    "layout.tp": choices(1, 2, 4, layout=True, one_in=3),
    "layout.ep": choices(1, 2, 4, layout=True, one_in=2, needs=MOE),
    "layout.backend": choices("partial_dtensor", "full_dtensor", layout=True, one_in=8),
    "layout.sequence_parallel": choices(True, False, layout=True, one_in=3, needs={"layout.tp": [2, 4]}),
    "layout.reshard": choices("default", "always", "never", layout=True, needs={"layout.shard": [2, 4]}),
    "layout.schedule": choices("1F1B", "GPipe", *LOOPED, layout=True, one_in=2, needs=SEVERAL),
    "layout.passes": choices(1, 2, layout=True, needs={**SEVERAL, "data.microbatches": [2, 4, 8]}),   # of the pipeline, in a step
    "layout.first_less": choices(0, 1, layout=True, needs=SEVERAL),
    "layout.last_less": choices(0, 1, layout=True, needs=SEVERAL),
    "checkpoint.before": choices(0, 1, 2, layout=True, one_in=4, needs={"train.steps": [2, 3]}),   # the step, counted from 0; 0: no checkpoint
    "checkpoint.into": choices("same", "data", "backend", layout=True, one_in=2, needs={"checkpoint.before": [1, 2]}),
    "seed": {"min": 0, "max": 1000000},
}


def short_pipelines():
    """Pipelines with more stages than layers, or with too few microbatches in a pass."""
    for ranks in (2, 4):
        for schedules, stages in ((["1F1B", "GPipe"], ranks), (LOOPED, 2 * ranks)):
            for first, last in itertools.product((0, 1), repeat=2):
                few = [layers for layers in FIELDS["model.layers"]["choices"] if layers + first + last < stages]
                if few:
                    yield refusal("number of stages cannot be greater than effective layers", layout__pp=[ranks], layout__schedule=schedules,
                                  layout__first_less=[first], layout__last_less=[last], model__layers=few)
        for schedule, least in (("1F1B", ranks), ("DualPipeV", 2 * ranks)):
            for passes in (1, 2):
                few = [count for count in FIELDS["data.microbatches"]["choices"] if count % passes == 0 and count // passes < least]
                yield refusal("a pass needs as many microbatches as stages", layout__pp=[ranks], layout__schedule=[schedule], layout__passes=[passes],
                              data__microbatches=few)


REFUSES = [
    *short_pipelines(),
    refusal("weight tying is not supported with pipeline parallelism", model__tied=[True], layout__pp=[2, 4]),
    refusal("MTP does not support pipeline parallelism yet", model__further_tokens=[1, 2], layout__pp=[2, 4]),
    refusal("skip_lm_head is not supported with MTP decoder", model__further_tokens=[1, 2], train__chunks=[2, 4]),
    refusal("torchtitan 0.3.0 fails here: got mixed torch.Tensor and DTensor", model__further_tokens=[1, 2], layout__tp=[2, 4], layout__backend=["partial_dtensor"],
            layout__sequence_parallel=[False]),
    refusal("torchtitan 0.3.0 fails here: got mixed torch.Tensor and DTensor", model__further_tokens=[1, 2], layout__tp=[2, 4], layout__sequence_parallel=[False],
            checkpoint__into=["backend"], checkpoint__before=[1, 2]),
    refusal("a group has fewer experts than a token uses", model__grouped=[True], model__experts=[4], model__active=[3]),
    refusal("tensor_parallel_degree must divide n_kv_heads", layout__tp=[4], model__heads=[4], model__queries_per_key=[2]),
    *beyond(8, {f"layout.{axis}": FIELDS[f"layout.{axis}"]["choices"] for axis in AXES}),
    refusal("a pattern of param_groups must match a parameter of each stage, and a stage may have no norm", train__groups=[True], layout__pp=[2, 4]),
    refusal("selective checkpoints allow one backward pass, and these schedules make two", train__recompute=["selective"], layout__pp=[2, 4],
            layout__schedule=["InterleavedZeroBubble", *V_SHAPED]),
    refusal("the training has no such step", checkpoint__before=[2], train__steps=[2]),
    refusal("ep must divide shard * tp of the layout that loads, too", checkpoint__into=["data"], layout__ep=[2, 4], layout__replicate=[1], checkpoint__before=[1, 2]),
    refusal("ep must divide shard * tp", layout__ep=[2, 4], layout__shard=[1], layout__tp=[1]),
    refusal("ep must divide shard * tp", layout__ep=[4], layout__shard=[2], layout__tp=[1]),
    refusal("ep must divide shard * tp", layout__ep=[4], layout__shard=[1], layout__tp=[2]),
    refusal("without sequence parallelism torchtitan 0.3.0 fails here: Can not redistribute from S(1) to P(sum)", layout__ep=[2, 4], layout__tp=[2, 4],
            layout__sequence_parallel=[False]),
]
DESCRIBE = {"name": "torchtitan", "ranks": [f"layout.{axis}" for axis in AXES], "fields": FIELDS, "refuses": REFUSES}
