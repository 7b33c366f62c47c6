"""What a case has: paths and what a field may be, the plainest first (targets/worker.md)."""
from shardfuzz.fields import refusal

AXES = ("pp", "dp", "fsdp", "cp", "tp")
MORE = {"layout.dp": [2, 3, 4], "layout.fsdp": [2, 3, 4], "layout.pp": [2, 3, 4], "layout.cp": [2, 4], "layout.tp": [2, 4]}


def on(axis, **more):
    """A field that does something on several ranks along an axis alone."""
    return {"layout": True, "needs": {axis: MORE[axis], **more}}


YES, PIPES = [False, True], ["1f1b", "gpipe", "interleaved", "looped-bfs", "interleaved-zb", "zbv", "dualpipev"]
FIELDS = {
    "model.layers": {"choices": [2, 1, 3, 4, 6]},
    "model.hidden": {"choices": [8, 12, 16, 24]},
    "model.heads": {"choices": [2, 4, 1]},
    "model.vocabulary": {"choices": [16, 12, 20, 32, 13]},
    "model.activation": {"choices": ["gelu", "silu", "tanh"]},
    "model.norm": {"choices": ["layer", "rms"]},
    "model.bias": {"choices": [True, False]},
    "model.tied": {"choices": YES},
    "model.skip": {"choices": YES},
    "model.twice": {"choices": ["nothing", "mlp", "linear"]},   # what a block uses twice
    "model.unused": {"choices": YES},
    "model.frozen": {"choices": ["none", "embedding", "norms", "block"]},
    "data.microbatches": {"choices": [1, 2, 3, 4, 8]},
    "data.rows": {"choices": [2, 1, 3]},
    "data.length": {"choices": [4, 8, 6, 12]},
    "data.ignored": {"choices": YES},
    "steps": {"choices": [1, 2, 3]},
    "dtype": {"choices": ["float32", "bfloat16"]},
    "recompute": {"choices": ["none", "block", "block-without-rng"]},
    "optimizer.name": {"choices": ["sgd", "momentum", "adam", "adamw"]},
    "optimizer.foreach": {"choices": YES},
    "optimizer.clip": {"choices": [0.0, 0.5]},
    "layout.pp": {"choices": [1, 2, 3, 4], "layout": True},
    "layout.dp": {"choices": [1, 2, 3, 4], "layout": True},
    "layout.fsdp": {"choices": [1, 2, 3, 4], "layout": True},
    "layout.cp": {"choices": [1, 2, 4], "layout": True, "one_in": 4},
    "layout.tp": {"choices": [1, 2, 4], "layout": True},
    "parallel.lazy_sync": {"choices": ["never", "later", "always"], "layout": True},   # gradients are reduced in a step's last microbatch alone; later: not in the first step
    "parallel.static_graph": {"choices": YES, **on("layout.dp")},
    "parallel.bucket_mb": {"choices": [25, 0.0001, 0.001], **on("layout.dp")},
    "parallel.bucket_view": {"choices": YES, **on("layout.dp")},
    "parallel.zero1": {"choices": YES, **on("layout.dp")},
    "parallel.zero_view": {"choices": YES, **on("layout.dp", **{"parallel.zero1": [True]})},
    "parallel.reshard": {"choices": [True, False], **on("layout.fsdp")},
    "parallel.fsdp_units": {"choices": ["blocks", "model", "parts"], **on("layout.fsdp")},
    "parallel.fsdp_dim": {"choices": ["first", "last"], **on("layout.fsdp")},
    "parallel.schedule": {"choices": PIPES, **on("layout.pp")},
    "parallel.first_gets": {"choices": [0, 1], **on("layout.pp")},
    "parallel.cp_rotate": {"choices": ["allgather", "alltoall"], **on("layout.cp")},
    "parallel.cp_balance": {"choices": [True, False], **on("layout.cp")},
    "parallel.sequence": {"choices": YES, **on("layout.tp")},
    "checkpoint.before": {"choices": [0, 1, 2], "layout": True},   # a step; 0: no checkpoint
    "checkpoint.into": {"choices": ["same", "dp", "fsdp"], "layout": True, "needs": {"checkpoint.before": [1, 2]}},
    "seed": {"min": 0, "max": 1000000},
}


