"""The fields of the package's configuration that a case does not draw under their own names, each with the reason. fields.py has the others.

tests/megatron/test_fields.py compares both files with the package. If a checkout has a field that neither file lists, the campaign names it when it starts.
"""
import dataclasses
import inspect

from .fields import CHOICES

TE = "needs Transformer Engine"
CUDA = "needs CUDA"
GRAPHS = "belongs to CUDA graphs, which need CUDA"
USERBUFFERS = "overlaps Transformer Engine's communication with its products"
FP8, FP4 = "fp8 needs Transformer Engine", "fp4 needs Transformer Engine"
OFFLOADING = "moves activations between GPU and host"
FUSED = "a fused kernel: needs CUDA"
OTHER_MODEL = "belongs to a model that is no GPTModel"
INFERENCE = "belongs to inference, which trains nothing"
FSDP = "belongs to Megatron's FSDP, which needs CUDA"
MUON = "Muon needs the package emerging_optimizers"
SCALING = "belongs to fp16 and its loss scaling: cases are fp32 or bf16"
PRECISION = "follows the case's precision"
CODE = "a function or an object that the harness gives"
INITIAL = "initial values: the harness fills every parameter"
DEEPEP = "belongs to DeepEP and HybridEP, which need CUDA"
LOG = "changes what is logged or timed, and no tensor"
HYBRID_CP = "belongs to hierarchical context parallelism, which needs Transformer Engine's attention"
KITCHEN = "needs the package nvidia_kitchen"
SPARSE = "belongs to sparse attention (dsa), which has no CPU path"
RANDOM = "draws random numbers, and a rank draws others than one device does"
OLD = "an old name: the package warns or raises"
UNREAD = "nothing in the package reads it"
OFFLOADED_STEP = "moves the optimizer's step from the GPU to the host"
WIDE_COPIES = "a type of the precision-aware optimizer, which needs Transformer Engine"
OVERLAPPED_GATHER = "gathers parameters in the next forward pass, so a rank does not hold them when the step ends"


def drawn(path):
    return f"drawn as {path}"


