"""Traces a training step of NVIDIA's Megatron Core, in a script as it is, for `shardfuzz check`.

    shardfuzz.megatron.fill(model, optimizer)
    with shardfuzz.megatron.Tracer("parallel", model, optimizer):
        train_step(...)

model: what the script trains, a chunk or the list of chunks that get_model() gives. The names of modules say where tensors lie, so the script
says nothing of its layout. harness/docs/megatron.md has an example that runs. Megatron is imported when a name below is first used.
"""
from importlib import import_module

_HOMES = {"Tracer": "tracing", "fill": "tracing"}
__all__ = sorted(_HOMES)


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module 'shardfuzz.megatron' has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
