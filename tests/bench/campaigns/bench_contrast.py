"""Contrast: which fields it says a planted bug needs, against the table of planted bugs.

    python3 tests/bench/campaigns/bench_contrast.py BUILD_DIR [--cases N] [--seed S] [--plants ID,..] [--keep FILE] [-- OPTIONS]

OPTIONS go to every campaign. FILE keeps a JSON line for each bug; bugs that were found there are not run again, so that the bench can run
in pieces. A campaign with each bug ends after its first finding. Its contrast is right if it names every field of the bug's smallest
trigger, and no field outside of it. Inside are also the axes that make up the trigger's ranks where it names none for them, the layers
where it has more than one, and a field by which the trigger changes: with a value that passed, the table says that the case cannot show
the bug. A field that is tied to one that matters, or that only the smallest case is said to need, is named and is not outside. Prints one
JSON line.
"""
import argparse
import copy
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from line import last_object, print_line  # noqa: E402

AXES = ("layout.tp", "layout.pp", "layout.dp", "layout.cp")
WORDS = {"on": True, "off": False}


def find(build, plant, flags, folder):
    """The first finding of a campaign with the bug; None: there is none."""
    path = os.path.join(folder, "fuzz.json")
    command = [os.path.join(build, "shardfuzz"), "fuzz", "--plant", plant, "--cases", str(flags.cases), "--seed", str(flags.seed),
               "--max-ranks", "4", "--stop-after", "1", "--out", folder, "--json"]
    with open(path, "w", encoding="utf-8") as file:
        code = subprocess.run(command + flags.options, stdout=file, stderr=subprocess.DEVNULL, check=False).returncode
    if code not in (0, 1):
        sys.exit(f"{' '.join(command)} ended with {code}")
    found = last_object(path)["by_signature"]
    return found[0] if found else None


def trigger(text):
    """Of "2 ranks, 1 layer, layout.tp=2": the named fields, ranks that no named axis has, layers."""
    ranks, layers = (int(n) for n in re.match(r"(\d+) ranks?, (\d+) layer", text).groups())
    fields = dict(re.findall(r"([a-z_.0-9]+)=(\S+)", text))
    for axis in AXES:
        ranks //= int(fields.get(axis, 1))
    return {"fields": set(fields), "ranks": ranks, "layers": layers}


def describe(build, case, folder):
    """Whether a case can show the bug and the fields of its smallest triggers, as the table of planted bugs says. None: no case."""
    path = os.path.join(folder, "described.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(case, file)
    ran = subprocess.run([os.path.join(build, "shardfuzz"), "describe", path], capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        return None
    line = next(line for line in ran.stdout.splitlines() if line.startswith("plant "))
    return "which this case can show" in line, [trigger(text) for text in line.split("smallest: ")[1].split("; or ")]


def with_value(case, path, text):
    """The case with another value of one field."""
    changed = copy.deepcopy(case)
    *groups, name = path.split(".")
    at = changed
    for group in groups:
        at = at.setdefault(group, {})
    value = WORDS.get(text, int(text) if re.fullmatch(r"-?\d+", text) else text)
    at[name] = [w for w in text.split("+") if w != "none"] if path == "train.frozen" else value
    return changed


def is_of_trigger(build, case, field, folder):
    """Whether a value that passed makes a case that cannot show the bug. A value that other fields have to follow says nothing."""
    for value in field["passed"]:
        seen = describe(build, with_value(case, field["field"], value), folder)
        if seen and not seen[0]:
            return True
    return False


def judge(build, plant, found, folder):
    with open(found["min"], encoding="utf-8") as file:
        case = json.load(file)
    contrast = found["contrast"] or {"fields": [], "trials": 0, "why": ""}
    matters = {f["field"]: f for f in contrast["fields"] if f["state"] == "matters" and f["field"] not in ("seed", "schedule")}
    named = set(matters) | {f["field"] for f in contrast["fields"] if f["state"] in ("tied", "matters in the smallest case")}
    _, triggers = describe(build, case, folder)
    fits = [t for t in triggers if t["fields"] <= named]
    wanted = max(fits, key=lambda t: len(t["fields"])) if fits else triggers[0]
    inside = wanted["fields"] | (set(AXES) if wanted["ranks"] > 1 else set()) | ({"model.layers"} if wanted["layers"] > 1 else set())
    outside = sorted(f for f in matters if f not in inside and not is_of_trigger(build, case, matters[f], folder))
    missing = [] if fits else sorted(wanted["fields"] - named)
    return {"plant": plant, "right": not outside and bool(fits), "missing": missing, "outside": outside,
            "trials": contrast["trials"], "why": contrast["why"], "signature": found["signature"]}


def read_kept(path):
    """Results of bugs that were found before."""
    if not path or not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        return [result for result in map(json.loads, file) if result["right"] is not None]


def keep(path, result):
    line = json.dumps(result)
    print(line, file=sys.stderr, flush=True)
    if path:
        with open(path, "a", encoding="utf-8") as file:
            file.write(line + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plants", help="these alone; default: all but canaries")
    parser.add_argument("--keep", help="a file of results, which is read first and added to")
    given = sys.argv[1:]
    at = given.index("--") if "--" in given else len(given)
    flags = parser.parse_args(given[:at])
    flags.options = given[at + 1:]
    listed = subprocess.run([os.path.join(flags.build, "shardfuzz"), "list", "plants"], capture_output=True, text=True, check=True).stdout
    plants = [line.split()[0] for line in listed.splitlines() if not line.startswith("canary-")]
    plants = flags.plants.split(",") if flags.plants else plants
    results = read_kept(flags.keep)
    known = {r["plant"] for r in results}
    for plant in plants:
        if plant in known:
            continue
        with tempfile.TemporaryDirectory() as folder:
            found = find(flags.build, plant, flags, folder)
            results.append(judge(flags.build, plant, found, folder) if found else {"plant": plant, "right": None})
        keep(flags.keep, results[-1])
    missed = [r["plant"] for r in results if r["right"] is None]
    results = [r for r in results if r["right"] is not None]
    right = sum(r["right"] for r in results)
    print_line("bench_contrast", "bench_contrast.py " + " ".join(sys.argv[2:]), {
        "plants": len(results) + len(missed), "found": len(results), "not_found": missed, "right": right,
        "right_share": right / len(results) if results else None,
        "trials_median": statistics.median(r["trials"] for r in results) if results else None,
        "trials_most": max((r["trials"] for r in results), default=None), "wrong": [r for r in results if not r["right"]]})


if __name__ == "__main__":
    main()
