"""A small language model in torchtitan's Trainer, and the same training as a loop on one device."""
import dataclasses
import gc
import inspect
import itertools
import logging
import shutil
import tempfile
import types
from typing import Any

import torch
import torch.distributed as dist
import torchtitan.tools.utils as titan

if titan.device_type == "cuda" and not torch.cuda.is_available():  # torchtitan's choice where there is no accelerator
    titan.device_type, titan.device_module = "cpu", torch.cpu

from torch.distributed.fsdp import FSDPModule  # noqa: E402
from torch.distributed.tensor import DTensor, distribute_tensor  # noqa: E402
from torchtitan.components.checkpoint import CheckpointManager  # noqa: E402
from torchtitan.components.dataloader import BaseDataLoader  # noqa: E402
from torchtitan.components.loss import ChunkedLossWrapper, CrossEntropyLoss  # noqa: E402
from torchtitan.components.optimizer import (LRSchedulersContainer, OptimizersContainer, ParamGroupConfig,  # noqa: E402
                                             register_moe_load_balancing_hook)
from torchtitan.components.tokenizer import BaseTokenizer  # noqa: E402
from torchtitan.config import Configurable, DebugConfig, ParallelismConfig, TrainingConfig  # noqa: E402
from torchtitan.distributed.activation_checkpoint import FullAC, SelectiveAC  # noqa: E402
from torchtitan.distributed.pipeline_parallel import pipeline_llm  # noqa: E402
from torchtitan.models import deepseek_v3, llama3, qwen3  # noqa: E402
from torchtitan.models.deepseek_v3.mtp import MTPLoss  # noqa: E402
from torchtitan.models.common import ComplexRoPE, CosSinRoPE, Embedding, Linear, RMSNorm  # noqa: E402
from torchtitan.models.common.attention import ScaledDotProductAttention  # noqa: E402
from torchtitan.models.common.config_utils import (make_ffn_config, make_gqa_config, make_moe_config, make_routed_experts_config,  # noqa: E402
                                                   make_router_config)
from torchtitan.protocols.model_spec import ModelSpec  # noqa: E402
from torchtitan.trainer import Trainer  # noqa: E402

logging.getLogger().setLevel(logging.ERROR)
torch.autograd.set_multithreading_enabled(False)         # as torchtitan does where it joins the ranks itself
IGNORED, HEAD, FURTHER = -100, 8, 0.3
ONES = {name: torch.nn.init.ones_ for name in ("weight", "bias", "w1_EFD", "w2_EDF", "w3_EFD")}


# --- the model ---

@dataclasses.dataclass
class Kind:
    block: Any
    model: Any
    rope: Any
    parallelize: Any


KINDS = {
    "qwen3": Kind(qwen3.Qwen3TransformerBlock, qwen3.Qwen3Model, CosSinRoPE, qwen3.parallelize_qwen3),
    "llama3": Kind(llama3.Llama3TransformerBlock, llama3.Llama3Model, ComplexRoPE, llama3.parallelize_llama),
    "deepseek_v3": Kind(deepseek_v3.DeepSeekV3TransformerBlock, deepseek_v3.DeepSeekV3Model, ComplexRoPE, deepseek_v3.parallelize_deepseekv3),
}


def norm_of(size):
    return RMSNorm.Config(normalized_shape=size, param_init=ONES)


