"""Every field of the package's configuration is drawn or listed with a reason, and none of what is listed is gone or drawn."""
import os
import subprocess
import tempfile
import unittest

from megatron_core_target import shims
from megatron_core_target.fields import CHOICES
from megatron_core_target.undrawn import TABLES, is_drawn, note, of_package, unknown

PROGRAM = os.environ.get("SHARDFUZZ", "build/shardfuzz")


class FieldsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        shims.install_torch()
        shims.install_megatron()
        cls.package = of_package()

    def test_tables_and_choices_have_every_field_of_the_package(self):
        self.assertEqual(unknown(self.package), [])
        self.assertIsNone(note(self.package))

    def test_tables_have_no_field_that_the_package_lacks_or_a_case_has(self):
        for kind, (_, table) in TABLES.items():
            self.assertEqual([name for name in table if name not in self.package[kind]], [], kind)
            self.assertEqual([name for name in table if is_drawn(kind, name)], [], kind)

    def test_reasons_are_one_line_and_name_choices_that_exist(self):
        for _, table in TABLES.values():
            for name, reason in table.items():
                self.assertTrue(reason and "\n" not in reason, name)
                if reason.startswith("drawn as "):
                    self.assertIn(reason.removeprefix("drawn as "), CHOICES)

    def test_choices_of_a_case_are_fields_of_the_package(self):
        own = {"model": {*self.package["MLATransformerConfig"], *self.package["GPTModel"]}, "optimizer": {*self.package["OptimizerConfig"], "name"}}
        for path in CHOICES:
            first, _, name = path.partition(".")
            if first in own:
                self.assertIn(name, own[first], path)

    def test_note_names_a_field_of_a_checkout_once_in_one_line(self):
        package = {**self.package, "TransformerConfig": self.package["TransformerConfig"] + ["moe_new"],
                   "MLATransformerConfig": self.package["MLATransformerConfig"] + ["moe_new", "latent_new"]}
        self.assertEqual(unknown(package), ["TransformerConfig.moe_new", "MLATransformerConfig.latent_new"])
        self.assertIn("2 fields that shardfuzz does not know and leaves at the default: TransformerConfig.moe_new", note(package))
        self.assertNotIn("\n", note(package))


class CheckoutTest(unittest.TestCase):
    def test_program_says_which_field_of_a_checkout_it_does_not_know(self):
        import megatron.core
        source = os.path.dirname(os.path.abspath(megatron.core.__file__))
        with tempfile.TemporaryDirectory() as folder:
            core = os.path.join(folder, "megatron", "core")
            subprocess.run(["cp", "-r", os.path.dirname(source), folder], check=True)
            path = os.path.join(core, "distributed", "distributed_data_parallel_config.py")
            with open(path, encoding="utf-8") as file:
                text = file.read()
            changed = text.replace("    grad_reduce_in_fp32: bool = False\n", "    grad_reduce_in_fp32: bool = False\n    reduce_anew: bool = False\n", 1)
            self.assertNotEqual(changed, text)
            with open(path, "w", encoding="utf-8") as file:
                file.write(changed)
            done = subprocess.run([PROGRAM, "list", "features", "--target", "megatron-core", "--framework-path", folder],
                                  capture_output=True, text=True, timeout=300)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual([line for line in done.stderr.splitlines() if "reduce_anew" in line], [
                "shardfuzz: this megatron-core has 1 field that shardfuzz does not know and leaves at the default: DistributedDataParallelConfig.reduce_anew"])


if __name__ == "__main__":
    unittest.main()
