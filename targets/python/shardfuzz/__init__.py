"""shardfuzz's tracer for PyTorch: traces of training steps, on one device and on a parallel layout, for `shardfuzz check`.

    shardfuzz.reference("ref", build, train_step)                       # one device: trace, perturbed runs, noise levels
    shardfuzz.trace("tp2", build_parallel, train_step, batch="same")    # every rank of the parallel run
    print(shardfuzz.check("ref", "tp2"))                                # the verdict; `shardfuzz check ref tp2` prints the same

build() gives (model, optimizer), train_step(model, optimizer) does forward, backward and optimizer.step(). Tracer is the same for a loop that
exists; parametrize_layouts makes pytest tests of both runs. harness/docs/pytorch.md has an example that runs; targets/trace_format.md is the format. torch is imported when a name below is first used.
"""
from importlib import import_module

_HOMES = {"LayoutError": "testing", "RankError": "ranks", "Result": "verdict", "ShardfuzzError": "errors", "State": "tracer", "Tracer": "tracer",
          "check": "verdict", "compare": "layouts", "cut": "places", "fill": "parameters", "gradients": "tracer", "microbatch": "tracer",
          "parametrize_layouts": "testing", "reference": "runs", "scalar": "tracer", "summed": "places", "trace": "runs", "zigzag": "places"}
__all__ = sorted(_HOMES)


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module 'shardfuzz' has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
