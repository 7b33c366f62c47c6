"""The transformers target: its small configurations, right layouts, a planted bug, and the bugs that it has found."""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

import transformers_target
from target_cases import known_cases, outcomes, outcomes_of
from transformers import LlamaConfig, Qwen2MoeConfig
from transformers_target import shapes
from transformers_target.fields import FIELDS

CORPUS = "corpus/regress/transformers"
WORKER = f"{sys.executable} -m transformers_target"
MODEL = {path.split(".")[1]: field["choices"][0] for path, field in FIELDS.items() if path.startswith("model.")}


class Settings(unittest.TestCase):
    def test_sizes_are_the_cases(self):
        settings = shapes.settings(LlamaConfig, {**MODEL, "heads": 8, "queries_per_key": 2}, {})
        names = ("hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim")
        self.assertEqual([settings[name] for name in names], [64, 8, 4, 8])

    def test_nothing_is_random(self):
        self.assertNotIn("attention_dropout", shapes.settings(LlamaConfig, MODEL, {}))  # 0 when it is not given
        config = Qwen2MoeConfig(**shapes.settings(Qwen2MoeConfig, MODEL, {}))
        self.assertEqual([value for name, value in vars(config).items() if "drop" in name and value], [])

    def test_lists_of_layers_have_each_kind(self):
        self.assertEqual(shapes._per_layer(["a", "a", "b", "a"], 4, 3), ["a", "b", "a"])
        self.assertEqual(shapes._per_layer([0, 1, 2, 3], 4, 2), [0, 1])
        self.assertIsNone(shapes._per_layer([1.0, 1.0], 4, 2))


EXPERTS = {"model": {"type": "ernie4_5_moe"}}
RIGHT = [{"layout": {"tp": 2, "dp": 2, "reduce": "last"}, "train": {"microbatches": 2, "clip": 0.5, "steps": 2}, "data": {"mask": "rows"}},
         {"layout": {"tp": 4}, "model": {"tied": True}, "train": {"optimizer": "adamw", "checkpointing": True}},
         {"layout": {"tp": 2, "load": "shards"}, "train": {"loss": "labels"}}, {"layout": {"dp": 2, "load": "other layout"}},
         {**EXPERTS, "layout": {"tp": 2, "ep": 2}}, {**EXPERTS, "layout": {"dp": 2, "ep": 2}, "train": {"loss": "labels"}},
         {**EXPERTS, "layout": {"tp": 2, "dp": 2, "ep": 4, "load": "same layout"}}]


class Cases(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.known = known_cases(CORPUS)
        cls.seen = outcomes_of(WORKER, right=RIGHT, known=[case["framework"] for case in cls.known.values()],
                               refused=[{"model": {"type": "openai_privacy_filter"}, "layout": {"tp": 2}}])

    def test_right_layouts_pass(self):
        for case, seen in zip(RIGHT, self.seen["right"]):
            self.assertEqual(seen["verdict"], "PASS", (case, seen))

    def test_what_transformers_refuses_is_skipped(self):
        seen, = self.seen["refused"]
        self.assertEqual(seen["verdict"], "SKIP")
        self.assertIn("has no `tp_plan`", seen["reason"])

    def test_a_planted_bug_is_found_and_named(self):
        with tempfile.TemporaryDirectory() as folder:
            copy = os.path.join(folder, "transformers_target")
            shutil.copytree(os.path.dirname(transformers_target.__file__), copy)
            with open(os.path.join(copy, "program.py"), encoding="utf-8") as file:
                text = file.read()
            self.assertIn("return loss * parts", text)
            with open(os.path.join(copy, "program.py"), "w", encoding="utf-8") as file:
                file.write(text.replace("return loss * parts", "return loss"))
            seen, = outcomes(WORKER, [{"layout": {"dp": 2}}], {"PYTHONPATH": folder})
        self.assertEqual(seen["verdict"], "FINDING")
        self.assertEqual(seen["diagnosis"]["class"], "scale", seen)

    def test_known_bugs(self):
        self.assertGreaterEqual(len(self.known), 10)
        for (name, case), seen in zip(self.known.items(), self.seen["known"]):
            self.assertEqual(seen["verdict"], "FINDING", name)
            # Without a signature: memory that nobody wrote may be NaN or a number.
            kind, module = case["expect"].get("signature", "/act/mamba.out_proj").split("@")[0].split("/")[1:]
            self.assertRegex(seen["first"], f"/{kind}/(.*[.])?{module}/", name)

    def test_a_script_shows_a_bug(self):
        shown = subprocess.run([sys.executable, f"{CORPUS}/norm-without-plan.py"], capture_output=True, text=True, check=False)
        self.assertEqual(shown.returncode, 1, shown.stderr)
        self.assertIn("gradient of layers.0.self_attn.q_norm.weight: off by", shown.stdout)


if __name__ == "__main__":
    unittest.main()
