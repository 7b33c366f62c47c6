"""What a case has: paths and what a field may be, the plainest first (targets/worker.md)."""
from shardfuzz.fields import choices, refusal

YES, SEVERAL = [False, True], [2, 3, 4]


def spread(*values, needs=None, **more):
    """A field of the layout that does something on several ranks alone."""
    return choices(*values, layout=True, needs={"layout.dp": SEVERAL, **(needs or {})}, **more)


FIELDS = {
    "model.agents": choices(2, 3, 4),
    "model.parameters": choices("own", "shared"),
    "model.width": choices(8, 12),
    "model.layers": choices(1, 2),
    "model.activation": choices("tanh", "relu", "gelu"),
    "model.norm": choices(*YES),
    "model.dueling": choices(*YES),
    "loss.function": choices("l2", "smooth_l1", "l1"),
    "loss.double": choices(*YES),
    "loss.gamma": choices(0.9, 0.5),
    "target.update": choices("soft", "hard", "none"),
    "target.tau": choices(0.1, 0.5, needs={"target.update": ["soft"]}),
    "target.interval": choices(1, 2, needs={"target.update": ["hard"]}),
    "reward.radius": choices(1, 0, 2),
    "reward.share": choices(0.5, 1.0),
    "reward.collision": choices(0.0, 0.25),
    "replay.sampler": choices("random", "without-replacement"),
    "replay.capacity": choices(16, 6),              # transitions that each stream keeps
    "replay.batch": choices(2, 1, 3),               # transitions drawn of each stream
    "data.grid": choices(4, 6),
    "data.streams": choices(4, 12),                 # games, on all ranks together
    "data.moves": choices(4, 6),                    # of a game between two steps
    "data.padding": choices(*YES, one_in=8),        # some transitions are marked as padding
    "data.weights": choices(*YES, one_in=8),        # transitions have importance weights
    "data.microbatches": choices(1, 2),
    "optimizer.name": choices("sgd", "momentum", "adam", "adamw"),
    "optimizer.clip": choices(0.0, 0.5),
    "steps": choices(2, 1, 3),
    "layout.dp": choices(1, 2, 3, 4, layout=True, one_in=1),
    "parallel.wrap": spread("learner", "networks"),  # in DistributedDataParallel
    "parallel.lazy_sync": spread(*YES, needs={"data.microbatches": [2]}),    # gradients are reduced in a step's last microbatch alone
    "parallel.static_graph": spread(*YES),
    "parallel.broadcast_buffers": spread(True, False),
    "parallel.bucket_mb": spread(25, 0.0001, 0.001),
    "seed": {"min": 0, "max": 1000000},
}


REFUSES = [
    refusal("double Q-learning needs a target network", loss__double=[True], target__update=["none"]),
    refusal("streams must divide among the ranks", data__streams=[4], layout__dp=[3]),
    refusal("a static graph and no_sync fail in an assertion of the reducer (pytorch/pytorch#187732)",
            parallel__static_graph=[True], parallel__lazy_sync=[True], data__microbatches=[2], layout__dp=SEVERAL),
]
DESCRIBE = {"name": "marl-iql", "ranks": ["layout.dp"], "fields": FIELDS, "refuses": REFUSES}
