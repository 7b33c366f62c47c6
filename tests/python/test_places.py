"""Index lists against DTensor's own full tensor, for every kind of placement, and the cuts for frameworks without DTensor."""
import math
import unittest
import warnings

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import worlds
from shardfuzz.errors import ShardfuzzError
from shardfuzz.parameters import indices_of
from shardfuzz.places import cut, place_from_user, place_of_dtensor, summed, zigzag

SHAPES = [(8, 6), (7, 5), (3, 1), (1,), (5, 9, 3), (2,)]


def held(full, place):
    """What the place says the rank holds."""
    return full.reshape(-1)[torch.from_numpy(indices_of(place).astype("int64"))]


def differs(tensor, full, label):
    """label where place and local tensor do not match, else nothing."""
    place = place_of_dtensor(tensor, str(label))
    return [] if place.shape == tuple(full.shape) and torch.equal(held(full, place), tensor._local_tensor) else [label]


def cuts_on(rank, sizes):
    """Every pair of Shard and Replicate on every shape, even and not: (number tried, what differs)."""
    mesh, tried, wrong = init_device_mesh("cpu", sizes), 0, []
    for shape in SHAPES:
        full = torch.arange(math.prod(shape)).reshape(shape).float()
        choices = [Replicate()] + [Shard(dim) for dim in range(len(shape))]
        for placements in ([[one, other] for one in choices for other in choices] if len(sizes) == 2 else [[one] for one in choices]):
            wrong += differs(distribute_tensor(full, mesh, placements), full, (shape, placements))
            tried += 1
    return tried, wrong


def strided_cuts(rank):
    """Parameters of FSDP2 over tensor parallelism: strided shards where both cut one dimension."""
    warnings.simplefilter("ignore")
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    strided, wrong = 0, []
    for sizes in [(8, 8), (8, 12), (8, 10), (8, 6), (6, 20), (8, 2), (8, 18)]:
        for style in (ColwiseParallel(), RowwiseParallel()):
            linear = nn.Linear(*sizes)
            parallelize_module(linear, mesh["tp"], style)
            fully_shard(linear, mesh=mesh["dp"])
            for name, parameter in linear.named_parameters():
                strided += "_StridedShard" in repr(type(parameter.placements[0]))
                wrong += differs(parameter.detach(), parameter.full_tensor().detach(), (name, sizes, type(style).__name__))
    return strided, wrong


def partial_sums(rank):
    """[(what the placement says, sum named, scale)] of partial tensors on a 2 x 2 mesh."""
    mesh = init_device_mesh("cpu", (2, 2))
    local, found = torch.ones(4, 2), []
    for placements in ([Partial(), Replicate()], [Replicate(), Partial()], [Partial(), Partial()], [Partial("avg"), Shard(0)]):
        place = place_of_dtensor(DTensor.from_local(local, mesh, placements), "x")
        found.append((place.index[0][0][2], place.scale))
    try:
        place_of_dtensor(DTensor.from_local(local, mesh, [Partial("max"), Replicate()]), "x")
    except ShardfuzzError as error:
        found.append(str(error))
    return found


def user_cuts(rank):
    """Indices by the helpers, of 4 ranks in groups (0, 1), (2, 3) and (0, 2), (1, 3)."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))
    local = torch.zeros(2, 4)
    rows_and_columns = cut(cut(local, 0, mesh["a"]), -1, mesh["b"].get_group())
    return [rows_and_columns, zigzag(local, 1, mesh["b"]), summed(local, [0, 1, 2, 3]), cut(summed(local, mesh["b"]), 0, mesh["a"])]


class Places(unittest.TestCase):
    def test_place_of_dtensor_on_one_mesh_dimension_is_what_the_rank_holds(self):
        for tried, wrong in worlds.run(2, cuts_on, (2,)):
            self.assertEqual((tried, wrong), (sum(1 + len(shape) for shape in SHAPES), []))

    def test_place_of_dtensor_on_two_mesh_dimensions_is_what_the_rank_holds(self):
        for tried, wrong in worlds.run(4, cuts_on, (2, 2)):
            self.assertEqual((tried, wrong), (sum((1 + len(shape)) ** 2 for shape in SHAPES), []))

    def test_place_of_dtensor_of_fsdp_over_tensor_parallel_is_what_the_rank_holds(self):
        for strided, wrong in worlds.run(4, strided_cuts):
            self.assertEqual((strided > 7, wrong), (True, []))

    def test_place_of_partial_dtensor_names_the_ranks_that_are_summed(self):
        found = worlds.run(4, partial_sums)
        self.assertEqual([one[0] for one in found], [(1, 1.0), (2, 1.0), (1, 1.0), (2, 1.0)])
        self.assertEqual([one[1] for one in found], [(1, 1.0), (1, 1.0), (3, 1.0), (3, 1.0)])
        self.assertEqual([one[2] for one in found], [(1, 1.0)] * 4)
        self.assertEqual([one[3] for one in found], [(1, 0.5), (2, 0.5), (1, 0.5), (2, 0.5)])
        self.assertIn("is no sum", found[0][4])

    def test_user_cuts_on_two_groups_compose(self):
        found = worlds.run(4, user_cuts)
        self.assertEqual([one[0] for one in found], [{"shape": [4, 8], "index": [[[2 * a, 2]], [[4 * b, 4]]]} for a in (0, 1) for b in (0, 1)])
        self.assertEqual([one[1]["index"][1] for one in found], [[[0, 2], [6, 2]], [[2, 4]]] * 2)
        self.assertEqual([one[2]["index"] for one in found], [[[[0, 2, 1]], [[0, 4]]]] * 4)
        self.assertEqual([one[3]["index"][0] for one in found], [[[0, 2, 1]], [[0, 2, 1]], [[2, 2, 3]], [[2, 2, 3]]])

    def test_place_from_user_with_bad_keys_says_which(self):
        with self.assertRaisesRegex(ShardfuzzError, "x: places gave unknown keys .'indices'."):
            place_from_user({"indices": []}, (2,), "x")
        with self.assertRaisesRegex(ShardfuzzError, "x: places gave 1 dimensions of index for a tensor of 2"):
            place_from_user({"index": [[[0, 2]]]}, (2, 2), "x")


if __name__ == "__main__":
    unittest.main()
