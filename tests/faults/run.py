#!/usr/bin/env python3
"""Runs campaigns under plans of faults and checks the same laws after each: no case is lost or judged twice, verdicts and findings are those of the campaign
left alone, nothing is left behind. A plan that breaks a law is shrunk, and printed as the line that --plan takes.

    tests/faults/run.py [--program build/shardfuzz] [--plans 20] [--seed 1] [--way NAME]...
    tests/faults/run.py --signal KILL --way sim --way inside --plans 400
    tests/faults/run.py --plan 'sim seed=2; signal=KILL to=parent at=300ms run=0'

Prints one JSON line at the end. Exits 1 if a law was broken, 2 for wrong arguments.
"""
import argparse
import collections
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

import laws
import plan as plans
import trial as trials
import ways

HERE = os.path.dirname(os.path.abspath(__file__))
SHRINK_TRIALS_MAX = 40


class Tester:
    """Runs plans in folders of their own under `top`, and knows what each campaign has when it is left alone."""

    def __init__(self, program, top):
        interpose = f"{top}/interpose.so"
        subprocess.run(["cc", "-std=gnu17", "-O1", "-shared", "-fPIC", "-o", interpose, f"{HERE}/interpose.c", "-ldl"], check=True)
        self.tools, self.top, self.numbers, self.alone = trials.Tools(program, interpose), top, iter(range(1 << 30)), {}

    def folder(self):
        path = f"{self.top}/{next(self.numbers)}"
        os.makedirs(path)
        return path

    def expected(self, way, seed):
        """The books of a campaign left alone."""
        if (way, seed) not in self.alone:
            folder = self.folder()
            run = trials.start(ways.WAYS[way], seed, [], self.tools, folder)
            if run.code not in (0, 1):
                sys.exit(f"run.py: {way} with seed {seed} ends with {run.code} when it is left alone: {run.stderr.strip()[-400:]}")
            self.alone[way, seed] = laws.Books(folder)
            shutil.rmtree(folder)
        return self.alone[way, seed]

    def broken(self, plan):
        """The laws that a plan breaks: name -> what breaks it first."""
        expected, folder = self.expected(plan.way, plan.seed), self.folder()
        found = laws.broken(laws.Trial(plan, ways.WAYS[plan.way], trials.run_plan(plan, ways.WAYS, self.tools, folder), folder, expected))
        shutil.rmtree(folder, ignore_errors=True)
        return found

    def shrink(self, plan, broken):
        """A smaller plan that breaks one of the same laws: fewer faults first, then simpler ones. Moments differ from run to run, so each candidate runs once
        and what shows nothing is not taken."""
        left, changed = SHRINK_TRIALS_MAX, True
        while changed:
            changed = False
            for candidate in smaller(plan):
                left -= 1
                if left < 0:
                    return plan
                if set(self.broken(candidate)) & set(broken):
                    plan, changed = candidate, True
                    break
        return plan


def smaller(plan):
    """Plans with a fault less, then with a field at its simplest value."""
    for i in range(len(plan.faults)):
        if len(plan.faults) > 1:
            yield plans.Plan(plan.way, plan.seed, plan.faults[:i] + plan.faults[i + 1:])
    for i, fault in enumerate(plan.faults):
        for name, simplest in plans.FIELDS[plans.kind(fault)].items():
            if simplest is not None and fault.get(name, simplest) != simplest:
                yield plans.Plan(plan.way, plan.seed, [*plan.faults[:i], {**fault, name: simplest}, *plan.faults[i + 1:]])


def arguments():
    parser = argparse.ArgumentParser(prog="tests/faults/run.py", description="Runs campaigns under plans of faults.")
    parser.add_argument("--program", default="build/shardfuzz", help="the program under test; default: build/shardfuzz")
    parser.add_argument("--plans", type=int, default=20, help="plans to draw; default: 20")
    parser.add_argument("--seed", type=int, default=1, help="of the first plan; the others have the numbers behind it")
    parser.add_argument("--way", action="append", choices=list(ways.WAYS), help="draw plans for these ways to run alone")
    parser.add_argument("--signal", action="append", choices=plans.SIGNALS, help="draw plans with one of these signals alone, as many for each way and signal")
    parser.add_argument("--plan", action="append", help="run this plan, once for each time that the option is given")
    parser.add_argument("--no-shrink", action="store_true", help="print what breaks a law as it is")
    options = parser.parse_args()
    if not os.access(options.program, os.X_OK):
        parser.error(f"--program: there is no program {options.program}")
    return parser, options


def drawn(parser, options):
    """The plans, one after the other."""
    if options.plan:
        try:
            return [plans.parse(line, ways.WAYS) for line in options.plan]
        except ValueError as error:
            parser.error(f"--plan: {error}")
    build = os.path.dirname(os.path.realpath(options.program))
    usable = {name: way for name, way in ways.WAYS.items() if all(map(os.path.exists, way.needs(build))) and (not way.mpi or shutil.which("mpirun"))}
    weights = {name: way.weight for name, way in usable.items() if name in (options.way or usable)}
    if not weights:
        parser.error("none of these ways can run here: plugins have to be built, and mpirun has to be there")
    seeds = range(options.seed, options.seed + options.plans)
    if options.signal:
        return [plans.draw_one_signal(seed, ways.WAYS, list(weights), options.signal) for seed in seeds]
    return [plans.draw(seed, ways.WAYS, weights) for seed in seeds]


def main():
    parser, options = arguments()
    begin, broken_plans, by_way = time.monotonic(), [], collections.Counter()
    todo = drawn(parser, options)
    with tempfile.TemporaryDirectory(prefix="shardfuzz-faults-") as top:
        tester = Tester(options.program, os.path.realpath(top))
        for plan in todo:
            by_way[plan.way] += 1
            broken = tester.broken(plan)
            if not broken:
                continue
            print(f"BROKEN {plan}", flush=True)
            for name, text in broken.items():
                print(f"  {name}: {text}", flush=True)
            small = plan if options.no_shrink or options.plan else tester.shrink(plan, broken)
            if str(small) != str(plan):
                print(f"  smaller: {small}", flush=True)
            broken_plans.append({"plan": str(small), "laws": list(broken)})
    seconds = time.monotonic() - begin
    print(json.dumps({"bench": "bench_faults", "plans": len(todo), "by_way": by_way, "broken": len(broken_plans), "broken_plans": broken_plans,
                      "seconds": round(seconds, 1)}))
    return 1 if broken_plans else 0


if __name__ == "__main__":
    sys.exit(main())
