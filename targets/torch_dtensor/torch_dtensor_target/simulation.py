"""Keeps the simulation of ranks out of what every rank works out alike."""
import functools

from torch.distributed.tensor._decompositions import DecompShardingStrategy

from . import shapes


@functools.cache
def install():
    """For this process. DTensor follows placements through an operation's decomposition on tensors of global shapes, and disables
    LocalTensorMode for it. Here the mode is also taken off the stack, where it would still look at each operation."""
    search = DecompShardingStrategy.propagate_strategy

    @functools.wraps(search)
    def propagate_strategy(self, op_schema):
        with shapes.unsimulated():
            return search(self, op_schema)
    DecompShardingStrategy.propagate_strategy = propagate_strategy
    shapes.keep()
