"""The CUDA mode as far as a machine without a GPU shows it: what it refuses, and that nothing pretends to be CUDA."""
import json
import os
import subprocess
import sys
import unittest
from unittest import mock

import sets
from megatron_core_target import shims

# Prints which names are torch's own after the shims, and whether CUDA was touched. The check for a GPU is left out.
NAMES = """
import json, sys
import torch, torch.distributed as dist
names = {"torch.empty": lambda: torch.empty, "Tensor.cuda": lambda: torch.Tensor.cuda, "Tensor.type": lambda: torch.Tensor.type,
         "cuda.current_device": lambda: torch.cuda.current_device, "cuda.Stream": lambda: torch.cuda.Stream,
         "dist.all_gather": lambda: dist.all_gather, "dist.all_reduce": lambda: dist.all_reduce, "dist.all_gather_object": lambda: dist.all_gather_object}
before = {name: of() for name, of in names.items()}
from shardfuzz import devices
devices.require = lambda: None
from megatron_core_target import serving
serving.preload()
from megatron.core.distributed import param_and_grad_buffer
from megatron.core.transformer.moe import token_dispatcher
print(json.dumps({"own": sorted(name for name, of in names.items() if of() is before[name]), "names": sorted(names),
                  "coalescing": param_and_grad_buffer._coalescing_manager.__module__, "split_sizes": token_dispatcher.maybe_move_tensor_to_cpu.__module__,
                  "touched": torch.cuda.is_initialized() or torch.cuda._is_in_bad_fork(), "backend": devices.backend()}))
"""


def run_python(text, device):
    environment = {**os.environ, "SHARDFUZZ_DEVICE": device}
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", text], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


class CudaTest(unittest.TestCase):

    def test_names_on_cuda_are_torchs_own(self):
        found = run_python(NAMES, device="cuda")
        self.assertEqual(found["own"], found["names"])
        self.assertEqual((found["coalescing"], found["backend"], found["touched"]), ("torch.distributed.distributed_c10d", "nccl", False))
        self.assertEqual(found["split_sizes"], "megatron.core.transformer.moe.moe_utils")

    def test_names_on_cpu_are_replaced(self):
        found = run_python(NAMES, device="cpu")
        self.assertEqual((found["own"], found["backend"], found["touched"]), ([], "gloo", False))
        self.assertTrue(found["coalescing"].startswith("megatron_core_target"))

    def test_activations_on_cuda_are_fused_where_the_package_admits_it(self):
        shims.install_torch()
        shims.install_megatron()
        from megatron_core_target import model
        rows = [(["silu", True, False, None], True), (["silu", True, False, 4], True), (["silu", False, True, None], False),
                (["gelu", True, False, None], True), (["gelu", False, True, None], True), (["gelu", False, False, None], False),
                (["gelu", True, False, 4], False), (["relu", True, True, None], False)]
        with mock.patch.object(model.devices, "on_cuda", lambda: True):
            options = [model._fixed({"activation_func": model.ACTIVATIONS[activation], "gated_linear_unit": gated, "add_bias_linear": bias,
                                     "num_moe_experts": experts}) for (activation, gated, bias, experts), _ in rows]
        self.assertEqual([one["bias_activation_fusion"] for one in options], [fused for _, fused in rows])
        self.assertEqual({(one["bias_dropout_fusion"], one["use_cpu_initialization"]) for one in options}, {(True, False)})

    @unittest.skipUnless(os.environ.get("SHARDFUZZ"), "SHARDFUZZ names no program")
    def test_fuzz_without_cuda_one_line_and_exit_3(self):
        import torch
        if torch.backends.cuda.is_built():
            self.skipTest("this PyTorch has CUDA")
        worker = "worker:" + " ".join(sets.WORKER)
        for launched in [], ["--launcher", "mpirun --oversubscribe -n {n}"]:
            done = subprocess.run([os.environ["SHARDFUZZ"], "fuzz", "--target", worker, "--device", "cuda", "--cases", "1", *launched],
                                  capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stderr.count("\n")), (3, 1), done.stderr)
            self.assertIn("is built without CUDA", done.stderr)


if __name__ == "__main__":
    unittest.main()
