"""Arrays on a mesh from whole ones, and back to each device's piece with its place: for all devices in one process, and for one of several."""
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from shardfuzz.places import Place

from .fields import AXES, FREE
from .operations import MANUAL

_manual = {name: compile(text, name, "eval") for name, (_, _, text) in MANUAL.items()}


def ordered(count, devices):
    """The numbers of that many devices in the order of the mesh. devices: a choice of layout.devices."""
    order = list(range(count))
    return order[::-1] if devices == "reversed" else order[1::2] + order[::2] if devices == "odd_first" else order


def device_order(case):
    return ordered(case["layout"]["tp"] * case["layout"]["dp"], case["layout"]["devices"])


def spec_of(case, cuts, dims):
    """The PartitionSpec of {axis: a choice of fields.CUTS} for an array with that many dimensions."""
    axes = [[] for _ in range(dims)]
    here = AXES if case["layout"]["dp"] > 1 else AXES[:1]
    for axis in (here if case["layout"]["outer"] == "tp" else here[::-1]):
        cut = cuts.get(axis, "R")
        if cut[0] == "S" and dims:
            axes[int(cut[1]) % dims].append(axis)
    open_ = PartitionSpec.UNCONSTRAINED if cuts.get("rest") == "open" else None
    return PartitionSpec(*(tuple(of) if len(of) > 1 else of[0] if of else open_ for of in axes))


def is_even(case, cuts, shape):
    """Whether the cuts give all devices parts of the same size."""
    sizes = {axis: case["layout"][axis] for axis in AXES}
    return all(size % int(np.prod([sizes[axis] for axis in np.atleast_1d(of)])) == 0 for size, of in zip(shape, spec_of(case, cuts, len(shape))) if of)


class Ranks:
    """The devices of a mesh of tp x dp, the second axis left out where it is 1. devices: a choice of layout.devices."""

    def __init__(self, tp: int, dp: int, devices: str):
        self.sizes = (tp,) if dp == 1 else (tp, dp)
        self.axes, count = AXES[:len(self.sizes)], tp * dp
        self.ranks = np.array(ordered(count, devices)).reshape(self.sizes)
        there = jax.devices()[:count]
        self.number = {device: rank for rank, device in enumerate(there)}
        self.mine = [rank for device, rank in self.number.items() if device.process_index == jax.process_index()]
        self.mesh = Mesh(np.array(there, dtype=object)[self.ranks], self.axes)

    def groups(self, rank):
        """{axis: ranks that differ from this one along it alone}."""
        at = np.argwhere(self.ranks == rank)[0]
        return {axis: self.ranks[tuple(slice(None) if d == dim else c for d, c in enumerate(at))].tolist() for dim, axis in enumerate(self.axes)}

    def put(self, whole, cuts, case):
        """The whole array on the devices, cut where the cut is even: JAX has no other arrays. `constrained` cuts it within the program otherwise."""
        sharding = NamedSharding(self.mesh, spec_of(case, cuts, whole.ndim) if is_even(case, cuts, whole.shape) else PartitionSpec())
        return jax.make_array_from_callback(whole.shape, sharding, lambda index: np.array(whole[index]))

    def constrained(self, x, cuts, case):
        if cuts["tp"] == FREE:
            return x
        return lax.with_sharding_constraint(x, NamedSharding(self.mesh, spec_of(case, cuts, x.ndim)))

    def by_hand(self, step, case, x, given):
        """An operation of MANUAL under jax.shard_map."""
        _, result, _ = MANUAL[step.operation.kind]
        d, dims = step.d, x.ndim

        def local(x):
            names = {"x": x, "d": d, "n": x.shape[d], "ax": "tp", "s": self.sizes[0], "r": lax.axis_index("tp")}
            return eval(_manual[step.operation.kind], {"jax": jax, "jnp": jnp, "lax": lax, "np": np, **names})
        along = PartitionSpec(*("tp" if dim == d else None for dim in range(dims)))
        to = {"=": along, "*": PartitionSpec(), "+": PartitionSpec("tp")}[result]
        axes = {"tp"} if case["shard_map"]["axis_names"] == "tp" else set(self.axes)
        run = jax.shard_map(local, mesh=self.mesh, in_specs=along, out_specs=to, axis_names=axes, check_vma=case["shard_map"]["check_vma"])
        return (run(x),)

    def pieces(self, array):
        """[(rank, NumPy array, Place)] of the devices of this process."""
        found = []
        for shard in array.addressable_shards:
            data = np.array(shard.data)
            index = tuple(((of.start or 0, length, 0),) for of, length in zip(shard.index, data.shape))
            found.append((self.number[shard.device], data.reshape(data.shape or (1,)), Place(array.shape or (1,), index or (((0, 1, 0),),))))
        return found
