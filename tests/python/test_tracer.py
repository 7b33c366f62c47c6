"""What a trace on one device holds: names, order, values; and bad use, which gives one line and leaves nothing half-written."""
import os
import resource
import tempfile
import unittest

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import models
import shardfuzz
import traces
import worlds


class Twice(nn.Module):
    """Calls one child twice, the second time with what is changed in place, and gives two tensors."""

    def __init__(self):
        super().__init__()
        self.linear, self.relu = nn.Linear(4, 4), nn.ReLU(inplace=True)

    def forward(self, x):
        y = self.relu(self.linear(x))
        return self.linear(y + 0), (y, torch.ones(2, dtype=torch.int64))


class Checkpointed(nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        self.first, self.second, self.reentrant = nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4)), reentrant

    def forward(self, x):
        return checkpoint(self.second, self.first(x), use_reentrant=self.reentrant)


def step(model, optimizer, *inputs):
    for x in inputs:
        out = model(x)
        (out if torch.is_tensor(out) else out[0] + out[1][0]).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def traced(rank, make, inputs, steps=1, **options):
    """Traces steps of a new model: (folder's about, tensors, gradients of the same without a tracer)."""
    torch.manual_seed(1)
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), 0.5)
    with tempfile.TemporaryDirectory() as folder:
        with shardfuzz.Tracer(folder, model, optimizer, **options):
            for _ in range(steps):
                step(model, optimizer, *inputs)
        about, tensors = traces.read(folder)
    torch.manual_seed(1)
    plain = make()
    for x in inputs:
        out = plain(x)
        (out if torch.is_tensor(out) else out[0] + out[1][0]).square().mean().backward()
    gradients = {name: parameter.grad for name, parameter in plain.named_parameters()}
    return about, {name: tensor.numpy() for name, tensor in tensors.items()}, {name: one.numpy() for name, one in gradients.items()}


def run(make, *inputs, **options):
    about, tensors, gradients = worlds.run(1, traced, make, inputs, options.pop("steps", 1))[0] if not options else \
        worlds.run(1, lambda rank: traced(rank, make, inputs, **options))[0]
    return about, {name: torch.from_numpy(one) for name, one in tensors.items()}, {name: torch.from_numpy(one) for name, one in gradients.items()}


