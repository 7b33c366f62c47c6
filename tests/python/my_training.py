"""A training step as shardfuzz.compare and its pytest plugin take it, with mistakes that a test can choose by function."""
import functools
import os
import time

import torch

import models
import shardfuzz


def build(mesh, fault=None):
    """fault: None, or a mistake of models.tensor_parallel; "seed": each rank fills its model with another seed."""
    model = models.Transformer()
    if mesh is not None and mesh["tp"].size() > 1:
        models.tensor_parallel(model, mesh["tp"], False, fault)
    shardfuzz.fill(model, mesh.get_rank() if mesh is not None and fault == "seed" else 0)
    return model, models.optimizer_of(model, "sgd")


def train_step(model, optimizer, mesh):
    """Each data-parallel rank takes its rows; gradients are averaged by hand."""
    group = None if mesh is None or mesh.mesh_dim_names[0] != "dp" else mesh["dp"]
    tokens, labels = (models.rows(one, group) for one in models.data())
    loss = torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), labels.flatten())
    loss.backward()
    for parameter in model.parameters() if group is not None else ():
        gradient = parameter.grad.to_local() if hasattr(parameter.grad, "to_local") else parameter.grad
        torch.distributed.all_reduce(gradient, group=group.get_group())
        gradient /= group.size()
    optimizer.step()
    return loss


def partial_output(mesh):
    return build(mesh, "partial-output")


other_seeds = functools.partial(build, fault="seed")


def raising_step(model, optimizer, mesh):
    if mesh is not None and mesh.get_rank() == 1:
        raise ValueError("no data on this rank")
    return train_step(model, optimizer, mesh)


def dying_step(model, optimizer, mesh):
    if mesh is not None and mesh.get_rank() == 1:
        os._exit(7)
    return train_step(model, optimizer, None)


def hanging_step(model, optimizer, mesh):
    if mesh is not None:
        time.sleep(600)
    return train_step(model, optimizer, mesh)
