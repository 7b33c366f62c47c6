"""The Megatron worker: what it describes is what it runs, and no case leaves anything behind for the next."""
import os
import pathlib
import random
import subprocess
import tempfile
import unittest

import sets
from megatron_core_target.case import CaseError, complete
from megatron_core_target.fields import with_value
from megatron_core_target.rules import refusals
from megatron_core_target.serving import description

DRAWN = int(os.environ.get("SHARDFUZZ_DRAWN", "3"))      # cases that the real package runs, per number of ranks


def small(**fields):
    """A complete case: plain, but for fields by path (dots as __)."""
    case = sets.plain(description())
    for path, value in fields.items():
        with_value(case, path.replace("__", "."), value)
    return case


class DescriptionTest(unittest.TestCase):
    def test_description_plain_case_is_supported(self):
        described = description()
        self.assertLessEqual(len(described["fields"]), 512)
        self.assertIsNone(sets.refusal(described, sets.plain(described)))
        self.assertEqual(sets.ranks_of(described, sets.plain(described)), 1)

    def test_description_rules_are_those_of_case_files(self):
        for strict in (False, True):
            described = description(strict)
            for seed in range(2000):
                generator = random.Random(seed)
                case = sets.plain(described, 1)
                for path, field in described["fields"].items():
                    if generator.random() < 0.15 and "choices" in field:
                        with_value(case, path, generator.choice(field["choices"]))
                if sets.ranks_of(described, case) <= 4:
                    self.assertEqual(sets.refusal(described, case) is None, not refusals(case, strict), (sets.refusal(described, case), refusals(case, strict)))

    def test_description_strict_has_no_rules_of_design(self):
        reasons = {rule["reason"] for rule in description()["refuses"]} - {rule["reason"] for rule in description(strict=True)["refuses"]}
        self.assertEqual(len(reasons), 4)

    def test_drawn_cases_are_complete_and_supported(self):
        described = description()
        for seed in range(100):
            case = sets.drawn(described, seed)
            try:
                complete(case)
            except CaseError as error:
                self.fail(f"case {seed}: {error}")
            self.assertLessEqual(sets.ranks_of(described, case), 4)


class WorkerTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(dir="/dev/shm")
        self.addCleanup(self.folder.cleanup)
        self.traces = 0

    def trace(self, ranks, kind, case, draw=None):
        """The files' bytes of a run that must succeed."""
        self.traces += 1
        folder = pathlib.Path(self.folder.name, str(self.traces))
        answers = ranks.run(kind, case, draw, str(folder))
        self.assertTrue(all(answer.get("ok") == {} for answer in answers), (answers, ranks.printed()[-3000:]))
        files = sorted(folder.iterdir())
        self.assertEqual([file.name for file in files], [f"rank-{rank:05d}.safetensors" for rank in range(ranks.ranks)])
        return [file.read_bytes() for file in files]

    def test_serve_without_socket_one_line_and_exit_2(self):
        environment = {key: value for key, value in os.environ.items() if key != "SHARDFUZZ_SOCKET"}
        done = subprocess.run(sets.WORKER, env=environment, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr.count("\n")), (2, 1), done.stderr)

    def test_one_rank_model_that_is_used_again_is_as_new(self):
        experts = small(precision="bf16", steps=2, model__num_moe_experts=4, model__moe_router_load_balancing_type="global_aux_loss",
                        model__moe_aux_loss_coeff=0.5, model__moe_router_score_function="sigmoid", model__moe_router_enable_expert_bias=True)
        with sets.RankSet(1) as ranks:
            first = self.trace(ranks, "reference", experts)
            draws = [self.trace(ranks, "draw", experts, draw) for draw in range(3)]
            self.assertEqual(self.trace(ranks, "reference", experts), first)
            self.assertEqual(self.trace(ranks, "draw", experts, 1), draws[1])
            self.assertEqual(len({bytes(trace[0]) for trace in [first, *draws]}), 4)
            other_layout = small(**{"layout__dp": 2})
            self.assertEqual(self.trace(ranks, "reference", other_layout), self.trace(ranks, "reference", small()))
            self.assertEqual(self.trace(ranks, "reference", experts), first)
            self.assert_drawn_cases_run(ranks, "reference")

    def test_two_ranks_failure_and_other_layouts_leave_nothing_behind(self):
        tensor, data = small(layout__tp=2, layout__sp=True), small(layout__dp=2, layout__distributed_optimizer=True, layout__overlap_grad_reduce=True)
        pipeline = small(layout__pp=2, model__num_layers=2, model__mtp_num_layers=1)
        fails_in_forward = small(layout__dp=2, model__num_moe_experts=4, model__moe_router_topk=8)
        with sets.RankSet(2, launched=True) as ranks:
            expected = [self.trace(ranks, "candidate", case) for case in (tensor, data, pipeline)]
            answers = ranks.run("candidate", fails_in_forward)
            self.assertTrue(all("RuntimeError" in answer.get("error", "") for answer in answers), answers)
            answers = ranks.run("candidate", small(layout__dp=2, model__num_query_groups=3))
            self.assertTrue(all("query groups" in answer.get("refused", "") for answer in answers), answers)
            self.assertEqual([self.trace(ranks, "candidate", case) for case in (data, pipeline, tensor)], [expected[1], expected[2], expected[0]])
            self.assert_drawn_cases_run(ranks, "candidate")

    def test_four_ranks_drawn_cases_run(self):
        with sets.RankSet(4) as ranks:
            self.assert_drawn_cases_run(ranks, "candidate")

    def assert_drawn_cases_run(self, ranks, kind):
        for seed in range(DRAWN):
            case = sets.drawn(description(), seed, ranks.ranks)
            answers = ranks.run(kind, case)
            self.assertTrue(all("ok" in answer for answer in answers), (seed, answers))


if __name__ == "__main__":
    unittest.main()