class Contents(unittest.TestCase):
    def test_trace_of_a_module_called_twice_counts_calls_and_outputs(self):
        x = torch.randn(3, 4)
        about, tensors, gradients = run(Twice, x)
        self.assertEqual((about["format"], about["rank"], about["ranks"], about["mode"]), (1, 0, 1, "e2e"))
        forward = [name for name in tensors if "/act/" in name]
        self.assertEqual(forward, [f"s0/mb0/fwd/act/{rest}" for rest in ("linear/0", "relu/0", "linear/1", "(model)/0", "(model):1/0")])
        self.assertEqual([name for name in tensors if "/act_grad/" in name], ["s0/mb0/bwd/act_grad/linear/1", "s0/mb0/bwd/act_grad/relu/0"])
        before, after = tensors["s0/mb0/fwd/act/linear/0"], tensors["s0/mb0/fwd/act/relu/0"]
        self.assertTrue(torch.equal(before.relu(), after) and not torch.equal(before, after))
        for name, gradient in gradients.items():
            self.assertTrue(torch.equal(tensors[f"s0/mb0/step/main_grad/{name}/0"], gradient), name)
            delta = tensors[f"s0/mb0/step/param_delta/{name}/0"]
            torch.testing.assert_close(delta, -0.5 * gradient, rtol=1e-5, atol=1e-6)

    def test_trace_begins_with_parameters_and_ends_with_their_changes(self):
        _, tensors, _ = run(Twice, torch.randn(3, 4), steps=2)
        kinds = [tuple(name.split("/")[i] for i in (0, 2, 3)) for name in tensors]
        order = [one for i, one in enumerate(kinds) if i == 0 or kinds[i - 1] != one]
        self.assertEqual(order, [(s, *rest) for s in ("s0", "s1") for rest in (("step", "param"), ("fwd", "act"), ("bwd", "act_grad"), ("step", "main_grad"),
                                                                              ("step", "param_delta"))])
        changed = tensors["s0/mb0/step/param/linear.weight/0"] + tensors["s0/mb0/step/param_delta/linear.weight/0"]
        torch.testing.assert_close(tensors["s1/mb0/step/param/linear.weight/0"], changed, rtol=1e-6, atol=1e-7)

    def test_trace_counts_forward_passes_as_microbatches(self):
        _, tensors, _ = run(Twice, torch.randn(3, 4), torch.randn(3, 4))
        self.assertEqual({name.split("/")[1] for name in tensors if "/act/" in name}, {"mb0", "mb1"})
        self.assertEqual({name.split("/")[1] for name in tensors if "/main_grad/" in name}, {"mb0"})

    def test_trace_of_checkpointed_modules_tells_recomputation(self):
        for reentrant in (False, True):
            _, tensors, _ = run(lambda: Checkpointed(reentrant), torch.randn(3, 4))
            again, first = tensors["s0/mb0/recompute/act/second.1/0"], tensors["s0/mb0/fwd/act/second.1/0"]
            self.assertTrue(torch.equal(again, first))
            self.assertIn("s0/mb0/bwd/act_grad/second.1/0", tensors)

    def test_trace_of_bf16_keeps_its_type(self):
        def on_rank(rank):
            with tempfile.TemporaryDirectory() as folder:
                model = Twice().bfloat16()
                with shardfuzz.Tracer(folder, model, torch.optim.SGD(model.parameters(), 0.5)) as tracer:
                    step(model, tracer.optimizers[0], torch.randn(3, 4).bfloat16())
                    shardfuzz.scalar("grad_norm", 2.5)
                tensors = traces.read(folder)[1]
                return {str(tensor.dtype) for name, tensor in tensors.items() if "scalar" not in name}, tensors["s0/mb0/step/scalar/grad_norm/0"].tolist()
        self.assertEqual(worlds.run(1, on_rank), [({"torch.bfloat16"}, [2.5])])

    def test_parts_of_a_pipeline_count_their_own_microbatches_and_recompute_the_right_one(self):
        """Two forward passes, then their backward passes, first in, first out, as a pipeline's schedule has them."""
        def on_rank(rank):
            with tempfile.TemporaryDirectory() as folder:
                torch.manual_seed(1)
                whole = nn.ModuleDict({"head": Checkpointed(False), "tail": Twice()})
                parts = [nn.ModuleDict({name: one}) for name, one in whole.items()]
                for name, part in zip(whole, parts):
                    part.forward = whole[name].forward
                optimizer = torch.optim.SGD(whole.parameters(), 0.5)
                inputs = [torch.randn(3, 4), torch.randn(3, 4)]
                with shardfuzz.Tracer(folder, parts, optimizer):
                    outputs = [parts[0](x) for x in inputs]
                    given = [one.detach().requires_grad_() for one in outputs]
                    losses = [parts[1](x)[0].square().mean() for x in given]
                    for x, output, loss in zip(given, outputs, losses):
                        loss.backward()
                        output.backward(x.grad)
                    optimizer.step()
                tensors = traces.read(folder)[1]
            for mb in ("mb0", "mb1"):
                first, again = (tensors[f"s0/{mb}/{direction}/act/head.second.1/0"] for direction in ("fwd", "recompute"))
                self.assertTrue(torch.equal(first, again))
                self.assertIn(f"s0/{mb}/bwd/act_grad/tail.relu/0", tensors)
            self.assertFalse(any("(model)" in name for name in tensors))
        worlds.run(1, on_rank)

    def test_updates_that_no_torch_optimizer_makes(self):
        class Halves(shardfuzz.State):
            def value(self, name, parameter):
                return None if name == "bias" else parameter

            def gradient(self, name, parameter):
                return parameter.grad * 2

        def on_rank(rank):
            with tempfile.TemporaryDirectory() as folder:
                model, gradients = nn.Linear(4, 4), []
                with shardfuzz.Tracer(folder, model, (), state=Halves()) as tracer:
                    for _ in range(2):
                        model.zero_grad()
                        model(torch.ones(3, 4)).square().mean().backward()
                        gradients.append(model.weight.grad.clone())
                        with tracer.update(), torch.no_grad():
                            model.weight -= 0.5 * model.weight.grad
                tensors = traces.read(folder)[1]
            for number, gradient in enumerate(gradients):
                torch.testing.assert_close(tensors[f"s{number}/mb0/step/main_grad/weight/0"], gradient * 2)
                torch.testing.assert_close(tensors[f"s{number}/mb0/step/param_delta/weight/0"], gradient * -0.5)
            self.assertNotIn("s0/mb0/step/param/bias/0", tensors)
        worlds.run(1, on_rank)

    def test_a_trace_goes_on_with_another_model(self):
        def on_rank(rank):
            with tempfile.TemporaryDirectory() as folder:
                models_ = [nn.Linear(4, 4), nn.Linear(4, 4)]
                models_[1].load_state_dict(models_[0].state_dict())
                optimizers = [torch.optim.SGD(model.parameters(), 0.5) for model in models_]
                with shardfuzz.Tracer(folder, models_[0], optimizers[0]) as tracer:
                    step(models_[0], optimizers[0], torch.ones(3, 4))
                    models_[1].load_state_dict(models_[0].state_dict())
                    tracer.replace(models_[1], optimizers[1])
                    step(models_[1], optimizers[1], torch.ones(3, 4))
                tensors = traces.read(folder)[1]
            torch.testing.assert_close(tensors["s1/mb0/step/param/weight/0"], tensors["s0/mb0/step/param/weight/0"] + tensors["s0/mb0/step/param_delta/weight/0"])
            self.assertIn("s1/mb0/step/param_delta/weight/0", tensors)
        worlds.run(1, on_rank)

    def test_trace_with_skip_leaves_subjects_out(self):
        _, tensors, _ = run(Twice, torch.randn(3, 4), skip=("linear*",))
        self.assertEqual({name.split("/")[4] for name in tensors}, {"relu", "(model)", "(model):1"})


