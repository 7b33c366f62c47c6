"""Modules of the harness in place of those that need Transformer Engine or Apex."""
import copy

import torch
import torch.nn.functional as functional
from megatron.core import parallel_state, tensor_parallel
from megatron.core.ssm.gated_delta_net import GatedDeltaNet, GatedDeltaNetSubmodules
from megatron.core.tensor_parallel.layers import ColumnParallelLinear, RowParallelLinear
from megatron.core.transformer.dot_product_attention import DotProductAttention
from megatron.core.transformer.spec_utils import ModuleSpec


class Norm(torch.nn.Module):
    """LayerNorm or RMSNorm over the last dimension. The package's own WrappedTorchNorm refuses sequence parallelism, and its others need a GPU.

    With an fp32 residual stream the output has the parameters' type.

    Marks its parameters as the package's norms do: under sequence parallelism each rank has the gradient of its own tokens."""

    def __init__(self, config, hidden_size, eps=1e-5, **options):
        super().__init__()
        self.zero_centered, self.eps, self.shape = config.layernorm_zero_centered_gamma, eps, (hidden_size,)
        self.weight = torch.nn.Parameter(torch.ones(hidden_size, dtype=config.params_dtype))
        self.weight.sequence_parallel = config.sequence_parallel
        self.bias = None
        if config.normalization == "LayerNorm":
            self.bias = torch.nn.Parameter(torch.zeros(hidden_size, dtype=config.params_dtype))
            self.bias.sequence_parallel = config.sequence_parallel

    def forward(self, x):
        weight = (self.weight + 1 if self.zero_centered else self.weight).to(x.dtype)
        if self.bias is not None:
            return functional.layer_norm(x, self.shape, weight, self.bias.to(x.dtype), self.eps).to(self.weight.dtype)
        return functional.rms_norm(x, self.shape, weight, self.eps).to(self.weight.dtype)


def use_norm():
    """Puts Norm where the package's layer specifications look for a norm."""
    from megatron.core.models import backends
    from megatron.core.models.gpt import gpt_layer_specs
    from megatron.core.transformer import transformer_block
    transformer_block.LayerNormImpl = Norm
    for module in (backends, gpt_layer_specs):
        module.LNImpl = module.WrappedTorchNorm = Norm


class Attention(DotProductAttention):
    """The package's attention with two additions: values of another width than queries (MLA), and context parallelism.

    Under cp keys and values [s / cp, b, heads, dim] are gathered and put in order; their gradients are reduce-scattered. The mask covers
    whole sequences, of which the rank's rows are taken."""

    def __init__(self, config, *args, k_channels=None, v_channels=None, **options):
        size, config.context_parallel_size = config.context_parallel_size, 1
        try:
            super().__init__(config, *args, **options)
        finally:
            config.context_parallel_size = size
        if v_channels:
            self.hidden_size_per_partition = v_channels * self.num_attention_heads_per_partition
        self.parts = size

    def forward(self, query, key, value, attention_mask, *args, **options):
        if self.parts > 1:
            group = parallel_state.get_context_parallel_group()
            chunks = 2 * self.parts
            order = [chunk for rank in range(self.parts) for chunk in (rank, chunks - 1 - rank)]
            key, value = (self._gather(tensor, group, order) for tensor in (key, value))
            rows = torch.arange(key.shape[0], device=key.device).chunk(chunks)
            rows = torch.cat([rows[group.rank()], rows[chunks - 1 - group.rank()]])
            attention_mask = attention_mask[..., rows, :]
        return super().forward(query, key, value, attention_mask, *args, **options)

    @staticmethod
    def _gather(tensor, group, order):
        gathered = tensor_parallel.gather_from_sequence_parallel_region(tensor.contiguous(), tensor_parallel_output_grad=True, group=group)
        pieces = gathered.chunk(len(order), 0)
        return torch.cat([pieces[order.index(i)] for i in range(len(order))], 0)


def with_linear_attention(layer):
    """A layer's specification with GatedDeltaNet in place of attention; the package has one for Transformer Engine alone, with the same parts."""
    layer = copy.deepcopy(layer)
    layer.submodules.self_attention = ModuleSpec(
        module=GatedDeltaNet,
        submodules=GatedDeltaNetSubmodules(in_proj=ColumnParallelLinear, out_norm=Norm, out_proj=RowParallelLinear))
    return layer
