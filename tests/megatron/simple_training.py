"""A training script as Megatron's examples have it: a small GPT, Megatron's schedule, DistributedDataParallel and optimizer, on a CPU or a GPU.

    torchrun --nproc-per-node 4 simple_training.py --tp 2 --pp 2 --trace parallel

On a GPU, --te uses Transformer Engine's layers, and --fp8 RECIPE computes their products in fp8.
"""
import argparse
import os

import torch
import torch.distributed as dist

ON_GPU = torch.cuda.is_available()
if not ON_GPU:
    from megatron_core_target import serving
    serving.preload()  # what the package needs to run on a CPU

import shardfuzz.megatron  # noqa: E402
from megatron.core import parallel_state, tensor_parallel  # noqa: E402
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads  # noqa: E402
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec, get_gpt_layer_with_transformer_engine_spec  # noqa: E402
from megatron.core.models.gpt.gpt_model import GPTModel  # noqa: E402
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer  # noqa: E402
from megatron.core.pipeline_parallel import get_forward_backward_func  # noqa: E402
from megatron.core.transformer.module import Float16Module  # noqa: E402
from megatron.core.transformer.transformer_config import TransformerConfig  # noqa: E402

SEQUENCE, VOCABULARY, MICROBATCH, GLOBAL_BATCH = 16, 64, 2, 8
DEVICE = "cuda" if ON_GPU else "cpu"


def arguments():
    parser = argparse.ArgumentParser()
    for axis in ("tp", "pp", "ep"):
        parser.add_argument(f"--{axis}", type=int, default=1)
    for flag in ("sp", "bf16", "distributed-optimizer", "experts", "forget-norms", "te"):
        parser.add_argument(f"--{flag}", action="store_true")
    parser.add_argument("--fp8", choices=("delayed", "tensorwise", "blockwise"))
    parser.add_argument("--trace", required=True)
    return parser.parse_args()


def make_model(flags):
    stored = torch.bfloat16 if flags.bf16 else torch.float32
    wide = 4 if flags.fp8 else 1  # fp8 computes in tiles of 128
    fp8 = {"fp8": "hybrid", "fp8_recipe": flags.fp8} if flags.fp8 else {}
    config = TransformerConfig(
        **fp8, num_layers=2, hidden_size=32 * wide, num_attention_heads=4, ffn_hidden_size=64 * wide, gated_linear_unit=True, activation_func=torch.nn.functional.silu,
        num_moe_experts=4 if flags.experts else None, moe_router_load_balancing_type="none", moe_token_dispatcher_type="alltoall",
        moe_grouped_gemm=flags.te and flags.experts,
        moe_ffn_hidden_size=32 * wide if flags.experts else None, add_bias_linear=not flags.experts, hidden_dropout=0.0, attention_dropout=0.0, bias_dropout_fusion=False,
        masked_softmax_fusion=False, persist_layer_norm=False, gradient_accumulation_fusion=False, bias_activation_fusion=False, apply_rope_fusion=False,
        deallocate_pipeline_outputs=True, use_cpu_initialization=not ON_GPU, params_dtype=stored, pipeline_dtype=stored, bf16=flags.bf16,
        tensor_model_parallel_size=flags.tp, pipeline_model_parallel_size=flags.pp, expert_model_parallel_size=flags.ep, sequence_parallel=flags.sp)
    layer = (get_gpt_layer_with_transformer_engine_spec(config.num_moe_experts, config.moe_grouped_gemm) if flags.te
             else get_gpt_layer_local_spec(config.num_moe_experts))
    model = GPTModel(config, layer, VOCABULARY, SEQUENCE, share_embeddings_and_output_weights=True,
                     pre_process=parallel_state.is_pipeline_first_stage(), post_process=parallel_state.is_pipeline_last_stage()).to(DEVICE)
    if flags.forget_norms:
        for name, parameter in model.named_parameters():
            if name.endswith(("pre_mlp_layernorm.weight", "linear_fc1.layer_norm_weight")):
                parameter.sequence_parallel = False
    options = DistributedDataParallelConfig(grad_reduce_in_fp32=True, use_distributed_optimizer=flags.distributed_optimizer)
    model = DistributedDataParallel(config, options, Float16Module(config, model) if flags.bf16 else model)
    config.finalize_model_grads_func = finalize_model_grads
    optimizer = get_megatron_optimizer(OptimizerConfig(lr=1e-3, clip_grad=1.0, bf16=flags.bf16, params_dtype=stored,
                                                       use_distributed_optimizer=flags.distributed_optimizer), [model], use_gloo_process_groups=False)
    return model, optimizer


def batches(step):
    """This data-parallel rank's microbatches, dealt out in turn."""
    tokens = torch.randint(0, VOCABULARY, (GLOBAL_BATCH, SEQUENCE + 1), generator=torch.Generator().manual_seed(step))
    for rows in tokens.split(MICROBATCH)[parallel_state.get_data_parallel_rank()::parallel_state.get_data_parallel_world_size()]:
        yield rows[:, :-1].to(DEVICE), rows[:, 1:].to(DEVICE)


def loss_function(output):
    loss = output.float().mean()
    return loss, {"lm loss": loss.detach()}


def forward_step(iterator, model):
    tokens, labels = next(iterator)
    positions = torch.arange(SEQUENCE, device=DEVICE).expand_as(tokens)
    mask = torch.ones(SEQUENCE, SEQUENCE, dtype=torch.bool, device=DEVICE).triu(1)[None, None]
    return model(tokens, positions, mask, labels=labels), loss_function


def train_step(model, optimizer, step):
    model.zero_grad_buffer()
    optimizer.zero_grad()
    get_forward_backward_func()(
        forward_step_func=forward_step, data_iterator=batches(step), model=model, seq_length=SEQUENCE, micro_batch_size=MICROBATCH,
        num_microbatches=GLOBAL_BATCH // MICROBATCH // parallel_state.get_data_parallel_world_size(), forward_only=False)
    optimizer.step()


def main():
    flags = arguments()
    if ON_GPU:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    dist.init_process_group("nccl" if ON_GPU else "gloo")
    parallel_state.initialize_model_parallel(flags.tp, flags.pp, expert_model_parallel_size=flags.ep, create_gloo_process_groups=False)
    tensor_parallel.model_parallel_cuda_manual_seed(1)
    model, optimizer = make_model(flags)
    shardfuzz.megatron.fill(model, optimizer)
    with shardfuzz.megatron.Tracer(flags.trace, model, optimizer):
        for step in range(2):
            train_step(model, optimizer, step)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
