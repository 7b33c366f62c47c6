#!/usr/bin/env bash
# Layers and models of the sample plugins: clean campaigns of those without a bug, and a campaign of each planted bug, with what was found, where, and what
# it was shrunk to. Prints its JSON line.
#   tests/bench/campaigns/bench_plugins.sh BUILD_DIR [CASES [SEED]]     CASES: of each sound plugin; a fifth of each planted one
set -euo pipefail

bench=$(cd "$(dirname "$0")/.." && pwd)
build=$(realpath "${1:?usage: bench_plugins.sh BUILD_DIR [CASES [SEED]]}")
cases=${2:-1000} seed=${3:-1}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

PYTHONPATH=$bench python3 - "$build" "$cases" "$seed" "$folder" <<'PY'
import glob
import json
import os
import subprocess
import sys

from line import print_line

build, cases, seed, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
# Where the bugs of a sample are.
MODULES = {"layer_row": "mlp.linear_fc2", "layer_mlp": "mlp.", "layer_fp8": "mlp.linear_fc2", "layer_attention": "self_attention.core_attention", "layer_experts": "mlp.experts",
           "layer_embedding": "embedding.word_embeddings"}


def fuzz(name, count):
    """The summary of a campaign, and of each finding's smallest case (signature, ranks, layers)."""
    out = os.path.join(folder, name)
    command = [build + "/shardfuzz", "fuzz", "--target", f"plugin:{build}/plugins/{name}.so", "--cases", str(count), "--seed", seed, "--max-ranks", "4", "--out", out, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode > 1:
        sys.exit(f"bench_plugins: {name}: {done.stderr}")
    smallest = []
    for path in sorted(glob.glob(out + "/*/min.json")):
        with open(path, encoding="utf-8") as file:
            c = json.load(file)
        axes = c["layout"]
        smallest.append((c["expect"]["signature"], axes["tp"] * axes["cp"] * axes["dp"] * axes["pp"], c["model"]["layers"]))
    return json.loads(done.stdout.splitlines()[-1]), smallest


def module_of(name):
    return next((module for prefix, module in MODULES.items() if name.startswith(prefix)), None)


names = sorted(os.path.basename(path)[:-3] for path in glob.glob(build + "/plugins/*.so"))
names = [name for name in names if name.startswith(("layer_", "model_")) and "fault" not in name and "refused" not in name]
sound, planted = {}, {}
for name in names:
    if "sound" in name or name in ("layer_row_async", "layer_attention_ring"):
        summary, _ = fuzz(name, cases)
        sound[name] = {key: summary[key] for key in ("cases", "passed", "findings", "inconclusive", "skipped")}
        continue
    summary, smallest = fuzz(name, cases // 5)
    module = module_of(name)
    planted[name] = {"findings": summary["findings"], "cases": summary["cases"], "signatures": [signature for signature, _, _ in smallest],
                     "in_module": all(module in signature for signature, _, _ in smallest) if module else None,
                     "ranks": max((ranks for _, ranks, _ in smallest), default=0), "layers": max((layers for _, _, layers in smallest), default=0)}
print_line("bench_plugins", "bench_plugins.sh " + " ".join(sys.argv[2:4]), {"sound": sound, "planted": planted})
PY