REFUSES = [
    refusal("a pipeline's first and last stage each have a copy of a tied weight, whose gradients the user must sum", model__tied=[True], layout__pp=MORE["layout.pp"]),
    refusal("parallelize_module cuts the embedding and the head each for itself", model__tied=[True], layout__tp=MORE["layout.tp"]),
    refusal("heads must divide among the ranks", model__heads=[1], layout__tp=MORE["layout.tp"]),
    refusal("heads must divide among the ranks", model__heads=[2], layout__tp=[4]),
    refusal("DistributedDataParallel takes no DTensor", layout__dp=MORE["layout.dp"], layout__fsdp=[1], layout__tp=MORE["layout.tp"]),
    refusal("without FSDP nothing here computes in another type", dtype=["bfloat16"], layout__fsdp=[1]),
    refusal("norms are no DTensors then, and clip_grad_norm_ takes all or none", layout__tp=MORE["layout.tp"], parallel__sequence=[False], optimizer__clip=[0.5]),
    refusal("norms are no DTensors then, and foreach takes all or none", layout__tp=MORE["layout.tp"], parallel__sequence=[False], optimizer__foreach=[True]),
    refusal("a static graph and no_sync fail in an assertion of the reducer", parallel__static_graph=[True], parallel__lazy_sync=["always"], layout__dp=MORE["layout.dp"],
            layout__fsdp=[1], data__microbatches=[2, 3, 4, 8], layout__pp=[1]),
    refusal("stages in DistributedDataParallel fail in an assertion of the reducer in the second step (corpus/regress/torch-train)", layout__pp=MORE["layout.pp"],
            layout__dp=MORE["layout.dp"], layout__fsdp=[1]),
    refusal("ZeroRedundancyOptimizer has no state that torch.distributed.checkpoint saves", checkpoint__before=[1, 2], parallel__zero1=[True], layout__dp=MORE["layout.dp"],
            layout__fsdp=[1]),
    refusal("ZeroRedundancyOptimizer has no state that torch.distributed.checkpoint saves", checkpoint__before=[1, 2], checkpoint__into=["dp"], parallel__zero1=[True]),
    refusal("a parameter without a gradient has no state to load", checkpoint__before=[1, 2], model__unused=[True], optimizer__name=["momentum", "adam", "adamw"]),
    refusal("a stage without parameters has nothing to save", checkpoint__before=[1, 2], model__layers=[1], layout__pp=[3, 4]),
    refusal("a stage without parameters has nothing to save", checkpoint__before=[1, 2], model__layers=[2], layout__pp=[4]),
    refusal("torch's state_dict functions take one model, and there a rank has two stages", checkpoint__before=[1, 2], layout__pp=MORE["layout.pp"],
            parallel__schedule=["interleaved", "looped-bfs", "interleaved-zb", "zbv", "dualpipev"]),
    refusal("DistributedDataParallel has no mixed precision here", checkpoint__before=[1, 2], checkpoint__into=["dp"], dtype=["bfloat16"]),
    refusal("DistributedDataParallel takes no DTensor", checkpoint__before=[1, 2], checkpoint__into=["dp"], layout__tp=MORE["layout.tp"]),
    refusal("stages in DistributedDataParallel fail in an assertion of the reducer", checkpoint__before=[1, 2], checkpoint__into=["dp"], layout__pp=MORE["layout.pp"]),
    refusal("zero-bubble schedules fail on a module that is used twice: the graph is freed (corpus/regress/torch-train)", model__twice=["mlp"], layout__pp=MORE["layout.pp"],
            parallel__schedule=["interleaved-zb", "zbv", "dualpipev"]),
    refusal("a plain weight on a rank's positions has a gradient of these alone", model__twice=["linear"], layout__tp=MORE["layout.tp"], parallel__sequence=[True]),
    refusal("a sequence must divide among the ranks", data__length=[6], layout__tp=[4], parallel__sequence=[True]),
    refusal("a sequence must divide among the ranks", data__length=[6], layout__cp=[4]),
    refusal("balanced, a rank has two equal parts of the sequence", data__length=[6], layout__cp=[2], parallel__cp_balance=[True]),
    refusal("balanced, a rank has two equal parts of the sequence", data__length=[4, 6, 12], layout__cp=[4], parallel__cp_balance=[True]),
    refusal("stages in DistributedDataParallel fail in an assertion of the reducer in the second step (corpus/regress/torch-train)", layout__pp=MORE["layout.pp"],
            layout__cp=MORE["layout.cp"], layout__fsdp=[1]),
    *(refusal("FSDP cannot cut the unused layer's last dimension, and refuses it on the stages alone that have it", model__unused=[True],
              parallel__fsdp_dim=["last"], layout__pp=MORE["layout.pp"], layout__fsdp=[fsdp], layout__cp=cp)
      for fsdp, cp in ((2, [2, 4]), (3, [1, 2, 4]), (4, [1, 2, 4]))),
    refusal("DistributedDataParallel takes no DTensor", layout__cp=MORE["layout.cp"], layout__fsdp=[1], layout__tp=MORE["layout.tp"]),
    refusal("shardfuzz does not try context parallelism with sequence parallel norms", layout__cp=MORE["layout.cp"], layout__tp=MORE["layout.tp"], parallel__sequence=[True]),
]
DESCRIBE = {"name": "torch-train", "devices": ["cpu", "cuda"], "ranks": [f"layout.{axis}" for axis in AXES], "fields": FIELDS, "refuses": REFUSES}
