"""Parameters and gradients as DeepSpeed keeps them, whole."""
import types

import torch

def is_matrix(parameter):
    return len(getattr(parameter, "ds_shape", parameter.shape)) > 1


# Of the running case. engine: none on one device. losses: of a pipeline's microbatches. first_calls: how often earlier stages call a layer of this one.
# all_ranks: this rank's number and the store of the world of all ranks, kept once a smaller world has taken its place. worlds: how many have
state = types.SimpleNamespace(engine=None, safe=False, losses=[], first_calls={}, all_ranks=None, worlds=0)


def value(name, parameter):
    """The parameter, whole: its master weight where the model has less precision. Every rank calls it."""
    if state.engine is None:
        return parameter
    import deepspeed
    from deepspeed.utils import safe_get_full_fp32_param
    if parameter.dtype != torch.float32 and parameter.requires_grad:
        optimizer = state.engine.optimizer
        if in_buffers(parameter):
            return from_buffers(parameter, lambda group: optimizer.single_partition_of_fp32_groups[group])
        for low, high in zip(getattr(optimizer, "fp16_groups", []), getattr(optimizer, "fp32_groups", [])):
            for one, master in zip(low, high) if isinstance(low, list) else ():
                if one is parameter:
                    return master
        return safe_get_full_fp32_param(parameter)
    if not hasattr(parameter, "ds_id"):
        return parameter.float()
    with deepspeed.zero.GatheredParameters([parameter]):
        return parameter.detach().float().clone()


def gradient(name, parameter):
    """The parameter's gradient, whole, averaged and not scaled. Every rank calls it."""
    if state.engine is None or not parameter.requires_grad:
        return parameter.grad
    from deepspeed.utils import safe_get_full_grad
    optimizer = state.engine.optimizer
    full = from_buffers(parameter, gradients_of) if in_buffers(parameter) else safe_get_full_grad(parameter)
    return full if full is None else full.float() / getattr(optimizer, "loss_scale", 1)


def in_buffers(parameter):
    """Whether stage 1 or 2 keeps it in flat buffers, where safe_get_* look in the wrong place if a setting reorders them."""
    return not state.safe and hasattr(parameter, "_hp_mapping") and hasattr(state.engine.optimizer, "averaged_gradients")


def gradients_of(group):
    optimizer = state.engine.optimizer
    if optimizer.cpu_offload:
        return optimizer.single_partition_of_fp32_groups[group].grad
    return torch.cat([one.flatten().float() for one in optimizer.averaged_gradients[group]])


def from_buffers(parameter, partition_of):
    """The parameter's part of a flat buffer that the ranks have in equal partitions. partition_of(group): this rank's."""
    optimizer = state.engine.optimizer
    group = next(i for i, group in enumerate(optimizer.bit16_groups) if any(one is parameter for one in group))
    flat, whole = optimizer.bit16_groups_flat[group], torch.zeros(parameter.numel())
    ranks = optimizer.real_dp_process_group[group]
    size = flat.numel() // torch.distributed.get_world_size(ranks)
    begin = (parameter.data_ptr() - flat.data_ptr()) // flat.element_size() - size * torch.distributed.get_rank(ranks)
    first, last = max(begin, 0), min(begin + parameter.numel(), size)
    if first < last:
        whole[first - begin:last - begin] = partition_of(group)[first:last].float()
    torch.distributed.all_reduce(whole, group=ranks)
    return whole.view(parameter.shape)
