"""Golden runs: the arithmetic of harness/docs/model.md in PyTorch, in float64, with gradients by autograd.

Writes reference_NAME.json (the case) and reference_NAME.safetensors (every traced tensor, under its trace id's text) beside this script. It
shares nothing with the C code but that text: parameters, tokens and masks are computed here again, in integers. Needs torch
and numpy; run it by hand when that text changes:  python3 corpus/golden/make_goldens.py [NAME...]

    golden_cases      the cases and their default fields
    golden_hashes     hashes, keys and random bits
    golden_data       consistent tensors, tokens, labels, masks, documents, memory
    golden_params     parameters: names, shapes, first values, which are frozen
    golden_layers     linears, norms, activations, dropout
    golden_attention  self-attention, latents, cross-attention
    golden_experts    router, capacity, auxiliary losses, experts
    golden_model      the forward pass, multi-token prediction too
    golden_training   losses, steps, the optimizer; the tensors that are traced
    golden_files      the files

make_fp8_goldens.py has the golden runs in fp8.
"""
import sys

import torch

from golden_cases import CASES, complete
from golden_files import write_golden
from golden_training import Run


def main():
    torch.set_num_threads(1)
    total = 0
    for name in sys.argv[1:] or CASES:
        case = complete(CASES[name])
        total += write_golden(f"reference_{name}", case, Run(case).out)
    print(f"total {total} bytes")


if __name__ == "__main__":
    main()