def failing(rank, folder, action):
    """The text of the error that an action on every rank ends with."""
    try:
        action(rank, folder)
    except shardfuzz.ShardfuzzError as error:
        return str(error)
    return None


def trace_tensor_parallel(rank, folder, **options):
    build, train_step, _ = models.build_parallel({"tp": 2})
    shardfuzz.trace(folder, build, train_step, **options)


def reference_of_unseeded(rank, folder):
    def build():
        model = nn.Linear(4, 4)
        with torch.no_grad():
            model.weight.copy_(torch.from_numpy(__import__("numpy").random.default_rng().random((4, 4))))
        return model, torch.optim.SGD(model.parameters(), 0.5)
    shardfuzz.reference(folder, build, lambda model, optimizer: step(model, optimizer, torch.ones(2, 4)))


def reference_of_a_line(folder, weight):
    """y = w x of two numbers: a sum of two has one order, so all E5 runs of it are the plain run again."""
    def build():
        model = nn.Linear(2, 1, bias=False)
        nn.init.constant_(model.weight, weight)
        return model, torch.optim.SGD(model.parameters(), 0.5)
    shardfuzz.reference(folder, build, lambda model, optimizer: step(model, optimizer, torch.full((1, 2), weight)), keep_draws=True)


def trace_small(folder):
    shardfuzz.trace(folder, models.build, models.train_step)


def trace_with_little_space(rank, folder):
    trace_small(folder)
    before = traces.read(folder)[0]
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
    try:
        trace_small(folder)
    finally:
        assert traces.read(folder)[0] == before and os.listdir(folder) == ["rank-00000.safetensors"], os.listdir(folder)


def places_that_fail_on_rank_1(rank, folder):
    def places(name, tensor):
        return {"index": [[[0, 999]]]} if rank == 1 and "embedding" in name and tensor.dim() == 2 else None
    trace_tensor_parallel(rank, folder, places=places)