TRANSFORMER = {
    "tensor_model_parallel_size": drawn("layout.tp"),
    "pipeline_model_parallel_size": drawn("layout.pp"),
    "virtual_pipeline_model_parallel_size": drawn("layout.vpp"),
    "context_parallel_size": drawn("layout.cp"),
    "expert_model_parallel_size": drawn("layout.ep"),
    "expert_tensor_parallel_size": drawn("layout.etp"),
    "sequence_parallel": drawn("layout.sp"),
    "calculate_per_token_loss": drawn("loss"),
    "bf16": drawn("precision"),
    "params_dtype": PRECISION,
    "pipeline_dtype": PRECISION,
    "fp16": SCALING,
    "enable_autocast": "autocast to CUDA's types alone",
    "autocast_dtype": "belongs to enable_autocast",
    "overlap_p2p_comm": "on with vpp, where batched calls pair up wrongly on two stages; other schedules refuse it",
    "pipeline_model_parallel_comm_backend": "UCC or NCCL: the ranks have Gloo",
    "use_ring_exchange_p2p": "needs a PyTorch built with ring_exchange",
    "batch_p2p_sync": "waits for the GPU",
    "deallocate_pipeline_outputs": "frees tensors that the recorder still has to read",
    "num_microbatches_with_partial_activation_checkpoints": "GPTModel's forward pass does not take what the schedule then tells it",
    "gradient_accumulation_fusion": "needs Apex or Transformer Engine",
    "defer_embedding_wgrad_compute": "needs gradient_accumulation_fusion",
    "wgrad_deferral_limit": "belongs to defer_embedding_wgrad_compute",
    "mtp_standalone": "MTP layers in a stage of their own come with a written layout that has them",
    "overlap_moe_expert_parallel_comm": "needs CUDA's streams",
    "delay_wgrad_compute": TE,
    "ep_overlap_early_attn_memory_release": "belongs to overlap_moe_expert_parallel_comm",
    "hierarchical_context_parallel_sizes": HYBRID_CP,
    "max_seqlen_per_dp_cp_rank": HYBRID_CP,
    "hybrid_context_parallel": HYBRID_CP,
    "cp_comm_type": "belongs to Transformer Engine's attention; the harness has one of its own under cp",
    "async_tensor_model_parallel_allreduce": "orders a GPU's kernels; the gradient is the same",
    "deterministic_mode": "the harness asks torch for deterministic algorithms itself",
    "use_te_rng_tracker": TE,
    "tp_comm_overlap": USERBUFFERS,
    "tp_comm_bulk_wgrad": USERBUFFERS,
    "tp_comm_bulk_dgrad": USERBUFFERS,
    "tp_comm_overlap_ag": USERBUFFERS,
    "tp_comm_overlap_rs": USERBUFFERS,
    "tp_comm_overlap_rs_dgrad": USERBUFFERS,
    "tp_comm_split_ag": USERBUFFERS,
    "tp_comm_atomic_ag": USERBUFFERS,
    "tp_comm_split_rs": USERBUFFERS,
    "tp_comm_atomic_rs": USERBUFFERS,
    "tp_comm_overlap_disable_qkv": USERBUFFERS,
    "tp_comm_overlap_disable_fc1": USERBUFFERS,
    "tp_comm_bootstrap_backend": USERBUFFERS,
    "cross_entropy_fusion_impl": "its other choice needs Transformer Engine",
    "cpu_offloading": OFFLOADING,
    "cpu_offloading_num_layers": OFFLOADING,
    "_cpu_offloading_context": OFFLOADING,
    "cpu_offloading_activations": OFFLOADING,
    "cpu_offloading_weights": OFFLOADING,
    "cpu_offloading_double_buffering": OFFLOADING,
    "fine_grained_activation_offloading": OFFLOADING,
    "offload_modules": OFFLOADING,
    "min_offloaded_tensor_size": OFFLOADING,
    "timers": CODE,
    "finalize_model_grads_func": CODE,
    "grad_scale_func": CODE,
    "no_sync_func": CODE,
    "grad_sync_func": CODE,
    "param_sync_func": CODE,
    "barrier_with_L1_time": LOG,
    "moe_per_layer_logging": LOG,
    "log_max_attention_logit": LOG,
    "config_logger_dir": LOG,
    "attention_backend": TE,
    "transformer_impl": TE,
    "hidden_dropout": RANDOM,
    "attention_dropout": RANDOM,
    "moe_input_jitter_eps": RANDOM,
    "moe_router_force_load_balancing": RANDOM,
    "apply_residual_connection_post_layernorm": UNREAD,
    "disable_bf16_reduced_precision_matmul": "a switch of the GPU's products",
    "activation_func_fp8_input_store": FP8,
    "use_te_activation_func": TE,
    "qk_clip": TE,
    "qk_clip_alpha": "belongs to qk_clip",
    "qk_clip_threshold": "belongs to qk_clip",
    "test_mode": "turns checks off that inference makes",
    "dsa_indexer_n_heads": SPARSE,
    "dsa_indexer_head_dim": SPARSE,
    "dsa_indexer_topk": SPARSE,
    "dsa_indexer_loss_coeff": SPARSE,
    "dsa_indexer_use_sparse_loss": SPARSE,
    "perform_initialization": INITIAL,
    "use_cpu_initialization": INITIAL,
    "init_method": INITIAL,
    "output_layer_init_method": INITIAL,
    "init_method_std": INITIAL,
    "embedding_init_method": INITIAL,
    "embedding_init_method_std": INITIAL,
    "init_model_with_meta_device": INITIAL,
    "bias_activation_fusion": FUSED,
    "bias_dropout_fusion": FUSED,
    "masked_softmax_fusion": FUSED,
    "persist_layer_norm": FUSED,
    "memory_efficient_layer_norm": FUSED,
    "apply_rope_fusion": FUSED,
    "fused_single_qkv_rope": FUSED,
    "use_fused_weighted_squared_relu": FUSED,
    "moe_permute_fusion": FUSED,
    "moe_router_fusion": FUSED,
    "moe_grouped_gemm": FUSED,
    "moe_use_legacy_grouped_gemm": FUSED,
    "fp8": FP8,
    "fp8_recipe": FP8,
    "fp8_param": FP8,
    "fp8_quantizer_factory": FP8,
    "fp8_margin": FP8,
    "fp8_interval": FP8,
    "fp8_amax_history_len": FP8,
    "fp8_amax_compute_algo": FP8,
    "fp8_wgrad": FP8,
    "fp8_dot_product_attention": FP8,
    "fp8_multi_head_attention": FP8,
    "tp_only_amax_red": FP8,
    "first_last_layers_bf16": FP8,
    "num_layers_at_start_in_bf16": FP8,
    "num_layers_at_end_in_bf16": FP8,
    "disable_parameter_transpose_cache": FP8,
    "moe_router_padding_for_quantization": FP8,
    "moe_router_padding_for_fp8": FP8,
    "fp4": FP4,
    "fp4_recipe": FP4,
    "fp4_param": FP4,
    "fp4_quantizer_factory": FP4,
    "quant_recipe": "other types for some layers: needs Transformer Engine",
    "use_kitchen": KITCHEN,
    "use_kitchen_attention": KITCHEN,
    "kitchen_attention_backend": KITCHEN,
    "moe_extended_tp": OLD,
    "moe_layer_recompute": OLD,
    "moe_token_dropping": OLD,
    "moe_router_topk_limited_devices": OLD,
    "enable_cuda_graph": GRAPHS,
    "external_cuda_graph": GRAPHS,
    "cuda_graph_use_single_mempool": GRAPHS,
    "cuda_graph_retain_backward_graph": GRAPHS,
    "cuda_graph_warmup_steps": GRAPHS,
    "cuda_graph_impl": GRAPHS,
    "cuda_graph_scope": GRAPHS,
    "moe_enable_routing_replay": "replays a routing that another run recorded",
    "moe_latent_size": TE,
    "moe_enable_deepep": DEEPEP,
    "moe_flex_dispatcher_backend": DEEPEP,
    "moe_deepep_num_sms": DEEPEP,
    "moe_hybridep_num_sms": DEEPEP,
    "flash_decode": INFERENCE,
    "inference_rng_tracker": INFERENCE,
    "inference_sampling_seed": INFERENCE,
    "symmetric_ar_type": INFERENCE,
    "use_inference_optimized_layers": INFERENCE,
    "inference_fuse_tp_communication": INFERENCE,
    "mlp_chunks_for_prefill": INFERENCE,
    "batch_invariant_mode": TE,
    "mrope_section": "positions of images and videos: the harness's data are text",
    "is_hybrid_model": OTHER_MODEL,
    "mamba_state_dim": OTHER_MODEL,
    "mamba_head_dim": OTHER_MODEL,
    "mamba_num_groups": OTHER_MODEL,
    "mamba_num_heads": OTHER_MODEL,
    "use_mamba_mem_eff_path": OTHER_MODEL,
    "heterogeneous_block_specs": OTHER_MODEL,
    "hetereogenous_dist_checkpoint": OTHER_MODEL,
    "linear_attention_freq": "2 with linear attention, else none; a file may set another",
}

