"""Cases of the Megatron adapter: what is unknown, of the wrong type or not supported is refused in one line with exit code 2."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

from known import FIRST, FOLDER
from megatron_core_target.case import CaseError, complete, read_case
from megatron_core_target.data import Batches
from megatron_core_target.fields import CHOICES, FUNCTION, NEEDS
from shardfuzz.megatron.layout import layout_of
from megatron_core_target.parameters import uniform, logical_indices

REFUSED = {
    "unknown key": {"modle": {}},
    "model.layers: unknown key": {"model": {"layers": 2}},
    "is of another type": {"layout": {"tp": True}},
    "is none of mean": {"loss": "sum"},
    "steps: 0 is below 1": {"steps": 0},
    "layout.pp: 0 is below 1": {"layout": {"pp": 0}},
    "tp must divide the heads": {"layout": {"tp": 8}},
    "ep needs experts": {"layout": {"dp": 2, "ep": 2}},
    "experts with biases": {"model": {"num_moe_experts": 2, "add_bias_linear": True}},
    "cut evenly": {"layout": {"cp": 2}, "sequence_length": 6},
    "the interleaved schedule": {"model": {"num_layers": 4}, "layout": {"pp": 2, "vpp": 2}, "microbatches": 3},
    "no more than a replica has": {"model": {"num_layers": 4, "microbatch_group_size_per_vp_stage": 4}, "layout": {"pp": 2, "vpp": 2}},
    "where the next stage expects pipeline_dtype": {"precision": "bf16", "model": {"num_layers": 2, "fp32_residual_connection": True,
                                                                                  "pipeline_model_parallel_layout": "E|ttL"}, "layout": {"pp": 2}},
    "the stages cannot share the layers": {"model": {"num_layers": 2, "pipeline_model_parallel_layout": "Ettt|tL"}, "layout": {"pp": 2}},
    "takes no variable sequence lengths": {"model": {"num_moe_experts": 2, "variable_seq_lengths": True, "moe_token_dispatcher_type": "allgather"},
                                           "layout": {"pp": 2}},
    "packed sequences": {"data": {"packing": "thd"}},
    "nothing else reads them": {"data": {"padding": "uneven"}},
    "masks experts in place of tokens": {"data": {"padding": "uneven"}, "model": {"num_moe_experts": 2, "moe_router_score_function": "sigmoid",
                                                                                 "moe_router_enable_expert_bias": True}},
    "the stage that embeds alone": {"data": {"padding": "uneven"}, "model": {"num_moe_experts": 2, "num_layers": 2}, "layout": {"tp": 2, "sp": True, "pp": 2}},
    "an expert's capacity": {"model": {"num_moe_experts": 2, "add_bias_linear": False, "moe_expert_capacity_factor": 1.0}, "layout": {"dp": 2}},
}


class CaseTest(unittest.TestCase):
    def test_complete_wrong_cases_refused_with_reason(self):
        for reason, document in REFUSED.items():
            with self.assertRaises(CaseError) as caught:
                complete(document)
            self.assertIn(reason, str(caught.exception))
            self.assertNotIn("\n", str(caught.exception))

    def test_needs_name_choices_and_leave_plain_ones_out(self):
        for path, needs in NEEDS.items():
            self.assertIn(path, CHOICES)
            for other, values in needs.items():
                self.assertIn(other, FUNCTION if path in FUNCTION else CHOICES)
                self.assertLess(set(values), set(CHOICES[other]), f"{path} needs any {other}")
                self.assertTrue(values)

    def test_complete_strict_admits_what_differs_by_design(self):
        document = REFUSED["an expert's capacity"]
        self.assertEqual(complete(document, strict=True)["layout"]["dp"], 2)

    def test_read_case_regression_cases_all_valid(self):
        names = {name[:-5] for name in os.listdir(FOLDER) if name.endswith(".json")}
        self.assertEqual(names, FIRST.keys())
        for name in names:
            self.assertGreater(layout_of(read_case(os.path.join(FOLDER, f"{name}.json"))["layout"], 0).ranks, 1)

    def test_command_bad_files_one_line_and_exit_2(self):
        with tempfile.TemporaryDirectory() as folder:
            for text, reason in (("{", "Expecting"), ('{"seed": 1, "seed": 2}', "repeated key"), (json.dumps({"loss": 1}), "loss")):
                path = os.path.join(folder, "case.json")
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
                done = subprocess.run([sys.executable, "-m", "megatron_core_target", path, "--out", os.path.join(folder, "out")],
                                      capture_output=True, text=True)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(reason, done.stderr)
                self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
                self.assertFalse(os.path.exists(os.path.join(folder, "out")))


class DataTest(unittest.TestCase):
    def test_padding_is_the_end_of_each_sequence_and_out_of_the_loss(self):
        case = complete({"seed": 5, "data": {"padding": "uneven", "loss_mask": "uneven"}, "model": {"num_moe_experts": 2}, "layout": {"cp": 2}})
        plain = complete({"seed": 5, "data": {"loss_mask": "uneven"}})
        whole = Batches(case, layout_of(plain["layout"], 0), 0)
        self.assertTrue(whole.padding.any() and not whole.padding[..., 0].any())
        self.assertFalse((whole.padding[..., :-1] & ~whole.padding[..., 1:]).any())
        self.assertFalse((whole.mask.bool() & whole.padding).any())
        self.assertTrue((Batches(plain, layout_of(plain["layout"], 0), 0).tokens == whole.tokens).all())
        for rank in range(2):
            layout = layout_of(case["layout"], rank)
            pieces = Batches(case, layout, 0)
            for number, *_, padding, counts in pieces:
                self.assertTrue((padding == whole.padding[number][:, pieces.positions]).all())
                self.assertEqual(counts[1], int(whole.mask[number].sum()))


class ParametersTest(unittest.TestCase):
    def test_uniform_shards_are_pieces_of_the_whole(self):
        whole = uniform(7, "a.weight", logical_indices({"shape": [6, 8], "index": [[[0, 6]], [[0, 8]]]}))
        shard = uniform(7, "a.weight", logical_indices({"shape": [6, 8], "index": [[[0, 1], [3, 2]], [[4, 4]]]}))
        self.assertTrue((shard == whole[[0, 3, 4]][:, 4:]).all())
        self.assertFalse((shard == uniform(8, "a.weight", logical_indices({"shape": [6, 8], "index": [[[0, 1], [3, 2]], [[4, 4]]]}))).any())
        self.assertLess(abs(whole).max(), 1)
        self.assertGreater(whole.std(), 0.4)


if __name__ == "__main__":
    unittest.main()
