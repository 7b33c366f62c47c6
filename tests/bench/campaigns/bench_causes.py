"""One fault, one name: campaigns with each planted bug alone, and with random sets of three at once.

    python3 tests/bench/campaigns/bench_causes.py BUILD_DIR [--cases N] [--seed S] [--plants ID,..] [--sets N] [--set-cases N] [-- OPTIONS]

OPTIONS go to every campaign. Alone: under how many causes a plant's findings are counted. Together: how many of the plants that the same
cases show alone are reported, that is, by a signature whose kind and module the plant has alone; how many causes there are for each of
them; and which causes have findings that only different plants explain. Prints one JSON line; stderr has a line for each campaign.
"""
import argparse
import os
import random
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from line import last_object, print_line  # noqa: E402


def campaign(build, plants, cases, seed, options):
    """The signatures of a campaign with these plants in every case."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "fuzz.json")
        command = [os.path.join(build, "shardfuzz"), "fuzz", "--plant", ",".join(plants), "--cases", str(cases), "--seed", str(seed), "--out", folder, "--json"]
        with open(path, "w", encoding="utf-8") as file:
            code = subprocess.run(command + options, stdout=file, stderr=subprocess.DEVNULL, check=False).returncode
        if code not in (0, 1):
            sys.exit(f"{' '.join(command)} ended with {code}")
        signatures = last_object(path)["by_signature"]
        print(f"{','.join(plants)}: {len(signatures)} signatures, {len(causes(signatures))} causes", file=sys.stderr, flush=True)
        return signatures


def place(signature):
    """Kind and module."""
    return tuple(signature.rsplit("@", 1)[0].split("/")[-2:])


def causes(signatures):
    """The places of each cause."""
    places = {}
    for s in signatures:
        places.setdefault(s["cause"], set()).add(place(s["signature"]))
    return places


def judge_set(plants, alone, signatures):
    """What became of the plants of a set."""
    present = [p for p in plants if alone[p]]
    places = {p: {place(s["signature"]) for s in alone[p]} for p in present}
    seen = {place(s["signature"]) for s in signatures}
    own = {p: places[p] - set().union(*(places[q] for q in present if q != p)) for p in present}
    mixed = [c for c, at in causes(signatures).items() if sum(bool(own[p] & at) for p in present) > 1]
    return {"plants": plants, "present": len(present), "missed": [p for p in present if not places[p] & seen], "causes": len(causes(signatures)),
            "mixed": mixed}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--cases", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plants", help="these alone; default: all")
    parser.add_argument("--sets", type=int, default=0)
    parser.add_argument("--set-size", type=int, default=3)
    parser.add_argument("--set-cases", type=int, help="default: --cases; plants count as present where these cases show them alone")
    given = sys.argv[1:]
    at = given.index("--") if "--" in given else len(given)
    flags = parser.parse_args(given[:at])
    flags.options = given[at + 1:]
    listed = subprocess.run([os.path.join(flags.build, "shardfuzz"), "list", "plants"], capture_output=True, text=True, check=True).stdout
    plants = flags.plants.split(",") if flags.plants else [line.split()[0] for line in listed.splitlines() if not line.startswith("canary-")]

    alone = {p: campaign(flags.build, [p], flags.cases, flags.seed, flags.options) for p in plants}
    found = [p for p in plants if alone[p]]
    several = {p: {c: sorted("/".join(at) for at in places) for c, places in causes(alone[p]).items()} for p in found if len(causes(alone[p])) > 1}

    draw, results = random.Random(flags.seed), []
    set_cases = flags.set_cases or flags.cases
    known = alone if set_cases == flags.cases else {}
    for _ in range(flags.sets):
        chosen = draw.sample(plants, flags.set_size)
        for p in chosen:
            if p not in known:
                known[p] = campaign(flags.build, [p], set_cases, flags.seed, flags.options)
        results.append(judge_set(chosen, known, campaign(flags.build, chosen, set_cases, flags.seed, flags.options)))
    present, missed = sum(r["present"] for r in results), sum(len(r["missed"]) for r in results)
    print_line("bench_causes", "bench_causes.py " + " ".join(sys.argv[2:]), {
        "plants": len(plants), "found": len(found), "one_cause": len(found) - len(several), "signatures": sum(len(alone[p]) for p in found),
        "several_causes": several, "sets": len(results), "present": present, "reported": present - missed,
        "causes_per_plant": sum(r["causes"] for r in results) / present if present else None,
        "mixed_causes": sum(len(r["mixed"]) for r in results), "results": results})


if __name__ == "__main__":
    main()