LATENT = {
    "qk_pos_emb_head_dim": "4: with a kv_lora_rank of 8 or 4, tp has to divide their sum; a file may set another",
    "cache_mla_latents": INFERENCE,
}

OPTIMIZER = {
    "optimizer": drawn("optimizer.name"),
    "use_distributed_optimizer": drawn("layout.distributed_optimizer"),
    "bf16": drawn("precision"),
    "params_dtype": PRECISION,
    "lr": "0.01; a file may set another",
    "adam_eps": "0.001, as optimizer.eps: a smaller one divides rounding by rounding where a gradient is zero",
    "min_lr": "belongs to a schedule of learning rates: cases have a fixed one",
    "decoupled_lr": "belongs to a schedule of learning rates: cases have a fixed one",
    "decoupled_min_lr": "belongs to a schedule of learning rates: cases have a fixed one",
    "fp8_recipe": FP8,
    "reuse_grad_buf_for_mxfp8_param_ag": FP8,
    "fp16": SCALING,
    "loss_scale": SCALING,
    "initial_loss_scale": SCALING,
    "min_loss_scale": SCALING,
    "loss_scale_window": SCALING,
    "hysteresis": SCALING,
    "use_precision_aware_optimizer": TE,
    "store_param_remainders": WIDE_COPIES,
    "main_grads_dtype": WIDE_COPIES,
    "main_params_dtype": WIDE_COPIES,
    "exp_avg_dtype": WIDE_COPIES,
    "exp_avg_sq_dtype": WIDE_COPIES,
    "muon_momentum": MUON,
    "muon_split_qkv": MUON,
    "muon_use_nesterov": MUON,
    "muon_scale_mode": MUON,
    "muon_fp32_matmul_prec": MUON,
    "muon_num_ns_steps": MUON,
    "muon_tp_mode": MUON,
    "muon_extra_scale_factor": MUON,
    "overlap_param_gather": OVERLAPPED_GATHER,
    "overlap_param_gather_with_optimizer_step": OVERLAPPED_GATHER,
    "optimizer_cpu_offload": OFFLOADED_STEP,
    "optimizer_offload_fraction": OFFLOADED_STEP,
    "use_torch_optimizer_for_cpu_offload": OFFLOADED_STEP,
    "overlap_cpu_optimizer_d2h_h2d": OFFLOADED_STEP,
    "pin_cpu_grads": OFFLOADED_STEP,
    "pin_cpu_params": OFFLOADED_STEP,
    "log_num_zeros_in_grad": LOG,
    "barrier_with_L1_time": LOG,
    "timers": CODE,
    "config_logger_dir": LOG,
}

