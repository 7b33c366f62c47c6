"""Global names of modules and parameters: as in the plain model, whatever wraps it."""
from typing import Dict

import torch

WRAPPERS = ("_checkpoint_wrapped_module", "_fsdp_wrapped_module", "_orig_mod")
ROOT = "(model)"  # the model itself; no module can be called so


def unwrap(model: torch.nn.Module) -> torch.nn.Module:
    while isinstance(model, (torch.nn.parallel.DistributedDataParallel, torch.nn.DataParallel)):
        model = model.module
    return model


def plain_name(name: str) -> str:
    return ".".join(part for part in name.split(".") if part not in WRAPPERS)


def module_names(model: torch.nn.Module) -> Dict[str, torch.nn.Module]:
    """The modules by name, the model first. Of a wrapper and the wrapped, which have one name, the wrapped."""
    return {plain_name(name) or ROOT: module for name, module in unwrap(model).named_modules()}


def parameter_names(*parts: torch.nn.Module) -> Dict[str, torch.nn.Parameter]:
    """The parameters of a model, or of this rank's parts of one, by name; one that several modules share has its first name."""
    return {plain_name(name): parameter for part in parts for name, parameter in unwrap(part).named_parameters()}


def subject(name: str, number: int) -> str:
    """The name of the number-th tensor among a call's floating-point ones."""
    return f"{name}:{number}" if number else name


def tensor_name(step: int, microbatch: int, direction: str, kind: str, of: str, call: int) -> str:
    return f"s{step}/mb{microbatch}/{direction}/{kind}/{of}/{call}"
