"""What a case has: paths and what a field may be, the plainest first (targets/worker.md)."""
from shardfuzz.fields import beyond, refusal

from .types import EXPERTS, TYPES

AXES = ("dp", "tp", "replicas")                           # of the layout: fsdp_size, tp_size, dp_replicate_size
SPREAD = {"layout.dp": [2, 4]}
_EXPERTS = {"model.type": EXPERTS}

FIELDS = {
    "model.type": {"choices": TYPES, "one_in": 1},
    "model.layers": {"choices": [2, 1, 3]},
    "model.heads": {"choices": [4, 8]},
    "model.queries_per_key": {"choices": [1, 2]},
    "model.intermediate": {"choices": [32, 64]},
    "model.vocabulary": {"choices": [64, 96]},
    "model.tied": {"choices": [False, True]},
    "model.bias": {"choices": [False, True]},
    "model.attention": {"choices": ["default", "sdpa", "eager"]},
    "model.experts": {"choices": [4, 8], "needs": _EXPERTS},
    "model.active": {"choices": [2, 1, 3], "needs": _EXPERTS},
    "model.expert_code": {"choices": ["default", "eager", "batched_mm", "grouped_mm"], "needs": _EXPERTS},
    "data.rows": {"choices": [4, 8]},
    "data.tokens": {"choices": [8, 6, 12]},
    "data.mask": {"choices": ["none", "random", "rows"]},
    "train.steps": {"choices": [1, 2]},
    "train.microbatches": {"choices": [1, 2, 3]},
    "train.optimizer": {"choices": ["sgd", "adamw"]},
    "train.clip": {"choices": [0, 0.5]},
    "train.loss": {"choices": ["logits", "labels"]},
    "train.checkpointing": {"choices": [False, True]},
    "layout.tp": {"choices": [1, 2, 4], "layout": True, "one_in": 1},
    "layout.dp": {"choices": [1, 2, 4], "layout": True, "one_in": 3},
    "layout.replicas": {"choices": [1, 2], "layout": True, "one_in": 8, "needs": {"layout.dp": [2]}},
    "layout.ep": {"choices": [1, 2, 4], "layout": True, "one_in": 2, "needs": _EXPERTS},
    "layout.ep_implementation": {"choices": ["auto", "all_to_all", "all_reduce"], "layout": True, "needs": {"layout.ep": [2, 4]}},
    "layout.reduce": {"choices": ["always", "last"], "layout": True, "one_in": 2, "needs": SPREAD},
    "layout.load": {"choices": ["one device", "filled", "same layout", "other layout", "shards"], "layout": True, "one_in": 4},
    "seed": {"min": 0, "max": 1000000},
}


REFUSES = [
    refusal("tp_size must divide the number of key heads", layout__tp=[4], model__heads=[4], model__queries_per_key=[2]),
    *beyond(8, {f"layout.{axis}": FIELDS[f"layout.{axis}"]["choices"] for axis in AXES}),
    refusal("ep_size must divide fsdp_size * tp_size", layout__ep=[2, 4], layout__dp=[1], layout__tp=[1]),
    refusal("ep_size must divide fsdp_size * tp_size", layout__ep=[4], layout__dp=[2], layout__tp=[1]),
    refusal("ep_size must divide fsdp_size * tp_size", layout__ep=[4], layout__dp=[1], layout__tp=[2]),
    refusal("ep_size must be a multiple of tp_size", layout__ep=[2], layout__tp=[4]),
    refusal("all_reduce needs ep_size == tp_size", layout__ep_implementation=["all_reduce"], layout__ep=[2], layout__tp=[1, 4]),
    refusal("all_reduce needs ep_size == tp_size", layout__ep_implementation=["all_reduce"], layout__ep=[4], layout__tp=[1, 2]),
]
DESCRIBE = {"name": "transformers", "ranks": [f"layout.{axis}" for axis in AXES], "fields": FIELDS, "refuses": REFUSES}