DATA_PARALLEL = {
    "use_distributed_optimizer": drawn("layout.distributed_optimizer"),
    "grad_reduce_in_fp32": "on: replicas' gradients in bf16 are rounded in an order that no perturbed run shows",
    "overlap_param_gather": OVERLAPPED_GATHER,
    "align_param_gather": OVERLAPPED_GATHER,
    "num_distributed_optimizer_instances": "the harness's groups have one: not drawn yet",
    "check_for_nan_in_grad": "raises, and changes no tensor",
    "check_for_large_grads": "raises, and changes no tensor",
    "reduce_scatter_with_fp32_accumulation": "belongs to gradients reduced in bf16",
    "average_in_collective": "Gloo has no average",
    "fp8_param_gather": FP8,
    "reuse_grad_buf_for_mxfp8_param_ag": FP8,
    "use_megatron_fsdp": FSDP,
    "use_custom_fsdp": FSDP,
    "data_parallel_sharding_strategy": FSDP,
    "outer_dp_sharding_strategy": FSDP,
    "gradient_reduce_div_fusion": FSDP,
    "suggested_communication_unit_size": FSDP,
    "preserve_fp32_weights": FSDP,
    "keep_fp8_transpose_cache": FSDP,
    "fsdp_double_buffer": FSDP,
    "fsdp_manual_registration": FSDP,
    "nccl_ub": "buffers that NCCL knows: needs CUDA",
    "disable_symmetric_registration": "buffers that NCCL knows: needs CUDA",
    "delay_wgrad_compute": TE,
}

MODEL = {
    "config": CODE,
    "transformer_layer_spec": CODE,
    "mtp_block_spec": "made for model.mtp_num_layers",
    "max_sequence_length": drawn("sequence_length"),
    "pre_process": "follows the stage",
    "post_process": "follows the stage",
    "vp_stage": "follows the stage",
    "pg_collection": "the package's own groups",
    "fp16_lm_cross_entropy": UNREAD,
    "scatter_embedding_sequence_parallel": "off where a model of images scatters what it has put between the words' embeddings",
}

# Class -> (the first part of its fields' paths in a case, its table).
TABLES = {"TransformerConfig": ("model", TRANSFORMER), "MLATransformerConfig": ("model", {**TRANSFORMER, **LATENT}),
          "OptimizerConfig": ("optimizer", OPTIMIZER), "DistributedDataParallelConfig": ("layout", DATA_PARALLEL), "GPTModel": ("model", MODEL)}


def of_package():
    """{class: names of its fields}, of the package that is there."""
    from megatron.core.distributed import DistributedDataParallelConfig
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.optimizer import OptimizerConfig
    from megatron.core.transformer.transformer_config import MLATransformerConfig, TransformerConfig
    kinds = (TransformerConfig, MLATransformerConfig, OptimizerConfig, DistributedDataParallelConfig)
    return {**{kind.__name__: [field.name for field in dataclasses.fields(kind)] for kind in kinds},
            "GPTModel": [name for name in inspect.signature(GPTModel.__init__).parameters if name != "self"]}


def is_drawn(kind, name):
    """Whether a campaign draws the field under its own name."""
    return f"{TABLES[kind][0]}.{name}" in CHOICES


def unknown(package):
    """The package's fields, as CLASS.FIELD, that neither a case nor a table has. package: as of_package returns it."""
    names = [f"{kind}.{name}" for kind, fields in package.items() for name in fields if not is_drawn(kind, name) and name not in TABLES[kind][1]]
    inherited = {name.split(".")[1] for name in names if name.startswith("TransformerConfig.")}
    return [name for name in names if not (name.startswith("MLATransformerConfig.") and name.split(".")[1] in inherited)]


def note(package):
    """One line on the fields that are unknown, or None."""
    names = unknown(package)
    return names and (f"this megatron-core has {len(names)} field{'s' * (len(names) > 1)} that shardfuzz does not know and leaves at the default: "
                      + ", ".join(names)) or None