def attention_of(m, dim):
    inner, rope = ScaledDotProductAttention.Config(), KINDS[m["kind"]].rope
    if m["kind"] == "deepseek_v3":
        attention = deepseek_v3.make_mla_attention_config(
            layer_id=0, dim=dim, n_heads=m["heads"], q_lora_rank=m["query_rank"], kv_lora_rank=16, qk_nope_head_dim=HEAD, qk_rope_head_dim=HEAD // 2, v_head_dim=HEAD,
            attn_backend="flex", linear_init=ONES, norm_init=ONES, depth_init=lambda _: ONES, rope=rope.Config(dim=HEAD // 2, max_seq_len=64))
        attention.inner_attention = inner
        return attention
    return make_gqa_config(dim=dim, n_heads=m["heads"], n_kv_heads=m["heads"] // m["queries_per_key"], head_dim=HEAD, wqkv_param_init=ONES, wo_param_init=ONES,
                           inner_attention=inner, fuse_qkv=m["fused_qkv"], rope=rope.Config(dim=HEAD, max_seq_len=64),
                           qk_norm=norm_of(HEAD) if m["kind"] == "qwen3" else None)


def experts_of(m, dim):
    groups = {"num_expert_groups": 2, "num_limited_groups": 1} if m["grouped"] else {}
    shared = make_ffn_config(dim=dim, hidden_dim=32, w1_param_init=ONES, w2w3_param_init=ONES) if m["shared_expert"] else None
    router = make_router_config(dim=dim, num_experts=m["experts"], gate_param_init=ONES, top_k=m["active"], score_func=m["score"], route_norm=m["route_norm"], **groups)
    routed = make_routed_experts_config(dim=dim, hidden_dim=32, num_experts=m["experts"], top_k=m["active"], param_init=ONES, comm_backend="standard")
    return make_moe_config(num_experts=m["experts"], load_balance_coeff=m["balance"] or None, shared_experts=shared, router=router, routed_experts=routed)


def model_of(case):
    """The configuration of the case's model."""
    m = case["model"]
    dim, kind = HEAD * m["heads"], KINDS[m["kind"]]
    layers = []
    for number in range(m["layers"]):
        has_experts = m["experts"] and number >= m["dense_layers"]
        forward = {"moe": experts_of(m, dim)} if has_experts else {"feed_forward": make_ffn_config(dim=dim, hidden_dim=2 * dim, w1_param_init=ONES, w2w3_param_init=ONES)}
        layers.append(kind.block.Config(attention_norm=norm_of(dim), ffn_norm=norm_of(dim), attention=attention_of(m, dim), **forward))
    further = {"mtp_layers": deepseek_v3._build_mtp_layers(layers[-1], dim=dim, num_mtp_layers=m["further_tokens"])} if m["further_tokens"] else {}
    return kind.model.Config(
        **further, dim=dim, vocab_size=m["vocabulary"], norm=norm_of(dim), layers=layers, enable_weight_tying=m["tied"],
        tok_embeddings=Embedding.Config(num_embeddings=m["vocabulary"], embedding_dim=dim, param_init=ONES),
        lm_head=Linear.Config(in_features=dim, out_features=m["vocabulary"], param_init=ONES))


# --- what torchtitan's Trainer is given beside the model ---

class Tokenizer(BaseTokenizer):
    """Does nothing: batches are tokens already."""

    @dataclasses.dataclass(kw_only=True, slots=True)
    class Config(BaseTokenizer.Config):
        pass

    def __init__(self, config, *, tokenizer_path):
        super().__init__()

    def encode(self, *args, **kwargs):
        raise NotImplementedError

    decode = get_vocab_size = encode


def batches_of(case, step):
    """The microbatches of a step: [(tokens, labels)], each [rows of all data-parallel ranks, length]."""
    m, d = case["model"], case["data"]
    generator = torch.Generator().manual_seed(case["seed"] * 100 + step)
    shape = (d["microbatches"], d["rows"] * case["layout"]["replicate"] * case["layout"]["shard"], d["length"])
    tokens, labels = (torch.randint(0, m["vocabulary"], shape, generator=generator) for _ in range(2))
    if d["ignored"]:
        ignored = torch.rand(shape, generator=generator) < 0.4
        ignored[:, :, 0] = False
        labels = labels.masked_fill(ignored, IGNORED)
    return list(zip(tokens, labels))


class Batches(BaseDataLoader):
    """The rows of one data-parallel rank."""

    @dataclasses.dataclass(kw_only=True, slots=True)
    class Config(BaseDataLoader.Config):
        case: Any = None

    def __init__(self, config, *, dp_world_size, dp_rank, local_batch_size, **_):
        self.case, self.rows, self.step = config.case, local_batch_size, 0
        self.mine = slice(dp_rank * self.rows, (dp_rank + 1) * self.rows)

    def __iter__(self):
        while self.step < self.case["train"]["steps"]:
            self.step += 1
            for tokens, labels in batches_of(self.case, self.step - 1):
                yield {"input": tokens[self.mine], "positions": torch.arange(tokens.shape[1]).expand(self.rows, -1)}, labels[self.mine]

    def state_dict(self):
        return {"step": self.step}

    def load_state_dict(self, state_dict):
        self.step = state_dict["step"]


class Metrics(Configurable):
    """Keeps what the Trainer would log."""

    @dataclasses.dataclass(kw_only=True, slots=True)
    class Config(Configurable.Config):
        pass

    def __init__(self, config, **_):
        nothing = types.SimpleNamespace(max_reserved_gib=0.0, max_reserved_pct=0.0)
        self.color, self.device_memory_monitor = titan.NoColor(), types.SimpleNamespace(device_name="", get_peak_stats=lambda: nothing)
        self.ntokens_since_last_log, self.data_loading_times, self.seen = 0, [], {}

    def should_log(self, step):
        return True

    def log(self, step, global_avg_loss, global_max_loss, grad_norm, extra_metrics=None):
        self.seen = {"mean_loss": global_avg_loss, "grad_norm": grad_norm, "tokens_seen": extra_metrics["n_tokens_seen"]}

    def close(self):
        pass


def config_of(case):
    m, d, t, layout = case["model"], case["data"], case["train"], case["layout"]
    passes = layout["passes"] if layout["pp"] > 1 else d["microbatches"]
    rows = d["rows"] * d["microbatches"] // passes
    loss = MTPLoss.Config(mtp_scale=FURTHER) if m["further_tokens"] else CrossEntropyLoss.Config(global_vocab_size=m["vocabulary"])
    spec = ModelSpec(name=m["kind"], flavor="", model=model_of(case), parallelize_fn=KINDS[m["kind"]].parallelize, pipelining_fn=pipeline_llm,
                     post_optimizer_build_fn=register_moe_load_balancing_hook, state_dict_adapter=None)
    recompute = {"none": None, "full": FullAC.Config(), "selective": SelectiveAC.Config()}[t["recompute"]]
    return Trainer.Config(
        model_spec=spec, tokenizer=Tokenizer.Config(), dataloader=Batches.Config(case=case), metrics=Metrics.Config(),
        optimizer=optimizer_config(t), lr_scheduler=LRSchedulersContainer.Config(warmup_steps=t["warmup"], total_steps=10),
        loss=ChunkedLossWrapper.Config(num_chunks=t["chunks"], loss_fn=loss) if t["chunks"] else loss, activation_checkpoint=recompute,
        debug=DebugConfig(seed=case["seed"]),
        training=TrainingConfig(local_batch_size=rows, global_batch_size=rows * passes * layout["replicate"] * layout["shard"], seq_len=d["length"],
                                max_norm=t["max_norm"], steps=t["steps"], disable_cuda_graphs=True, mixed_precision_param=t["precision"]),
        parallelism=ParallelismConfig(
            data_parallel_replicate_degree=layout["replicate"], data_parallel_shard_degree=layout["shard"], tensor_parallel_degree=layout["tp"],
            pipeline_parallel_degree=layout["pp"], expert_parallel_degree=layout["ep"], enable_sequence_parallel=layout["sequence_parallel"],
            spmd_backend=layout["backend"], fsdp_reshard_after_forward=layout["reshard"], pipeline_parallel_schedule=layout["schedule"],
            pipeline_parallel_microbatch_size=d["rows"], pipeline_parallel_first_stage_less_layers=layout["first_less"],
            pipeline_parallel_last_stage_less_layers=layout["last_less"]))


def optimizer_config(t):
    own = {"lr": 0.01, "betas": (0.9, 0.95), "eps": 1e-3, "weight_decay": 0.1}
    groups = [ParamGroupConfig(pattern=".*", optimizer_name=t["optimizer"], optimizer_kwargs=own)]
    if t["groups"]:
        groups.insert(0, ParamGroupConfig(pattern=r".*norm.*", optimizer_name=t["optimizer"], optimizer_kwargs={**own, "lr": 0.003}))
    return OptimizersContainer.Config(param_groups=groups, implementation=t["implementation"])


# --- the training ---

class Traced(Trainer):
    """The Trainer, which also tells the trace when gradients are complete."""

    trace, left = None, 0

    def forward_backward_step(self, **batch):
        loss = super().forward_backward_step(**batch)
        self.left -= 1
        if self.left == 0:
            self.trace.gradients()
        return loss


def takes_microbatches(schedule):
    """Lets a schedule of torch 2.13 take what torchtitan 0.3.0 gives it: lists of microbatches."""
    if "arg_mbs" in inspect.signature(schedule.step).parameters:
        return

    def step(arg_mbs=None, kwarg_mbs=None, target_mbs=None, losses=None, return_outputs=True, loss_kwargs=None):
        for stage in getattr(schedule, "_stages", None) or [schedule._stage]:
            stage.has_backward = True
            stage.clear_runtime_states()
        schedule._step_microbatches(arg_mbs, kwarg_mbs, target_mbs, losses, return_outputs, loss_kwargs=loss_kwargs)
    schedule.step = step


class OnRanks:
    """Steps of the Trainer. Before step checkpoint.before it saves a checkpoint, and a new Trainer, in the layout that checkpoint.into names, loads it."""

    def __init__(self, case, fill):
        self.case = case
        self._build(case, fill)

    def _build(self, case, fill):
        collects = gc.isenabled()
        trainer = self.trainer = Traced(config_of(case))
        if collects:
            gc.enable()                                  # which the Trainer has switched off
        self.model = trainer.model_parts if case["layout"]["pp"] > 1 else trainer.model_parts[0]
        self.optimizer = list(trainer.optimizers)
        load(trainer, whole_model(case, fill))
        for part in trainer.model_parts:
            for module in part.modules():
                if isinstance(module, FSDPModule):
                    module.set_force_sum_reduction_for_comms(True)  # Gloo has no average
        if case["layout"]["pp"] > 1:
            takes_microbatches(trainer.pp_schedule)
            self._warm_up()

    def _warm_up(self):
        """Runs one pass before the trace begins. In its first pass a schedule also runs its stages on arbitrary values, to learn the shapes of their outputs."""
        trainer = self.trainer
        inputs, labels = zip(*itertools.islice(trainer.dataloader, trainer.num_pipeline_parallel_microbatches))
        trainer.forward_backward_step(input_dict=list(inputs), labels=list(labels), global_valid_tokens=torch.tensor(1))
        trainer.ntokens_seen = trainer.dataloader.step = 0
        for part in trainer.model_parts:
            part.zero_grad()
            for name, buffer in part.named_buffers():
                if name.endswith("tokens_per_expert_E"):
                    buffer.zero_()

    def __call__(self, number, trace):
        if number > 0 and number == self.case["checkpoint"]["before"]:
            self._reload(number)
            trace.replace(self.model, self.optimizer)
        trainer = self.trainer
        trainer.step, trainer.trace, trainer.left = number + 1, trace, trainer.gradient_accumulation_steps
        trainer.train_step(trainer.batch_generator(trainer.dataloader))
        for name, value in trainer.metrics_processor.seen.items():
            if name != "mean_loss" or not trainer.parallel_dims.pp_enabled or trainer.pp_has_last_stage:
                trace.scalar(name, torch.tensor(value, dtype=torch.float32))

    def _reload(self, number):
        folder = [tempfile.mkdtemp(prefix="sf-torchtitan-") if dist.get_rank() == 0 else None]
        dist.broadcast_object_list(folder)
        try:
            checkpoints_of(self.trainer, folder[0]).save(number)
            self.trainer.close()
            self._build({**self.case, "layout": {**self.case["layout"], **other_layout(self.case)}}, lambda model: None)
            checkpoints_of(self.trainer, folder[0]).load()
            dist.barrier()
        finally:
            if dist.get_rank() == 0:
                shutil.rmtree(folder[0])


def checkpoints_of(trainer, folder):
    """A checkpoint manager, made as the Trainer makes its own."""
    return CheckpointManager.Config(enable=True, interval=1, keep_latest_k=0).build(
        dataloader=trainer.dataloader, model_parts=trainer.model_parts, optimizers=trainer.optimizers, lr_schedulers=trainer.lr_schedulers,
        states={"train_state": trainer}, sd_adapter=None, base_folder=folder)


def other_layout(case):
    """What checkpoint.into changes of the layout."""
    layout, into = case["layout"], case["checkpoint"]["into"]
    ranks = layout["replicate"] * layout["shard"]
    if into == "data":                                   # shards become copies, and copies shards
        return {"replicate": 1, "shard": ranks} if layout["replicate"] > 1 else {"replicate": ranks, "shard": 1}
    if into == "backend":
        return {"backend": "full_dtensor" if layout["backend"] == "partial_dtensor" else "partial_dtensor"}
    return {}


def load(trainer, whole):
    """Gives a rank's parts the values of a whole model."""
    values = dict(whole.named_parameters())
    for part in trainer.model_parts:
        for name, parameter in part.named_parameters():
            value = values[name.replace("_checkpoint_wrapped_module.", "")].detach()
            if isinstance(parameter, DTensor):
                value = distribute_tensor(value, parameter.device_mesh, parameter.placements).to_local()
                parameter = parameter.to_local()
            with torch.no_grad():
                parameter.copy_(value)


def whole_model(case, fill):
    model = model_of(case).build()
    model.init_states(buffer_device=torch.device("cpu"))
    fill(model)
    return model


class Alone:
    """The same on one device: sums of losses over the number of labels, one gradient norm, one optimizer step."""

    def __init__(self, case, fill):
        self.case, self.model = case, whole_model(case, fill)
        self.model.train()
        t = case["train"]
        self.containers = optimizer_config(t).build(model_parts=[self.model])
        self.optimizer = list(self.containers)
        self.schedule = LRSchedulersContainer.Config(warmup_steps=t["warmup"], total_steps=10).build(optimizers=self.containers, training_steps=t["steps"])
        self.seen = 0

    def __call__(self, number, trace):
        batches = batches_of(self.case, number)
        count = sum(int((labels != IGNORED).sum()) for _, labels in batches)
        self.seen += sum(labels.numel() for _, labels in batches)
        total = torch.zeros(())
        for k, (tokens, labels) in enumerate(batches):
            trace.microbatch(k)
            loss = self._loss(self._forward(tokens, torch.arange(tokens.shape[1]).expand(*tokens.shape)), labels) / count
            loss.backward()
            total += loss.detach()
        trace.gradients()
        parameters = list(self.model.parameters())
        norm = torch.nn.utils.clip_grad_norm_(parameters, self.case["train"]["max_norm"])
        self._balance()
        for optimizer in self.optimizer:
            optimizer.step()
        self.schedule.step()
        for optimizer in self.optimizer:
            optimizer.zero_grad()
        for name, value in {"mean_loss": total, "grad_norm": norm, "tokens_seen": self.seen}.items():
            trace.scalar(name, torch.as_tensor(value, dtype=torch.float32))

    def _forward(self, tokens, positions):
        """In bfloat16 with rounded parameters, as FSDP has them; gradients are in fp32."""
        if self.case["train"]["precision"] == "float32":
            return self.model(tokens, positions)
        rounded = {name: parameter.to(torch.bfloat16) for name, parameter in self.model.named_parameters()}
        return torch.func.functional_call(self.model, rounded, (tokens, positions))

    def _loss(self, logits, labels):
        """The sum over the labels. With further_tokens the model gives a list of logits; the label of the k-th, from 0, stands k places further on."""
        def of(one, labels):
            return torch.nn.functional.cross_entropy(one.flatten(0, 1).float(), labels.flatten(), ignore_index=IGNORED, reduction="sum")
        if not self.case["model"]["further_tokens"]:
            return of(logits, labels)
        first, *further = logits
        behind = [of(one, torch.nn.functional.pad(labels[:, k:], (0, k), value=IGNORED)) for k, one in enumerate(further, 1)]
        return of(first, labels) + FURTHER * sum(behind) / len(behind)

    def _balance(self):
        """Experts that got fewer tokens than the mean get a larger bias, and the others a smaller one."""
        for layer in self.model.layers.values():
            moe = getattr(layer, "moe", None)
            if moe is not None and self.case["model"]["balance"]:
                tokens = moe.tokens_per_expert_E
                change = self.case["model"]["balance"] * torch.sign(tokens.mean() - tokens)
                moe.expert_bias_E.add_(change - change.mean())
                tokens.zero_()


def make(case, mesh, fill):
    run = Alone(case, fill) if mesh is None else OnRanks(case, fill)
    return run.model, run.optimizer, run
