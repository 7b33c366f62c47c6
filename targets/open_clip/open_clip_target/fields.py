"""What a case has: paths and what a field may be, the plainest first (targets/worker.md)."""
from shardfuzz.fields import choices, refusal

YES, SEVERAL = [False, True], [2, 3, 4]


def spread(*values, needs=None, **more):
    """A field of the layout that does something on several ranks alone."""
    return choices(*values, layout=True, needs={"layout.dp": SEVERAL, **(needs or {})}, **more)


SOFTMAX = {"loss.name": ["clip", "distill", "coca"]}
FIELDS = {
    "model.width": choices(8, 12, 16),
    "model.blocks": choices(1, 2),
    "model.features": choices(6, 4, 12),
    "model.attention": choices(*YES),
    "model.activation": choices("gelu", "silu", "tanh"),
    "model.normalize": choices(True, False),
    "model.logit_bias": choices(*YES, needs={"loss.name": ["siglip"]}),
    "model.frozen": choices("none", "image", "text", "scale"),
    "loss.name": choices("clip", "siglip", "distill", "coca"),
    "views.count": choices(1, 2, 3),
    "views.pool": choices("mean", "max", "confidence", "weighted", needs={"views.count": [2, 3]}),
    "prompts.levels": choices(0, 1, 2),
    "prompts.classes": choices(3, 2, 5, needs={"prompts.levels": [1, 2]}),
    "prompts.templates": choices(1, 2, 3, needs={"prompts.levels": [1, 2]}),
    "data.rows": choices(12, 24, 36),               # of a microbatch, on all ranks together
    "data.length": choices(4, 6),
    "data.padding": choices(*YES),
    "data.microbatches": choices(1, 2),
    "optimizer.name": choices("sgd", "momentum", "adam", "adamw"),
    "optimizer.clip": choices(0.0, 0.5),
    "steps": choices(1, 2),
    "layout.dp": choices(1, 2, 3, 4, layout=True, one_in=1),
    "loss.local_loss": spread(*YES, needs=SOFTMAX, one_in=2),
    "loss.gather_with_grad": spread(True, False, needs=SOFTMAX, one_in=12),
    "loss.cache_labels": spread(*YES, needs=SOFTMAX),
    "loss.dist_impl": spread("bidir", "shift", "reduce", "gather", needs={"loss.name": ["siglip"]}, one_in=2),
    "parallel.lazy_sync": spread(*YES, needs={"data.microbatches": [2]}),    # gradients are reduced in a step's last microbatch alone
    "parallel.static_graph": spread(*YES),
    "parallel.bucket_mb": spread(25, 0.0001, 0.001),
    "seed": {"min": 0, "max": 1000000},
}


REFUSES = [
    refusal("views are selected by their confidence in a class, so prompts must name classes",
            views__pool=["confidence", "weighted"], views__count=[2, 3], prompts__levels=[0]),
    refusal("a static graph and no_sync fail in an assertion of the reducer (pytorch/pytorch#187732)",
            parallel__static_graph=[True], parallel__lazy_sync=[True], data__microbatches=[2], layout__dp=SEVERAL),
]
DESCRIBE = {"name": "open-clip", "ranks": ["layout.dp"], "fields": FIELDS, "refuses": REFUSES}