class BadUse(unittest.TestCase):
    def errors(self, ranks, action):
        with tempfile.TemporaryDirectory() as folder:
            errors = worlds.run(ranks, failing, os.path.join(folder, "trace"), action)
            self.assertFalse(any("\n" in (error or "") for error in errors), errors)
            left = os.listdir(os.path.join(folder, "trace")) if os.path.isdir(os.path.join(folder, "trace")) else []
        return errors, left

    def test_trace_of_plain_tensors_on_ranks_asks_for_their_place(self):
        errors, left = self.errors(2, trace_tensor_parallel)
        self.assertEqual(left, [])
        for error in errors:
            self.assertRegex(error, r'^s0/mb0/\S+: a plain tensor on 2 ranks: say batch="same"')

    def test_trace_with_a_batch_that_is_no_group_says_so(self):
        with self.assertRaisesRegex(shardfuzz.ShardfuzzError, "^3 is no group of ranks: .* let it return"):
            shardfuzz.Tracer("x", nn.Linear(2, 2), torch.optim.SGD([nn.Parameter(torch.ones(1))]), batch=3)

    def test_trace_with_two_batches_or_no_optimizer_says_so(self):
        model = nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), 0.5)
        for built, batch, text in ((model, None, "^build\\(\\) gave Linear, want \\(model, optimizer\\)"), ((model, optimizer, [0]), [0], "say it in one place$")):
            with self.assertRaisesRegex(shardfuzz.ShardfuzzError, text):
                shardfuzz.trace("x", lambda: built, step, batch=batch)

    def test_trace_that_fails_on_one_rank_fails_on_all(self):
        errors, left = self.errors(2, places_that_fail_on_rank_1)
        self.assertEqual((left, [error is None for error in errors]), ([], [False, False]))

    def test_trace_without_space_keeps_the_earlier_one(self):
        errors, left = self.errors(1, trace_with_little_space)
        self.assertRegex(errors[0], "File too large$")
        self.assertEqual(left, ["rank-00000.safetensors"])

    def test_trace_into_a_file_says_so(self):
        with tempfile.NamedTemporaryFile() as file:
            self.assertRegex(worlds.run(1, failing, file.name, lambda rank, folder: trace_small(folder))[0], "File exists$|Not a directory$")

    def test_reference_with_another_start_in_each_build_says_so(self):
        errors, _ = self.errors(1, reference_of_unseeded)
        self.assertRegex(errors[0], r"^s0/mb0/step/param/weight/0: build\(\) gave another value in its second call")

    def test_reference_of_a_tiny_model_has_draws_that_differ(self):
        errors, left = self.errors(1, lambda rank, folder: reference_of_a_line(folder, 0.3))
        self.assertEqual((errors, sorted(left)), ([None], ["draws", "noise.safetensors", "rank-00000.safetensors"]))

    def test_reference_that_nothing_moves_says_so(self):
        errors, left = self.errors(1, lambda rank, folder: reference_of_a_line(folder, 0.0))
        self.assertRegex(errors[0], "^shardfuzz noise: .*/0-E3: has the same values as the reference")
        self.assertNotIn("noise.safetensors", left)

    def test_reference_without_program_says_so(self):
        def action(rank, folder):
            os.environ["SHARDFUZZ"] = "/nowhere/shardfuzz"
            shardfuzz.reference(folder, models.build, models.train_step)
        self.assertRegex(self.errors(1, action)[0][0], "^no program /nowhere/shardfuzz: set SHARDFUZZ")

    def test_reference_on_ranks_says_so(self):
        errors, _ = self.errors(2, lambda rank, folder: shardfuzz.reference(folder, models.build, models.train_step))
        self.assertRegex(errors[0], r"^reference\(\) runs on one device, not on 2 ranks")

    def test_tracer_without_an_optimizer_says_so(self):
        with self.assertRaisesRegex(shardfuzz.ShardfuzzError, "^NoneType has no step hooks"):
            shardfuzz.Tracer("x", nn.Linear(2, 2), None)

    def test_trace_again_with_fewer_ranks_leaves_none_of_the_old(self):
        with tempfile.TemporaryDirectory() as folder:
            worlds.run(2, lambda rank: trace_tensor_parallel(rank, folder, batch="same"))
            self.assertEqual(len(os.listdir(folder)), 2)
            worlds.run(1, lambda rank: trace_small(folder))
            self.assertEqual(os.listdir(folder), ["rank-00000.safetensors"])


if __name__ == "__main__":
    unittest.main()
