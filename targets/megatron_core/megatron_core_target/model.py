"""From a case to the package's own objects: groups of ranks, configuration, model chunks, DistributedDataParallel, optimizer."""
import dataclasses

import torch
from megatron.core import parallel_state
from megatron.core.activations import quick_gelu, squared_relu
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
from megatron.core.models.gpt.experimental_attention_variant_module_specs import get_linear_attention_pattern
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec, get_gpt_mtp_block_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
from megatron.core.transformer.module import Float16Module
from megatron.core.transformer.moe.moe_utils import MoEAuxLossAutoScaler, get_moe_layer_wise_logging_tracker
from megatron.core.transformer.multi_token_prediction import MTPLossAutoScaler, MTPLossLoggingHelper
from megatron.core.transformer.transformer_config import MLATransformerConfig, TransformerConfig
from megatron.core.transformer.transformer_layer import get_transformer_layer_offset
from shardfuzz import devices
from shardfuzz.megatron.names import Names, parameter_place

from . import standins
from .fields import GPT, LAYOUT, OF_STAGES
from .parameters import fill

ACTIVATIONS = {"squared_relu": squared_relu, "quick_gelu": quick_gelu, "gelu": torch.nn.functional.gelu, "silu": torch.nn.functional.silu, "relu": torch.nn.functional.relu}

# What a CPU cannot do, nor a GPU without Transformer Engine and Apex but for ON_GPU, and the loss of precision that nothing asked for.
FIXED = dict(use_cpu_initialization=True, perform_initialization=True, attention_dropout=0.0, hidden_dropout=0.0, bias_dropout_fusion=False,
             bias_activation_fusion=False, masked_softmax_fusion=False, persist_layer_norm=False, gradient_accumulation_fusion=False,
             apply_rope_fusion=False, deallocate_pipeline_outputs=False, moe_grouped_gemm=False)
ON_GPU = dict(use_cpu_initialization=False, bias_dropout_fusion=True)
TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def initialize(layout):
    """Makes the package's groups for a layout, and drops those of an earlier layout."""
    forget()
    n = layout.n
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=n["tp"], pipeline_model_parallel_size=n["pp"], context_parallel_size=n["cp"],
        virtual_pipeline_model_parallel_size=n["vpp"] if n["vpp"] > 1 else None, expert_model_parallel_size=n["ep"],
        expert_tensor_parallel_size=n["etp"], create_gloo_process_groups=False)
    _reset_random_state()


def _reset_random_state():
    model_parallel_cuda_manual_seed(1, force_reset_rng=True)
    torch.manual_seed(1)


def forget():
    """Drops all that the package keeps outside of its objects: groups, buffers, random states, and what losses left in classes."""
    forget_losses()
    if parallel_state.model_parallel_is_initialized():
        parallel_state.destroy_model_parallel()


def forget_losses():
    """Drops what auxiliary and MTP losses keep in classes: sums for a log, and scales."""
    get_moe_layer_wise_logging_tracker().clear()
    MoEAuxLossAutoScaler.main_loss_backward_scale = None
    MTPLossAutoScaler.main_loss_backward_scale = torch.tensor(1.0)
    MTPLossLoggingHelper.tracker = {}


def make_config(case, layout):
    """The package's configuration of a case; its own checks run here (AssertionError, ValueError)."""
    fields = dict(case["model"])
    fields["activation_func"] = ACTIVATIONS[fields["activation_func"]]
    kind = MLATransformerConfig if fields["multi_latent_attention"] else TransformerConfig
    known = {field.name for field in dataclasses.fields(kind)}
    fields = {key: value for key, value in fields.items() if key in known}
    n, stored = layout.n, TYPES[case["precision"]]
    fields.update(_fixed(fields), params_dtype=stored, pipeline_dtype=stored, bf16=case["precision"] == "bf16",
                  tensor_model_parallel_size=n["tp"], pipeline_model_parallel_size=n["pp"], context_parallel_size=n["cp"],
                  expert_model_parallel_size=n["ep"], expert_tensor_parallel_size=n["etp"], sequence_parallel=layout.sp,
                  calculate_per_token_loss=case["loss"] == "per_token")
    if n["vpp"] > 1:
        # With pp 2 batched point-to-point calls pair up wrongly in the interleaved schedule; the package does not check.
        fields.update(virtual_pipeline_model_parallel_size=n["vpp"], overlap_p2p_comm=True, batch_p2p_comm=False)
    if n["pp"] == 1:
        fields.update({key: LAYOUT[f"model.{key}"][0] for key in OF_STAGES})
    if n["vpp"] == 1:
        fields.update(microbatch_group_size_per_vp_stage=None, overlap_p2p_comm_warmup_flush=False)
    if not fields["linear_attention_freq"] and fields["experimental_attention_variant"]:
        fields["linear_attention_freq"] = 2
    return kind(**in_full(fields))


def _fixed(fields):
    """What no case says. On a GPU an activation is fused where the package's checks admit it."""
    if not devices.on_cuda():
        return FIXED
    gated, activation = fields["gated_linear_unit"], fields["activation_func"]
    swiglu = gated and activation is ACTIVATIONS["silu"]
    gelu = activation is ACTIVATIONS["gelu"] and (gated or fields["add_bias_linear"]) and not fields["num_moe_experts"]
    return {**FIXED, **ON_GPU, "bias_activation_fusion": swiglu or gelu}


