"""Stand-alone programs for findings of training targets (training.py): the target's own program, a case, and a comparison with one device.

A target's program is a module, or several of one package, that import torch and their framework alone. They have

    make(case, mesh, fill) -> (model, optimizer, step)

mesh(**sizes) gives a DeviceMesh; None: on one device. make calls fill(model) on the whole model, before anything is cut. step(number, trace) is as in
training.Training. Where the framework keeps parameters and gradients elsewhere, the program has value(name, parameter) and
gradient(name, parameter), as tracer.State has them, which hold on one device too. Where some ranks may train without the others, it has join_first(ranks),
which starts the world anew with that many ranks.
"""
import inspect
import re

_HEAD = '''"""Found by shardfuzz: {first} of {framework} on {on} is not what one device gives.

Run it with python: it needs {framework} {version} and torch alone, and starts {on} itself. Exit code 1: something is wrong.
"""
import contextlib, os, sys
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

CASE = {case}
FIRST, RANKS, STEPS = {first!r}, {ranks}, {steps}


# --- the program ---
'''

_TAIL = '''

# --- the comparison ---
class Trace:
    """Keeps losses, gradients and changes of parameters, whole, by step."""

    def __init__(self, model, optimizer):
        self.step, self.seen, self.rounding = 0, {{}}, {{}}
        self.replace(model, optimizer)

    def replace(self, model, optimizer):
        self.parts, self.taken = model if isinstance(model, (list, tuple)) else [model], False
        self.before = dict(self.values())
        for one in optimizer if isinstance(optimizer, (list, tuple)) else [optimizer]:
            one.register_step_pre_hook(lambda *_: self.gradients())

    def named(self):
        for part in self.parts:
            for name, parameter in part.named_parameters():
                yield name.replace("module.", "").replace("_checkpoint_wrapped_module.", ""), parameter

    def values(self):
        for name, parameter in self.named():
            now = value(name, parameter) if "value" in globals() else parameter
            if now is not None:
                yield name, (now.full_tensor() if hasattr(now, "full_tensor") else now).detach().clone()

    def add(self, what, name, tensor, rounding=0.0):
        tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
        full_name = f"step {{self.step}}: {{what}} of {{name}}"
        self.seen[full_name], self.rounding[full_name] = tensor.detach().double().clone(), float(rounding)

    def microbatch(self, number):
        pass

    def gradients(self):
        if not self.taken:
            for name, parameter in self.named():
                found = gradient(name, parameter) if "gradient" in globals() else parameter.grad
                if found is not None:
                    self.add("gradient", name, found)
        self.taken = True

    def scalar(self, name, number):
        if name != "loss":  # which is of this rank's rows
            self.add("value", name, torch.as_tensor(number).reshape(1))

    @contextlib.contextmanager
    def update(self):
        self.gradients()
        yield

    def end_step(self):
        for name, now in self.values():
            self.add("parameter after the update", name, now)
            if name in self.before:
                self.add("change", name, now.double() - self.before[name].double(), 4 * torch.finfo(now.dtype).eps * now.double().norm())
            self.before[name] = now
        self.step, self.taken = self.step + 1, False


def fill(model):
    for number, (name, parameter) in enumerate(model.named_parameters()):
        generator = torch.Generator().manual_seed(number)
        noise = torch.randn(parameter.shape, generator=generator)
        with torch.no_grad():
            parameter.copy_(noise * 0.25 if parameter.dim() > 1 else noise * 0.125 + (not name.endswith("bias")))


def train(mesh):
    model, optimizer, step = make(CASE, mesh, fill)
    trace = Trace(model, optimizer)
    for number in range(STEPS):
        torch.manual_seed(CASE.get("seed", 0) + 1 + number)
        step(number, trace)
        trace.end_step()
    return trace.seen, trace.rounding


def run(rank):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(20000 + os.getppid() % 12000), RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(RANKS), GLOO_SOCKET_IFNAME="lo")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    from torch.distributed.device_mesh import init_device_mesh
    want, rounding = train(None)
    got, _ = train(lambda **sizes: init_device_mesh("cpu", tuple(sizes.values()), mesh_dim_names=tuple(sizes)))
    if "join_first" in globals():
        join_first(RANKS)
    wrong, subject = 0, FIRST.split("/")[-2] if "/" in FIRST else ""
    for other in range(RANKS):
        dist.barrier()
        for name, value in sorted(got.items(), key=lambda one: subject not in one[0]) if other == rank else ():
            right = want.get(name)
            if right is None or right.shape != value.shape:
                continue
            kind = name.split(" of ")[0]
            largest = max(one.norm() for other_name, one in want.items() if other_name.startswith(kind))
            error = (value - right).norm()
            if not error < {tolerance} * right.norm() + 1e-6 * largest + rounding[name]:
                wrong += 1
                if wrong <= 4:
                    share = 100 * error / right.norm().clamp(min=1e-30)
                    print(f"rank {{rank}}, {{name}}: off by {{share:.1f}} %\\n  got  {{value.flatten()[:6].tolist()}}\\n  want {{right.flatten()[:6].tolist()}}", flush=True)
    dist.barrier()
    os._exit(1 if wrong else 0)


if __name__ == "__main__":
    context = mp.get_context("spawn" if torch.cuda.is_available() else "fork")  # a fork need not import everything again
    processes = [context.Process(target=run, args=(rank,)) for rank in range(RANKS)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    codes = [process.exitcode for process in processes]
    print("exit codes of the ranks:", codes)
    sys.exit(0 if not any(codes) else 1)
'''


def compose(program, framework: str, version: str, case: dict, first: str, ranks: int, steps: int) -> str:
    """The text of a script. program: the module; or a list of modules, each behind those that it imports names from. first: name of the first wrong
    tensor, or empty."""
    modules = program if isinstance(program, list) else [program]
    source = "\n\n".join(re.sub(r"^from \.\w+ import .*\n", "", inspect.getsource(one), flags=re.MULTILINE) for one in modules)
    rounded = re.search(r"'(bf16|fp16|bfloat16|float16)'", repr(case))     # each sum of a layer rounds to that type
    values = {"tolerance": 0.04 if rounded else 1e-3, "framework": framework, "version": version, "case": repr(case), "first": first or "a run",
              "ranks": ranks, "on": f"{ranks} rank{'s'[:ranks > 1]}", "steps": steps}
    return _HEAD.format(**values) + source + _TAIL.format(**values)
