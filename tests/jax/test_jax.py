"""The target for JAX: its operations, its arrays on devices, its perturbed runs, and what a campaign finds."""
import itertools
import json
import os
import subprocess
import sys
import tempfile
import unittest

import jax
import jax.numpy as jnp
import numpy as np

from jax_target import noise, program, serving
from jax_target.fields import CUTS, FIELDS
from jax_target.operations import MANUAL, NAMES
from jax_target.ranks import Ranks, is_even
from shardfuzz.chains import gradient_of
from shardfuzz.worker import Refused
from target_cases import SHARDFUZZ, Program, known_cases, outcomes_of, place_of, run_text
from target_cases import complete as complete_case

CORPUS = "corpus/regress/jax"
WORKER = f"{sys.executable} -m jax_target"
SHAPES = [(4, 4), (6,), (2, 4, 4), (4, 6), (2, 4, 4, 4)]


def complete(operations, shape=(4, 4), **changes):
    """A case as the harness sends it."""
    case = complete_case(FIELDS, changes)
    for number, name in enumerate(operations, 1):
        case["op"][str(number)]["name"] = name
    case["shape"]["dims"] = len(shape)
    case["shape"].update({str(d): size for d, size in enumerate(shape)})
    return case


def setUpModule():
    serving.preload()
    jax.config.update("jax_num_cpu_devices", 8)


def as_they_are(name, array):
    return array


class Operations(unittest.TestCase):
    def test_nearly_all_can_be_planned(self):
        runs = set()
        for name, shape in itertools.product(NAMES, SHAPES):
            if name not in runs:
                try:
                    program.plan(complete([name], shape))
                    runs.add(name)
                except Refused:
                    pass
        self.assertGreaterEqual(len(runs), 410, sorted(set(NAMES) - runs))

    def test_a_reference_step_by_step_is_the_whole_chain(self):
        case = complete(["mm", "softmax", "cumsum"])
        case["op"]["3"]["wrap"] = "scan"
        found = dict(program.run_reference(case, as_they_are))
        x, steps = program.plan(case)
        given = program.last_gradients(case, steps[-1])[0]
        loss, back = jax.vjp(lambda x, m: jnp.stack([jnp.cumsum(row) for row in jax.nn.softmax(x @ m, 0)]), x, steps[0].operands["m"])
        np.testing.assert_allclose(found["s0/mb0/fwd/act/3.cumsum/0"], loss, rtol=1e-14)
        for name, gradient in zip((gradient_of(steps[0].operation), gradient_of(steps[0].operation, "m")), back(given)):
            np.testing.assert_allclose(found[name], gradient, rtol=1e-12, atol=1e-15)

    def test_a_case_in_which_equal_elements_are_picked_is_refused(self):
        case = complete(["concatenate.self", "~sort"])
        with self.assertRaisesRegex(Refused, "equal elements"):
            program.run_reference(case, as_they_are)


class Noise(unittest.TestCase):
    def test_a_perturbed_run_is_off_by_roundings(self):
        for operation, dtype in (("mm", "float32"), ("solve", "float64")):
            case = complete([operation], dtype=dtype)
            exact, drawn, again = (dict(program.run_reference(case, as_they_are, draw)) for draw in (None, noise.pool(1), noise.pool(1)))
            for name, array in exact.items():
                off = np.abs(drawn[name] - array).max() / np.abs(array).max()
                self.assertGreater(off, 0, name)
                self.assertLess(off, 1000 * np.finfo(dtype).eps, name)
                np.testing.assert_array_equal(drawn[name], again[name])

    def test_what_only_moves_is_exact(self):
        case = complete(["roll"], backward=False)
        exact, drawn = (dict(program.run_reference(case, as_they_are, draw)) for draw in (None, noise.pool(1)))
        np.testing.assert_array_equal(exact["s0/mb0/fwd/act/1.roll/0"], drawn["s0/mb0/fwd/act/1.roll/0"])