def in_full(fields):
    """Short forms of a case written out: a window of keys before the query, one module to recompute, full recomputation by layers."""
    if isinstance(fields["window_size"], int):
        fields["window_size"] = (fields["window_size"], 0)
    if isinstance(fields["recompute_modules"], str):
        fields["recompute_modules"] = [fields["recompute_modules"]]
    if fields["recompute_granularity"] == "full":
        fields["recompute_method"] = fields["recompute_method"] or "uniform"
        fields["recompute_num_layers"] = fields["recompute_num_layers"] or 1
    return fields


def _layer_specification(config, stage):
    block = get_gpt_decoder_block_spec(config, use_transformer_engine=False, normalization=config.normalization, qk_l2_norm=config.qk_l2_norm, vp_stage=stage)
    if config.context_parallel_size > 1 or config.multi_latent_attention:
        for layer in block.layer_specs:
            layer.submodules.self_attention.submodules.core_attention = standins.Attention
    if config.experimental_attention_variant:
        first = get_transformer_layer_offset(config, vp_stage=stage)
        linear = get_linear_attention_pattern(config)[first:]
        block.layer_specs = [standins.with_linear_attention(layer) if chosen else layer for layer, chosen in zip(block.layer_specs, linear)]
    return block


def _chunk(case, config, stage):
    """The stage-th model chunk of this rank (stage: None without vpp)."""
    if stage is not None:
        parallel_state.set_virtual_pipeline_model_parallel_rank(stage)
    block = _layer_specification(config, stage)
    depths = get_gpt_mtp_block_spec(config, block, use_transformer_engine=False, vp_stage=stage) if config.mtp_num_layers else None
    gpt = dict(case["model"])
    model = GPTModel(
        config=config, transformer_layer_spec=block, max_sequence_length=case["sequence_length"], mtp_block_spec=depths, vp_stage=stage,
        pre_process=parallel_state.is_pipeline_first_stage(ignore_virtual=False, vp_stage=stage),
        post_process=parallel_state.is_pipeline_last_stage(ignore_virtual=False, vp_stage=stage), **{key: gpt[key] for key in GPT})
    return model.to(devices.device())


class Model:
    """All that one rank holds: `chunks` (GPTModel), `wrapped` (DistributedDataParallel), `optimizer`, `parameters`.

    parameters: (global name, parameter, its place) in the order of the chunks, filled from the case's seed."""

    def __init__(self, case, layout):
        self.case, self.layout = case, layout
        initialize(layout)
        self.config = make_config(case, layout)
        stages = range(layout.n["vpp"]) if layout.n["vpp"] > 1 else (None,)
        self.chunks = [_chunk(case, self.config, stage) for stage in stages]
        self.names = [Names(chunk, self.config, layout) for chunk in self.chunks]
        self.parameters = [(name, parameter, parameter_place(name, parameter.shape, self.config, layout))
                           for chunk, names in zip(self.chunks, self.names)
                           for name, parameter in ((names.of(local), parameter) for local, parameter in chunk.named_parameters())]
        for name, parameter, place in self.parameters:
            fill(parameter, name, place, case["seed"], self.config.layernorm_zero_centered_gamma)
        self.wrapped = self._wrap()
        self.optimizer = self._make_optimizer()
        self.start = None
        if layout.ranks == 1 or case["mode"] == "isolated":
            self.start = [(tensor, tensor.detach().clone()) for chunk in self.chunks for tensor in (*chunk.parameters(), *chunk.buffers())]

    def reset(self):
        """As it was made. On one device alone: there nothing of the optimizer's is shared out over ranks."""
        forget_losses()
        _reset_random_state()
        for optimizer in self._optimizers():
            optimizer.optimizer.state.clear()
        self.reload()

    def reload(self):
        """Parameters and buffers as they were made, the optimizer's copies of them too; what it remembers of former steps stays."""
        with torch.no_grad():
            for tensor, value in self.start:
                tensor.copy_(value)
        for optimizer in self._optimizers():
            optimizer.reload_model_params()

    def _optimizers(self):
        return getattr(self.optimizer, "chained_optimizers", [self.optimizer])

    def _wrap(self):
        flags = self.layout.flags
        config = DistributedDataParallelConfig(
            grad_reduce_in_fp32=True, overlap_grad_reduce=flags["overlap_grad_reduce"],
            use_distributed_optimizer=flags["distributed_optimizer"], bucket_size=flags["bucket_size"] or None,
            pad_buckets_for_high_nccl_busbw=flags["pad_buckets_for_high_nccl_busbw"])
        chunks = [Float16Module(self.config, chunk) for chunk in self.chunks] if self.config.bf16 else self.chunks
        wrapped = [DistributedDataParallel(self.config, config, chunk, disable_bucketing=i > 0) for i, chunk in enumerate(chunks)]
        if flags["overlap_grad_reduce"]:
            self.config.no_sync_func = [chunk.no_sync for chunk in wrapped] if len(wrapped) > 1 else wrapped[0].no_sync
        self.config.finalize_model_grads_func = finalize_model_grads
        return wrapped

    def _make_optimizer(self):
        fields = self.case["optimizer"]
        config = OptimizerConfig(
            optimizer=fields["name"], adam_eps=fields["eps"], **{key: value for key, value in fields.items() if key not in ("name", "eps")}, params_dtype=self.config.params_dtype, bf16=self.config.bf16,
            use_distributed_optimizer=self.layout.flags["distributed_optimizer"])
        return get_megatron_optimizer(config, self.wrapped, use_gloo_process_groups=False)
