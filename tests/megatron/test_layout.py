"""Index lists of the Megatron adapter: on every layout the ranks' pieces of a dimension are the whole, each element as often as it has replicas."""
import collections
import itertools
import types
import unittest

from shardfuzz.megatron import layout as cuts
from megatron_core_target.fields import defaults
from shardfuzz.megatron.names import Names, parameter_place

LAYOUT = defaults()["layout"]
SIZES = [dict(LAYOUT, tp=tp, cp=cp, dp=dp, pp=pp, etp=tp, sp=tp > 1 and sp)
         for tp, cp, dp, pp, sp in itertools.product((1, 2, 4), (1, 2), (1, 2), (1, 2), (False, True))]
CONFIG = types.SimpleNamespace(gated_linear_unit=True, linear_key_head_dim=4, linear_num_key_heads=4, linear_value_head_dim=8,
                               linear_num_value_heads=4)


def elements(runs):
    return [start + i for start, length in runs for i in range(length)]


def held(fields, of):
    """How often each element is held: of(layout) gives a rank's runs."""
    ranks = fields["tp"] * fields["cp"] * fields["dp"] * fields["pp"]
    return collections.Counter(index for rank in range(ranks) for index in elements(of(cuts.layout_of(fields, rank)))), ranks


class LayoutTest(unittest.TestCase):
    def test_sequence_every_layout_held_once_per_replica(self):
        for fields in SIZES:
            parts = fields["cp"] * (fields["tp"] if fields["sp"] else 1)
            count, ranks = held(fields, lambda layout: cuts.sequence(16, layout, layout.sp))
            self.assertEqual(count, {index: ranks // parts for index in range(16)}, fields)

    def test_zig_zag_two_ranks_holds_mirrored_chunks(self):
        pieces = [cuts.zig_zag(8, cuts.layout_of(dict(LAYOUT, cp=2), rank)) for rank in (0, 1)]
        self.assertEqual(pieces, [[[0, 2], [6, 2]], [[2, 4]]])

    def test_sequence_under_cp_and_sp_cuts_the_zig_zag_piece(self):
        fields = dict(LAYOUT, cp=2, tp=2, sp=True)
        pieces = [cuts.sequence(16, cuts.layout_of(fields, rank), True) for rank in range(4)]
        self.assertEqual(pieces, [[[0, 4]], [[12, 4]], [[4, 4]], [[8, 4]]])

    def test_layout_expert_axes_lie_inside_of_the_dense_ones(self):
        fields = dict(LAYOUT, tp=2, dp=2, ep=2, etp=1)
        at = [cuts.layout_of(fields, rank).at for rank in range(4)]
        self.assertEqual([(a["tp"], a["dp"], a["ep"], a["edp"]) for a in at], [(0, 0, 0, 0), (1, 0, 1, 0), (0, 1, 0, 1), (1, 1, 1, 1)])

    def test_summand_ranks_of_one_sum_differ_on_its_axes_only(self):
        fields = dict(LAYOUT, tp=2, cp=2, dp=2)
        groups = collections.defaultdict(list)
        for rank in range(8):
            layout = cuts.layout_of(fields, rank)
            groups[layout.summand("cp")].append((layout.at["tp"], layout.at["dp"], layout.at["cp"]))
        self.assertEqual(len(groups), 4)
        for members in groups.values():
            self.assertEqual(len({member[:2] for member in members}), 1)
            self.assertEqual(sorted(member[2] for member in members), [0, 1])

    def test_parameter_place_every_cut_held_once_over_tp(self):
        for tp, (name, shape) in itertools.product((2, 4), PARAMETERS.items()):
            fields = dict(LAYOUT, tp=tp, etp=tp)
            whole = collections.Counter()
            for rank in range(tp):
                layout = cuts.layout_of(fields, rank)
                dimension = next(i for i, size in enumerate(shape) if size)
                local = [size // tp if i == dimension else 3 for i, size in enumerate(shape)]
                place = parameter_place(name, local, CONFIG, layout)
                self.assertEqual([sum(run[1] for run in runs) for runs in place["index"]], local, name)
                self.assertEqual(place["shape"][dimension], shape[dimension], name)
                whole.update(elements(place["index"][dimension]))
            self.assertEqual(whole, {index: 1 for index in range(shape[dimension])}, name)

    def test_parameter_place_gated_unit_cuts_each_half(self):
        place = parameter_place("decoder.layers.0.mlp.linear_fc1.weight", [8, 4], CONFIG, cuts.layout_of(dict(LAYOUT, tp=2), 1))
        self.assertEqual(place, {"shape": [16, 4], "index": [[[4, 4], [12, 4]], [[0, 4]]]})

    def test_names_of_experts_are_global(self):
        chunk = types.SimpleNamespace(decoder=types.SimpleNamespace(layers=[types.SimpleNamespace(layer_number=3)]), share_embeddings_and_output_weights=False)
        names = Names(chunk, types.SimpleNamespace(num_moe_experts=8), cuts.layout_of(dict(LAYOUT, dp=4, ep=4), 2))
        rows = {"local_experts.1.linear_fc1.weight": "local_experts.5.linear_fc1.weight", "linear_fc1.weight1": "linear_fc1.weight5", "linear_fc2.bias0": "linear_fc2.bias4"}
        for local, name in rows.items():
            self.assertEqual(names.of(f"decoder.layers.0.mlp.experts.{local}"), f"decoder.layers.2.mlp.experts.{name}")
        self.assertEqual(names.of("decoder.layers.0.mlp.linear_fc1.weight"), "decoder.layers.2.mlp.linear_fc1.weight")


# Global name -> shape with the whole size where the cut is, 0 elsewhere.
PARAMETERS = {
    "embedding.word_embeddings.weight": (32, 0), "decoder.layers.3.mlp.linear_fc1.bias": (16,), "decoder.layers.3.mlp.linear_fc2.weight": (0, 16),
    "decoder.layers.0.mlp.experts.local_experts.3.linear_fc1.weight": (16, 0), "decoder.layers.0.self_attention.linear_qkv.weight": (48, 0),
    "decoder.layers.0.mlp.experts.linear_fc1.weight3": (16, 0), "decoder.layers.0.mlp.experts.linear_fc2.weight3": (0, 16),
    "decoder.layers.0.mlp.experts.local_experts.3.linear_fc2.weight": (0, 16), "decoder.layers.0.self_attention.in_proj.weight": (104, 0),
    "decoder.layers.0.self_attention.conv1d.weight": (64, 0, 0), "decoder.layers.0.self_attention.core_attention.softmax_offset": (4,),
}


if __name__ == "__main__":
    unittest.main()