class OnDevices(unittest.TestCase):
    def test_arrays_are_whole_again_wherever_they_lie(self):
        for (tp, dp), devices in itertools.product(((2, 1), (3, 1), (2, 2), (4, 2)), ("in_order", "reversed", "odd_first")):
            ranks = Ranks(tp, dp, devices)
            for cuts, outer in itertools.product(itertools.product(CUTS[:3], repeat=1 if dp == 1 else 2), ("tp", "dp")):
                case = complete([], layout={"tp": tp, "dp": dp, "outer": outer})
                cuts, full, got = dict(zip(("tp", "dp"), cuts)), np.arange(96.0).reshape(8, 12), np.full((8, 12), np.nan)
                pieces = ranks.pieces(ranks.put(full, cuts, case))
                self.assertEqual(sorted(rank for rank, _, _ in pieces), list(range(tp * dp)))
                for _, local, place in pieces:
                    got[tuple(slice(runs[0][0], runs[0][0] + runs[0][1]) for runs in place.index)] = local
                np.testing.assert_array_equal(got, full)
                if is_even(case, cuts, full.shape) and cuts["tp"] != "R":
                    self.assertLess(pieces[0][1].size, full.size)


def softmax_of(name, x, **changes):
    return {"op": {"1": {"name": name}, "2": {"name": "softmax"}}, "layout": {"tp": 2, "dp": 2}, "x": {"tp": x, "dp": "S1"}, **changes}


SOUND = [softmax_of("mm", "S1"), softmax_of("by_hand.roll", "S0", backward=False),
         softmax_of("cumsum", "S0", shape={"0": 5, "1": 3}, jit={"partitioner": "gspmd"}),
         {"backward": False, "op": {"1": {"name": "~top_k", "k": 2, "wrap": "vmap", "place": {"tp": "S0"}}}, "layout": {"tp": 3}, "dtype": "float32"},
         # 32,768 partial sums in fp32 round by more than one in another order.
         {"dtype": "float32", "shape": {"dims": 4, "0": 16, "1": 16, "2": 16, "3": 8}, "backward": False, "op": {"1": {"name": "cumsum.flat"}}, "layout": {"tp": 4},
          "x": {"tp": "S0"}}]

# A mean over devices that is a sum.
PLANTED = """
import jax_target.ranks as ranks
ranks._manual["by_hand.mean"] = compile("lax.psum(jnp.mean(x, axis=d), ax)", "planted", "eval")
from jax_target.serving import serve
serve()
"""


class Found(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # A crash ends a set of processes, and the next one costs seconds.
        cls.known = {name: case for name, case in known_cases(CORPUS).items() if not case["expect"]["signature"].startswith("crash")}
        cls.seen = outcomes_of(WORKER, sound=SOUND, known=[case["framework"] | {"seed": case["seed"] % 1000001} for case in cls.known.values()])

    def test_known_bugs(self):
        self.assertGreaterEqual(len(self.known), 8)
        for (name, case), seen in zip(self.known.items(), self.seen["known"]):
            self.assertEqual(seen["verdict"], "FINDING", name)
            kind, module = place_of(case)
            self.assertRegex(seen["first"], rf"/{kind}/\d\.{module}[./:]", name)

    def test_right_operations_pass(self):
        for given, seen in zip(SOUND, self.seen["sound"]):
            self.assertEqual(seen["verdict"], "PASS", (given, seen))


class Planted(unittest.TestCase):
    def test_a_mistake_is_confirmed_on_processes_named_and_has_a_script(self):
        self.assertIn("by_hand.mean", MANUAL)
        with Program(PLANTED) as planted, tempfile.TemporaryDirectory() as folder:
            fixed = {"op.1.name": "by_hand.mean", "op.1.wrap": "none", "op.2.name": "none", "layout.tp": 2, "layout.dp": 1, "shape.dims": 2, "shape.0": 4, "shape.1": 4,
                     "backward": "false"}
            done = subprocess.run([SHARDFUZZ, "fuzz", "--target", "worker:" + planted.command, "--cases", "1", "--jobs", "1", "--shrink-budget", "5", "--out", folder, "--json",
                                   *itertools.chain.from_iterable(("--set", f"{path}={value}") for path, value in fixed.items())],
                                  capture_output=True, text=True, check=False)
            result = json.loads(done.stdout.splitlines()[-1])
            self.assertEqual([one["signature"] for one in result["by_signature"]], ["tolerance/act/by_hand-mean@tp"], done.stderr)
            self.assertIn(result["by_signature"][0]["diagnosis"]["class"], ("extra_reduction", "scale"))
            script = os.path.join(os.path.dirname(result["by_signature"][0]["min"]), "script.py")
            with open(script, encoding="utf-8") as file:
                text = file.read()
            shown = run_text(text.replace("lax.pmean", "lax.psum"))     # JAX itself has no such mistake
            self.assertEqual(shown.returncode, 1, shown.stderr)
            self.assertIn("sharded:", shown.stdout)


if __name__ == "__main__":
    unittest.main()
