#!/usr/bin/env python3
"""The rule of `shardfuzz check` on the part of an error that lies along a tensor: false alarms, and what a factor on every tensor shows.

    python3 tests/bench/oracles/bench_along.py BUILD_DIR [--models N] [--seed S] [--scale F,..] [-- FUZZ OPTIONS]

Of each model of the built-in layers, end to end: the trace of one device is the reference, 24 layouts are draws and eight others are candidates,
each as it is and with every tensor times F. A noise file of format 1 knows nothing of the rule. Prints one JSON line: by F and kind of
tensor, how many tensors are judged and flagged with the rule and without.
"""
import argparse
import array
import collections
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from line import print_line  # noqa: E402

DRAWS, SPARE, CANDIDATES = 24, 24, 8  # spare: layouts that differ in nothing that traces show give the same numbers


def parts(data):
    """Header, and what lies behind it."""
    size = struct.unpack("<Q", data[:8])[0]
    return json.loads(data[8:8 + size]), data[8 + size:]


def bf16_times(data, factor):
    values = array.array("H", data)
    for i, bits in enumerate(values):
        exact = struct.unpack("<I", struct.pack("<f", struct.unpack("<f", struct.pack("<I", bits << 16))[0] * factor))[0]
        values[i] = (exact + 0x7FFF + (exact >> 16 & 1)) >> 16
    return values.tobytes()


def scaled(source, target, factor):
    """A trace with every tensor of type BF16 or F32 times the factor; parameters stay, or nothing else would be looked at."""
    target.mkdir()
    for path in source.iterdir():
        data = path.read_bytes()
        header, body = parts(data)
        body = bytearray(body)
        for name, entry in header.items():
            if name == "__metadata__" or "/param/" in name or "/scalar/" in name:
                continue
            begin, end = entry["data_offsets"]
            if entry["dtype"] == "BF16":
                body[begin:end] = bf16_times(bytes(body[begin:end]), factor)
            elif entry["dtype"] == "F32":
                body[begin:end] = array.array("f", [v * factor for v in array.array("f", bytes(body[begin:end]))]).tobytes()
        (target / path.name).write_bytes(data[:len(data) - len(body)] + body)


def without_rule(path, plain):
    """The noise file as format 1 has it."""
    header, body = parts(path.read_bytes())
    about = json.loads(header["__metadata__"]["shardfuzz"])
    header["__metadata__"]["shardfuzz"] = json.dumps({**about, "format": 1})
    out = bytearray()
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            vector = body[begin:begin + 24] + body[begin + 32:end]
            entry.update(shape=[len(vector) // 8], data_offsets=[len(out), len(out) + len(vector)])
            out += vector
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    plain.write_bytes(struct.pack("<Q", len(text)) + text + out)


def verdicts(program, folder, candidates, noise):
    """{(candidate, tensor): flagged} of what is judged."""
    seen = {}
    for name in candidates:
        shown = subprocess.run([program, "check", str(folder / "ref"), str(folder / name), "--noise", str(noise), "--table"], capture_output=True, text=True, check=False).stdout
        for line in shown.splitlines():
            words = line.split()
            if words and words[0].startswith("s") and "/" in words[0] and (words[-1] == "ok" or "FLAGGED" in words):
                seen[name, words[0]] = "FLAGGED" in words
    return seen


def drawn(program, seed, cases, options):
    lines = subprocess.run([program, "fuzz", "--dry-run", "--json", "--seed", str(seed), "--cases", str(cases), "--max-ranks", "8", *options],
                           capture_output=True, text=True, check=True).stdout.splitlines()
    return [json.loads(line) for line in lines]


def text_of(value):
    return "+".join(value) or "none" if isinstance(value, list) else str(value).lower() if isinstance(value, bool) else str(value)


def traces(program, folder, block, flags):
    """Writes the traces of model number `block`: ref, draw-0 .., cand-0 .. Returns whether all are there."""
    plain = ["--set", "mode=e2e", "--set", "moe.experts=0", "--set", "reload.after_step=0", "--set", "model.heads=4..8", "--set", "model.layers=2..4", *flags.options]
    model = drawn(program, flags.seed + block, 1, plain)[0]
    fixed = [word for part in ("model", "train", "precision", "data") for name, value in model[part].items() for word in ("--set", f"{part}.{name}={text_of(value)}")]
    cases = [{**case, "seed": model["seed"]} for case in drawn(program, flags.seed + block, DRAWS + SPARE + CANDIDATES, ["--layouts", "1", *plain, *fixed])]
    single = {**model, "layout": {}, "reload": {}}
    wanted = [("ref", single)]
    wanted += [(f"draw-{i}", c) for i, c in enumerate(cases[CANDIDATES:])]
    wanted += [(f"cand-{i}", c) for i, c in enumerate(cases[:CANDIDATES])]
    for name, case in wanted:
        (folder / f"{name}.json").write_text(json.dumps(case), encoding="utf-8")
        if subprocess.run([program, "replay", str(folder / f"{name}.json"), "--trace", str(folder / name)], capture_output=True, check=False).returncode != 0:
            return False
    return True


def noise(program, folder):
    """Makes the noise file of draws that all differ. Returns whether there are enough."""
    draws = [str(folder / f"draw-{i}") for i in range(DRAWS + SPARE)]
    while len(draws) >= DRAWS:
        made = subprocess.run([program, "noise", str(folder / "ref"), *draws[:DRAWS]], capture_output=True, text=True, check=False)
        if made.returncode == 0:
            return True
        same = [draw for draw in draws if made.stderr.startswith(f"shardfuzz: {draw}: has the same values")]
        if not same:
            sys.exit(made.stderr)
        draws.remove(same[0])
    return False


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--models", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scale", default="1.02,1.05,1.2")
    given = sys.argv[1:]
    at = given.index("--") if "--" in given else len(given)
    flags = parser.parse_args(given[:at])
    flags.options = given[at + 1:]
    program = os.path.join(flags.build, "shardfuzz")
    counts, used, alarms = collections.defaultdict(lambda: [0, 0, 0]), 0, []
    for block in range(flags.models):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            if not traces(program, folder, block, flags):
                continue
            if not noise(program, folder):
                continue
            used += 1
            without_rule(folder / "ref" / "noise.safetensors", folder / "plain.safetensors")
            for factor in [1.0] + [float(f) for f in flags.scale.split(",")]:
                names = [f"cand-{i}" for i in range(CANDIDATES)]
                if factor != 1:
                    for name in names:
                        scaled(folder / name, folder / f"{name}-{factor}", factor)
                    names = [f"{name}-{factor}" for name in names]
                by_rule = verdicts(program, folder, names, folder / "ref" / "noise.safetensors")
                plain = verdicts(program, folder, names, folder / "plain.safetensors")
                for key, flagged in by_rule.items():
                    row = counts[f"{factor:g}", key[1].split("/")[3]]
                    row[0] += 1
                    row[1] += flagged
                    row[2] += plain.get(key, False)
                    if factor == 1 and flagged:
                        alarms.append(f"model {block}: {key[1]}")
    print_line("bench_along", "bench_along.py " + " ".join(sys.argv[2:]), {
        "models": used, "alarms": alarms[:20],
        "by_factor": {f: {kind: {"judged": row[0], "flagged": row[1], "without": row[2]} for (g, kind), row in sorted(counts.items()) if g == f}
                      for f in sorted({key[0] for key in counts})}})


if __name__ == "__main__":
    main()
