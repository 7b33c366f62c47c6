"""Found by shardfuzz: s1/mb0/step/param/layers.0.norm.weight/0 of deepspeed on 1 ranks is not what one device gives.

Run it with python: it needs deepspeed 0.19.8 and torch alone, and starts 1 ranks itself. Exit code 1: something is wrong.
"""
import contextlib, os, sys
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

CASE = {'layout': {'dp': 1, 'cp': 1, 'tp': 1, 'pp': 1, 'ep': 1}, 'zero': {'stage': 1, 'overlap_comm': False}, 'engine': {'accumulate': 'counted', 'backward': 'engine', 'dynamic_loss_scale': False, 'groups': 'parallel_state_sp', 'read': 'buffers', 'prescale_gradients': False, 'gradient_predivide_factor': 1.0, 'communication_data_type': 'none', 'grad_accum_dtype': 'none'}, 'tensor_parallel': {'head': 'whole', 'tp_overlap_comm': False}, 'pipeline': {'partition_method': 'parameters', 'activation_checkpoint_interval': 0, 'use_reentrant': False}, 'checkpoint': {'before': 1, 'universal': True, 'into_stage': 'same'}, 'train': {'precision': 'fp32', 'loss_scale': 1, 'optimizer': 'adam', 'weight_decay': 0.0, 'groups': 1, 'clipping': 0.0, 'grad_norm': False, 'steps': 2, 'accumulation': 1, 'backwards': 1, 'joint': False, 'rows': 12, 'tokens': 4}, 'model': {'layers': 1, 'uses': 1, 'hidden': 8, 'ffn': 16, 'bias': False, 'attention': False, 'heads': 4, 'fused': False, 'experts': 0, 'active': 1, 'tied': False, 'extra': 'none', 'frozen': 'norms', 'recompute': 'none'}, 'seed': 0}
FIRST, RANKS, STEPS = 's1/mb0/step/param/layers.0.norm.weight/0', 1, 2


# --- the program ---
"""The small transformer that is trained: torch alone, but for what programs put in place of some of its modules."""
import torch
import torch.nn.functional as F
import torch.utils.checkpoint

VOCAB = 16
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class Embedding(torch.nn.Embedding):
    """Weights may be kept in more precision than the model computes in: the reference trains what DeepSpeed calls master weights."""

    def __init__(self, size, precision):
        super().__init__(VOCAB, size)
        self.dtype = DTYPES[precision]

    def forward(self, ids):
        return F.embedding(ids, self.weight.to(self.dtype))


class Linear(torch.nn.Linear):
    def forward(self, x):
        return F.linear(x, self.weight.to(x.dtype), None if self.bias is None else self.bias.to(x.dtype))


class Norm(torch.nn.LayerNorm):
    def forward(self, x):
        return F.layer_norm(x, self.normalized_shape, self.weight.to(x.dtype), self.bias.to(x.dtype))


class Core(torch.nn.Module):
    """Attention of (rows, tokens, heads, channels)."""

    def forward(self, query, key, value):
        query, key, value = (one.transpose(1, 2) for one in (query, key, value))
        scores = query @ key.transpose(2, 3) / query.shape[-1] ** 0.5
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        return (scores.masked_fill(hidden, -10000.0).softmax(-1) @ value).transpose(1, 2)


class Attention(torch.nn.Module):
    def __init__(self, size, heads, bias, fused):
        super().__init__()
        self.num_heads, self.core, self.spread = heads, Core(), None     # tensor parallelism divides an attribute of that name
        if fused:
            self.qkv = Linear(size, 3 * size, False)
        else:
            self.query, self.value = (Linear(size, size, bias) for _ in range(2))
            self.key = Linear(size, size, False)  # the gradient of its bias would be rounding alone
        self.out = Linear(size, size, bias)

    def forward(self, x):
        parts = self.qkv(x).chunk(3, -1) if hasattr(self, "qkv") else [one(x) for one in (self.query, self.key, self.value)]
        parts = [one.unflatten(2, (self.num_heads, -1)) for one in parts]
        mixed = self.core(*parts) if self.spread is None else self.spread(*parts)
        return self.out(mixed.flatten(2))


class Feed(torch.nn.Module):
    def __init__(self, model, size):
        super().__init__()
        self.up, self.down = Linear(size, model["ffn"], model["bias"]), Linear(model["ffn"], size, model["bias"])

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class Experts(torch.nn.Module):
    """Experts, of which each token uses some. The modules have the names that they have in DeepSpeed's MoE, and as its, the result is the first of several."""

    def __init__(self, model, size):
        super().__init__()
        self.active, self.deepspeed_moe = model["active"], torch.nn.Module()
        self.deepspeed_moe.gate, self.deepspeed_moe.experts = torch.nn.Module(), torch.nn.Module()
        self.deepspeed_moe.gate.wg = torch.nn.Linear(size, model["experts"], bias=False)
        self.deepspeed_moe.experts.deepspeed_experts = torch.nn.ModuleList(Feed(model, size) for _ in range(model["experts"]))

    def forward(self, x):
        shares = F.linear(x.float(), self.deepspeed_moe.gate.wg.weight.float()).softmax(-1)
        shares = shares * torch.zeros_like(shares).scatter(-1, shares.topk(self.active).indices, 1)
        if self.active > 1:
            shares = shares / shares.sum(-1, keepdim=True)
        return sum(shares[..., n, None].to(x.dtype) * expert(x) for n, expert in enumerate(self.deepspeed_moe.experts.deepspeed_experts)),


class Block(torch.nn.Module):
    def __init__(self, model, size):
        super().__init__()
        self.norm = Norm(size)
        self.attention = Attention(size, model["heads"], model["bias"], model["fused"]) if model["attention"] else None
        if model["experts"]:
            self.moe = Experts(model, size)
            return
        if model["fused"]:
            self.gate_up = Linear(size, 2 * model["ffn"], model["bias"])
        else:
            self.up = Linear(size, model["ffn"], model["bias"])
        self.down = Linear(model["ffn"], size, model["bias"])

    def forward(self, x):
        if self.attention is not None:
            x = x + self.attention(x)
        return x + self.feed(self.norm(x))

    def feed(self, x):
        if hasattr(self, "moe"):
            return self.moe(x)[0]
        if hasattr(self, "up"):
            return self.down(F.gelu(self.up(x)))
        gate, up = self.gate_up(x).chunk(2, -1)
        return self.down(F.silu(gate) * up)


class Model(torch.nn.Module):
    def __init__(self, case):
        super().__init__()
        model, size = case["model"], case["model"]["hidden"]
        self.order, self.recompute = list(range(model["layers"])) * model["uses"], model["recompute"]
        self.embedding = Embedding(size, case["train"]["precision"])
        self.layers = torch.nn.ModuleList(Block(model, size) for _ in range(model["layers"]))
        self.head = Linear(size, VOCAB, model["bias"])
        if model["tied"]:
            self.head.weight = self.embedding.weight
        self.extra = Linear(size, size, False) if model["extra"] != "none" else None
        frozen = {"none": [], "embedding": [self.embedding], "first_layer": [self.layers[0]], "norms": [one.norm for one in self.layers]}
        for module in frozen[model["frozen"]]:
            module.requires_grad_(False)

    def forward(self, ids, use_extra=False):
        x = self.embedding(ids)
        for number in self.order:
            if self.recompute == "none":
                x = self.layers[number](x)
            else:
                x = torch.utils.checkpoint.checkpoint(self.layers[number], x, use_reentrant=self.recompute == "reentrant")
        return self.head(x + self.extra(x) if use_extra else x)


def uses_extra(case, microbatch):
    """Whether a microbatch uses the extra layer; one that no microbatch uses has a gradient of zeros."""
    return case["model"]["extra"] == "odd" and microbatch % 2 == 1


def loss_of(logits, labels, tokens):
    return F.cross_entropy(logits.float().flatten(0, 1), labels.flatten(), reduction="sum") / tokens


"""Parameters and gradients as DeepSpeed keeps them, whole."""
import types

import torch

def is_matrix(parameter):
    return len(getattr(parameter, "ds_shape", parameter.shape)) > 1


# Of the running case. engine: none on one device. losses: of a pipeline's microbatches. first_calls: how often earlier stages call a layer of this one
state = types.SimpleNamespace(engine=None, safe=False, losses=[], first_calls={})


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


"""The model as DeepSpeed's PipelineModule."""
import torch



def pipeline_settings(case):
    """What a config says of a pipeline."""
    return {name: case["pipeline"][name] for name in ("activation_checkpoint_interval", "use_reentrant")}


def pipeline_of(case, whole):
    """This rank's stage, with the weights of a model on one device, and the names that they have there."""
    from deepspeed.pipe import LayerSpec, PipelineModule, TiedLayerSpec
    m, size = case["model"], case["model"]["hidden"]
    head = Linear(size, VOCAB, False)

    def tied_head(embedding, x):
        head.weight = embedding.weight
        return head(x)

    def loss_fn(logits, labels):
        state.losses.append(loss_of(logits, labels, labels.numel()))
        return state.losses[-1]

    embedding, parameters = (Embedding, size, case["train"]["precision"]), [name for name, _ in Block(m, size).named_parameters()]
    blocks = [TiedLayerSpec(f"layer_{n}", Block, m, size, tied_weight_attr=parameters) if m["uses"] > 1 else LayerSpec(Block, m, size)
              for n in whole.order]
    if m["tied"]:
        specs = [TiedLayerSpec("embedding", *embedding), *blocks, TiedLayerSpec("embedding", *embedding, forward_fn=tied_head)]
    else:
        specs = [LayerSpec(*embedding), *blocks, LayerSpec(Linear, size, VOCAB, m["bias"])]
    pipeline = PipelineModule(specs, num_stages=case["layout"]["pp"], loss_fn=loss_fn, partition_method=case["pipeline"]["partition_method"],
                              checkpointable_layers=["Block"] if case["pipeline"]["use_reentrant"] else None)   # a reentrant checkpoint needs an input with a gradient
    rename(pipeline, ["embedding", *(f"layers.{n}" for n in whole.order), "head"], head if m["tied"] else None)
    before = whole.order[:max(pipeline._local_start - 1, 0)]
    state.first_calls = {name: before.count(int(name.split(".")[1])) for name, _ in pipeline.named_modules() if name.startswith("layers.")}
    values = dict(whole.named_parameters(remove_duplicate=False))
    for name, parameter in pipeline.named_parameters():
        parameter.data.copy_(values[name])
        parameter.requires_grad_(values[name].requires_grad)
    return pipeline


def rename(pipeline, names, head):
    """Gives a stage's modules the names of the model on one device: DeepSpeed names them by number, and does not call them by name. head: a tied one."""
    mine = dict(zip(names[pipeline._local_start:pipeline._local_stop], pipeline.forward_funcs))
    tied = pipeline._modules.pop("tied_modules")
    pipeline._modules.clear()
    pipeline.__dict__["tied_modules"] = tied
    if head is not None and "head" in mine:
        mine["embedding"], mine["head"] = tied["embedding"], head
        head.weight = tied["embedding"].weight
    for name in sorted(mine):      # the embedding comes before a head with its weight
        *path, last = name.split(".")
        for part in path:
            if part not in pipeline._modules:
                pipeline.add_module(part, torch.nn.Module())
        (pipeline._modules[path[0]] if path else pipeline).add_module(last, mine[name])


"""DeepSpeed's tensor parallelism of the model (AutoTP): what a config says of it, and how ranks share features."""

COLUMNS, ROWS = ("query", "key", "value", "qkv", "up", "gate_up"), ("out", "down")
SEVERAL = {"qkv": 3, "gate_up": 2}      # layers of several projections, and how many


def tensor_settings(case):
    """The section tensor_parallel of a config."""
    specs = [{"patterns": [rf".*\.{name}\.weight$"], "partition_type": "column", **({"shape": [SEVERAL[name], -1]} if name in SEVERAL else {})}
             for name in COLUMNS]
    specs += [{"patterns": [rf".*\.{name}\.weight$"], "partition_type": "row"} for name in ROWS]
    head = case["tensor_parallel"]["head"]
    if head != "whole":
        specs.append({"patterns": [r"head\.weight$"], "partition_type": head, "gather_output": head == "column"})
    return {"autotp_size": case["layout"]["tp"], "tp_overlap_comm": case["tensor_parallel"]["tp_overlap_comm"],
            "partition_config": {"use_default_specs": False, "lm_head_patterns": ["head"], "layer_specs": specs}}


def share(size, rank, ranks):
    """(first, count) of the features that a rank has; the first ranks have one more where they are not alike."""
    counts = [size // ranks + (other < size % ranks) for other in range(ranks)]
    return sum(counts[:rank]), counts[rank]


def cut_of(layer, dim, case, rank):
    """(dim, size, runs): how many features a layer has on all ranks, and those of this rank, which has a part of each of several projections."""
    m, several = case["model"], SEVERAL.get(layer, 1)
    size = m["heads"] if layer == "core" else m["ffn"] if layer in ("up", "down", "gate_up") else VOCAB if layer == "head" and dim == 0 else m["hidden"]
    first, count = share(size, rank, case["layout"]["tp"])
    return dim, several * size, [[n * size + first, count] for n in range(several)]


def cut_of_parameter(name, case, rank):
    """As cut_of, or None for a parameter that is whole."""
    *path, layer, kind = name.split(".")
    head, tied = case["tensor_parallel"]["head"], case["model"]["tied"]
    columns, rows = COLUMNS, ROWS
    if not path:
        columns = ("head",) if head == "column" and not tied else ()     # DeepSpeed leaves tied ones whole
        rows = ("head", *(("embedding",) if tied else ())) if head == "row" else ()
    if layer in columns:
        return cut_of(layer, 0, case, rank)
    return cut_of(layer, 1, case, rank) if layer in rows and kind == "weight" else None


def cut_of_activation(kind, layer, case, rank):
    """As cut_of, for an output or the gradient of an input; None for a whole one."""
    return cut_of(layer, 2, case, rank) if layer == "core" or layer in (COLUMNS if kind == "act" else ROWS) else None


"""Trains a small transformer with DeepSpeed's engine, and the same one with plain PyTorch on one device."""
import contextlib
import inspect
import os
import shutil
import tempfile
import types

import torch



def optimizer_of(train, model):
    """A torch optimizer; of two groups the second one has the vectors, its own rate and no decay."""
    trained = [one for one in model.parameters() if one.requires_grad]
    groups = [{"params": trained}]
    if train["groups"] == 2:
        groups = [{"params": [one for one in trained if is_matrix(one)]},
                  {"params": [one for one in trained if not is_matrix(one)], "lr": 0.02, "weight_decay": 0.0}]
    groups = [{**group, "name": str(number)} for number, group in enumerate(groups) if group["params"]]
    if any(hasattr(one, "group_name") for one in trained):
        from deepspeed.moe.utils import split_params_into_different_moe_groups_for_optimizer
        groups = split_params_into_different_moe_groups_for_optimizer(groups)
    options = {"lr": 0.01, "weight_decay": train["weight_decay"]}
    if train["optimizer"] in ("sgd", "momentum"):
        return torch.optim.SGD(groups, momentum=0.9 if train["optimizer"] == "momentum" else 0, **options)
    return {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[train["optimizer"]](groups, eps=1e-4, **options)


def batch_of(case, step, microbatch, part):
    """This rank's rows and tokens of a microbatch, their labels, and how many tokens its data-parallel rank has."""
    generator = torch.Generator().manual_seed(1000 * step + microbatch + 7)
    ids = torch.randint(VOCAB, (case["train"]["rows"], case["train"]["tokens"] + 1), generator=generator)
    (row, rows), (at, parts) = part["dp"], part["cp"]
    ids = ids.chunk(rows)[row]
    return ids[:, :-1].chunk(parts, 1)[at], ids[:, 1:].chunk(parts, 1)[at], ids.shape[0] * case["train"]["tokens"]


def round_to(dtype, tensors):
    with torch.no_grad():
        for one in tensors:
            one.copy_(one.to(dtype))


def make(case, mesh, fill):
    model = Model(case)
    fill(model)
    round_to(DTYPES[case["train"]["precision"]], model.parameters())
    return alone(case, model) if mesh is None else spread(case, model, mesh)


def alone(case, model):
    """Plain PyTorch. Master weights are fp32; gradients have the roundings of DeepSpeed's sums in the model's type."""
    train, optimizer = case["train"], optimizer_of(case["train"], model)
    state.engine = None
    trained = [one for group in optimizer.param_groups for one in group["params"]]
    scale = train["loss_scale"] if train["precision"] == "fp16" else 1
    count = train["accumulation"] * train["backwards"]

    def step(number, trace):
        optimizer.zero_grad()
        for k in range(count):
            trace.microbatch(k)
            ids, labels, tokens = batch_of(case, number, k, {"dp": (0, 1), "cp": (0, 1)})
            loss = loss_of(model(ids, uses_extra(case, k)), labels, tokens)
            trace.scalar("loss", loss)
            (loss / train["accumulation"] * scale).backward()
        for one in trained:
            one.grad = torch.zeros_like(one) if one.grad is None else one.grad  # DeepSpeed updates every parameter of its buffers
            for _ in range(count + 2 if train["precision"] != "fp32" else 0):
                one.grad = one.grad.to(DTYPES[train["precision"]]).float()
            one.grad /= scale
        with trace.update():
            norm = torch.nn.utils.clip_grad_norm_(trained, train["clipping"] or float("inf"))
            optimizer.step()
        if train["grad_norm"]:
            trace.scalar("grad_norm", norm)
    return model, [], step


def config_of(case, ranks):
    train, engine, zero = case["train"], case["engine"], case["zero"]
    ours = ("init", "leaf", "offload_optimizer", "offload_param")
    config = {"train_micro_batch_size_per_gpu": train["rows"] // ranks, "steps_per_print": 10**9,
              "gradient_accumulation_steps": 1 if by_hand(case) else train["accumulation"], "gradient_clipping": train["clipping"],
              "prescale_gradients": engine["prescale_gradients"], "zero_allow_untested_optimizer": True,
              "gradient_predivide_factor": engine["gradient_predivide_factor"], "zero_force_ds_cpu_optimizer": False,
              "zero_optimization": {name: value for name, value in zero.items() if name not in ours}}
    for name in ("offload_optimizer", "offload_param"):
        if zero.get(name):
            config["zero_optimization"][name] = {"device": "cpu"}
    if case.get("load_universal"):
        config["checkpoint"] = {"load_universal": True}
    if case["layout"]["pp"] > 1:
        config["pipeline"] = pipeline_settings(case)
    if case["layout"]["tp"] > 1:
        config["tensor_parallel"] = tensor_settings(case)
    if train["precision"] == "bf16":
        config["bf16"] = {"enabled": True}
    if train["precision"] == "fp16":
        dynamic = {"loss_scale": 0, "initial_scale_power": train["loss_scale"].bit_length() - 1}  # which no overflow changes
        config["fp16"] = {"enabled": True, **(dynamic if engine["dynamic_loss_scale"] else {"loss_scale": train["loss_scale"]})}
    if engine["communication_data_type"] != "none":
        config["communication_data_type"] = engine["communication_data_type"]
    if engine["grad_accum_dtype"] != "none":
        config["data_types"] = {"grad_accum_dtype": engine["grad_accum_dtype"]}
    if engine["accumulate"] == "unmanaged":
        config["managed_gradient_accumulation"] = False
    return config


def load():
    """DeepSpeed, which would compile C++ for minutes to communicate in shared memory."""
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    import deepspeed
    import deepspeed.ops
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    # DeepSpeed asks whether oneDNN has kernels for fp16, which many processors lack. PyTorch's own run on all of them.
    deepspeed.accelerator.get_accelerator().is_fp16_supported = lambda: True
    return deepspeed


def groups_of(ranks, kind):
    """The groups of ranks as users hand them over: Megatron's functions, or DeepSpeed's own module, whose groups are kept."""
    if kind == "parallel_state_sp":
        from deepspeed.runtime.sequence_parallel import parallel_state_sp
        parallel_state_sp._SEQUENCE_PARALLEL_GROUP = ranks.get_group("cp")
        parallel_state_sp._SEQUENCE_DATA_PARALLEL_GROUP = torch.distributed.group.WORLD
        return parallel_state_sp
    mpu, alone = types.SimpleNamespace(), ranks.get_group("one")
    for name, group in {"data": ranks.get_group("dp"), "sequence": ranks.get_group("cp"), "sequence_data": torch.distributed.group.WORLD,
                        "model": alone, "tensor_model": alone}.items():
        setattr(mpu, f"get_{name}_parallel_group", lambda group=group: group)
        setattr(mpu, f"get_{name}_parallel_world_size", lambda group=group: torch.distributed.get_world_size(group))
        setattr(mpu, f"get_{name}_parallel_rank", lambda group=group: torch.distributed.get_rank(group))
    return mpu


def experts_of(case, sound):
    """DeepSpeed's layer with the weights of one on one device. Its experts have the numbers that they have over all ranks."""
    from deepspeed.moe.layer import MoE
    m, ep = case["model"], case["layout"]["ep"]
    layer = MoE(m["hidden"], Feed(m, m["hidden"]), m["experts"], ep, k=m["active"], drop_tokens=False, use_rts=False, top2_2nd_expert_sampling=False)
    number_experts(layer, torch.distributed.get_rank() % ep * (m["experts"] // ep))
    layer.load_state_dict(sound.state_dict(), strict=False)
    trained = {name: parameter.requires_grad for name, parameter in sound.named_parameters()}
    for name, parameter in layer.named_parameters():
        parameter.requires_grad_(trained[name])
    return layer


def number_experts(layer, first):
    """Names a layer's experts by numbers from `first` on; DeepSpeed's own begin with 0 on each rank."""
    experts = layer.deepspeed_moe.experts.deepspeed_experts
    experts._modules = {str(first + n): one for n, one in enumerate(experts)}


@contextlib.contextmanager
def numbers_of_rank(model):
    """Within it experts have DeepSpeed's own names, which checkpoints need."""
    layers = [one for one in model.modules() if hasattr(one, "deepspeed_moe")]
    first = [int(next(iter(layer.deepspeed_moe.experts.deepspeed_experts._modules))) for layer in layers]
    for layer in layers:
        number_experts(layer, 0)
    yield
    for layer, number in zip(layers, first):
        number_experts(layer, number)


def mesh_of(layout, mesh):
    """The ranks in DeepSpeed's order."""
    return mesh(pp=layout["pp"], dp=layout["dp"], cp=layout["cp"], tp=layout["tp"], one=1)


def spread(case, model, mesh):
    deepspeed = load()
    train, layout, engine_of = case["train"], case["layout"], case["engine"]
    if not deepspeed.comm.is_initialized():
        deepspeed.init_distributed("gloo", auto_mpi_discovery=False)
    from deepspeed.utils import groups
    groups.mpu = groups.mesh_device = None  # an earlier engine's
    ranks = mesh_of(layout, mesh)
    part = {name: (ranks.get_local_rank(name), layout[name]) for name in ("dp", "cp")}
    more = {}
    if layout["cp"] > 1:
        by_mesh = engine_of["groups"] == "mesh_param"
        more = {"mesh_param": (layout["dp"], layout["cp"])} if by_mesh else {"mpu": groups_of(ranks, engine_of["groups"])}
    def start(model, case):
        config = config_of(case, layout["dp"])
        if layout["pp"] > 1:
            model = pipeline_of(case, model)
        if layout["tp"] > 1:
            whole, model.embedding = model.embedding, torch.nn.Embedding(VOCAB, case["model"]["hidden"])   # DeepSpeed cuts no other class
            model.embedding.weight = whole.weight
        if case["zero"].get("init"):
            model = partitioned(deepspeed, case, model, config, more.get("mpu"))
        for block in model.layers if layout["cp"] > 1 else ():
            if block.attention is not None:
                block.attention.spread = ulysses(block.attention.core, ranks.get_group("cp"))
        for block in model.layers if case["model"]["experts"] else ():
            block.moe = experts_of(case, block.moe)
        if case["zero"].get("leaf"):
            deepspeed.utils.set_z3_leaf_modules(model, [Block])
        engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer_of(train, model), config=config, dist_init_required=False, **more)
        if engine_of["accumulate"] == "unmanaged" and not hasattr(engine, "managed_gradient_accumulation"):
            raise NotImplementedError("this version has no managed_gradient_accumulation")
        state.engine, state.safe = engine, engine_of["read"] == "safe_get"
        return model

    model = start(model, case)

    def step(number, trace):
        if number > 0 and number == case["checkpoint"]["before"]:
            trace.replace(reloaded(case, start), [])
        engine = state.engine
        if layout["pp"] > 1:
            train_batch(engine, [batch_of(case, number, k, part) for k in range(train["accumulation"])], trace)
        else:
            accumulate(engine, number, trace)
        if train["grad_norm"] and engine.get_global_grad_norm() is not None:
            trace.scalar("grad_norm", engine.get_global_grad_norm())

    def accumulate(engine, number, trace):
        with engine.coalesce_grad_reduction() if engine_of["accumulate"] == "coalesce" else contextlib.nullcontext():
            total = 0
            for k in range(train["accumulation"] * train["backwards"]):
                trace.microbatch(k)
                ids, labels, tokens = batch_of(case, number, k, part)
                loss = loss_of(engine(ids, uses_extra(case, k)), labels, tokens)
                trace.scalar("loss", loss)
                total = total + loss
                if not train["joint"] or (k + 1) % train["backwards"] == 0:
                    backward(case, engine, total, k)
                    total = 0
        if engine_of["accumulate"] == "unmanaged":
            with update_inside(engine, trace):
                engine.step()
        else:
            with trace.update():
                engine.step()
    return model, [], step


@contextlib.contextmanager
def update_inside(engine, trace):
    """Within it the engine's methods make the update by themselves, with all gradients and losses there."""
    update = engine._take_model_step

    def traced(*arguments):
        for k, loss in enumerate(state.losses):
            trace.microbatch(k)
            trace.scalar("loss", loss.detach())
        with trace.update():
            update(*arguments)
    engine._take_model_step = traced
    yield
    engine._take_model_step = update


def train_batch(engine, batches, trace):
    """A step of a pipeline."""
    state.losses.clear()
    with update_inside(engine, trace):
        engine.train_batch(iter([(ids, labels) for ids, labels, _ in batches]))


def after_loading(case):
    """The case of the engine that loads a checkpoint: of another stage the settings are DeepSpeed's own."""
    checkpoint, zero = case["checkpoint"], case["zero"]
    if checkpoint.get("into_stage", "same") not in ("same", zero["stage"]):
        zero = {"stage": checkpoint["into_stage"], **{name: zero[name] for name in ("reduce_scatter",) if name in zero}}
    return {**case, "zero": zero, "load_universal": checkpoint.get("universal", False)}


def make_universal(folder):
    """Converts the checkpoint of tag "saved" as a user does, by DeepSpeed's program: the result's tag is "universal"."""
    from deepspeed.checkpoint import ds_to_universal
    options = types.SimpleNamespace(input_folder=os.path.join(folder, "saved"), output_folder=os.path.join(folder, "universal"), num_extract_workers=1,
                                    num_merge_workers=1, keep_temp_folder=False, strict=True, inject_missing_state=True)
    with open(os.devnull, "w") as nothing, contextlib.redirect_stdout(nothing):
        ds_to_universal.main(options)


def reloaded(case, start):
    """Saves the running engine, and loads that into a new engine whose parameters were others. Returns the new engine's model."""
    folder = [tempfile.mkdtemp(prefix="sf-deepspeed-") if torch.distributed.get_rank() == 0 else None]
    torch.distributed.broadcast_object_list(folder)
    universal = case["checkpoint"].get("universal", False)
    try:
        with numbers_of_rank(state.engine.module):
            state.engine.save_checkpoint(folder[0], tag="saved")
        if universal and torch.distributed.get_rank() == 0:
            make_universal(folder[0])
        torch.distributed.barrier()
        state.engine.destroy()
        model = Model(case)
        for one in model.parameters():
            torch.nn.init.constant_(one, 0.5)
        model = start(model, after_loading(case))
        with numbers_of_rank(model):
            if state.engine.load_checkpoint(folder[0], tag="universal" if universal else "saved")[0] is None:
                raise RuntimeError("load_checkpoint found nothing to load")
        return model
    finally:
        torch.distributed.barrier()
        if torch.distributed.get_rank() == 0:
            shutil.rmtree(folder[0])


def ulysses(core, group):
    """Attention of all tokens of this rank's heads; versions before 0.15 want the tokens' dimension first."""
    from deepspeed.sequence.layer import DistributedAttention
    if "batch_dim_idx" in inspect.signature(DistributedAttention.forward).parameters:
        whole = DistributedAttention(core, group, 2, 1)
        return lambda *parts: whole(*parts, 0)

    def local(*parts):
        return core(*(one.transpose(0, 1) for one in parts)).transpose(0, 1).flatten(2).contiguous()
    swapped = DistributedAttention(local, group, 2, 0)
    return lambda *parts: swapped(*(one.transpose(0, 1).contiguous() for one in parts)).transpose(0, 1)


def partitioned(deepspeed, case, whole, config, mpu):
    """The model as zero.Init partitions it while it is made."""
    with deepspeed.zero.Init(config_dict_or_path=config, mpu=mpu):
        model = Model(case)
    for one, full in zip(model.parameters(), whole.parameters()):
        with deepspeed.zero.GatheredParameters([one], modifier_rank=0):
            one.data.copy_(full)
    return model


def by_hand(case):
    """Whether the loop divides losses by the number of microbatches: DeepSpeed counts none of them."""
    return case["engine"]["accumulate"] in ("no_sync", "coalesce")


def backward(case, engine, loss, k):
    """The backward pass of microbatch k of a step in one of the ways to accumulate, and engine.step() where DeepSpeed counts."""
    train, how = case["train"], case["engine"]["accumulate"]
    last = k == train["accumulation"] * train["backwards"] - 1
    if how == "set":
        engine.set_gradient_accumulation_boundary(last)
    with engine.no_sync() if how == "no_sync" and not last else contextlib.nullcontext():
        loss = loss / train["accumulation"] if by_hand(case) else loss
        if case["engine"]["backward"] == "engine":
            engine.backward(loss)
        else:
            engine.scale(loss).backward()
    if how in ("counted", "set") and not last and (k + 1) % train["backwards"] == 0:
        engine.step()


# --- the comparison ---
class Trace:
    """Keeps losses, gradients and changes of parameters, whole, by step."""

    def __init__(self, model, optimizer):
        self.step, self.seen, self.rounding = 0, {}, {}
        self.replace(model, optimizer)

    def replace(self, model, optimizer):
        self.parts, self.taken = model if isinstance(model, (list, tuple)) else [model], False
        self.before = dict(self.values())
        for one in optimizer if isinstance(optimizer, (list, tuple)) else [optimizer]:
            one.register_step_pre_hook(lambda *_: self.gradients())

    def named(self):
        for part in self.parts:
            for name, parameter in part.named_parameters():
                yield name.replace("module.", "").replace("_checkpoint_wrapped_module.", ""), parameter

    def values(self):
        for name, parameter in self.named():
            now = value(name, parameter) if "value" in globals() else parameter
            if now is not None:
                yield name, (now.full_tensor() if hasattr(now, "full_tensor") else now).detach().clone()

    def add(self, what, name, tensor, rounding=0.0):
        tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
        full_name = f"step {self.step}: {what} of {name}"
        self.seen[full_name], self.rounding[full_name] = tensor.detach().double().clone(), float(rounding)

    def microbatch(self, number):
        pass

    def gradients(self):
        if not self.taken:
            for name, parameter in self.named():
                found = gradient(name, parameter) if "gradient" in globals() else parameter.grad
                if found is not None:
                    self.add("gradient", name, found)
        self.taken = True

    def scalar(self, name, number):
        if name != "loss":  # which is of this rank's rows
            self.add("value", name, torch.as_tensor(number).reshape(1))

    @contextlib.contextmanager
    def update(self):
        self.gradients()
        yield

    def end_step(self):
        for name, now in self.values():
            self.add("parameter after the update", name, now)
            if name in self.before:
                self.add("change", name, now.double() - self.before[name].double(), 4 * torch.finfo(now.dtype).eps * now.double().norm())
            self.before[name] = now
        self.step, self.taken = self.step + 1, False


def fill(model):
    for number, (name, parameter) in enumerate(model.named_parameters()):
        generator = torch.Generator().manual_seed(number)
        noise = torch.randn(parameter.shape, generator=generator)
        with torch.no_grad():
            parameter.copy_(noise * 0.25 if parameter.dim() > 1 else noise * 0.125 + (not name.endswith("bias")))


def train(mesh):
    model, optimizer, step = make(CASE, mesh, fill)
    trace = Trace(model, optimizer)
    for number in range(STEPS):
        torch.manual_seed(CASE.get("seed", 0) + 1 + number)
        step(number, trace)
        trace.end_step()
    return trace.seen, trace.rounding


def run(rank):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(20000 + os.getppid() % 12000), RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(RANKS), GLOO_SOCKET_IFNAME="lo")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    from torch.distributed.device_mesh import init_device_mesh
    want, rounding = train(None)
    got, _ = train(lambda **sizes: init_device_mesh("cpu", tuple(sizes.values()), mesh_dim_names=tuple(sizes)))
    wrong, subject = 0, FIRST.split("/")[-2] if "/" in FIRST else ""
    for other in range(RANKS):
        dist.barrier()
        for name, value in sorted(got.items(), key=lambda one: subject not in one[0]) if other == rank else ():
            right = want.get(name)
            if right is None or right.shape != value.shape:
                continue
            kind = name.split(" of ")[0]
            largest = max(one.norm() for other_name, one in want.items() if other_name.startswith(kind))
            error = (value - right).norm()
            if not error < 0.001 * right.norm() + 1e-6 * largest + rounding[name]:
                wrong += 1
                if wrong <= 4:
                    share = 100 * error / right.norm().clamp(min=1e-30)
                    print(f"rank {rank}, {name}: off by {share:.1f} %\n  got  {value.flatten()[:6].tolist()}\n  want {right.flatten()[:6].tolist()}", flush=True)
    dist.barrier()
    os._exit(1 if wrong else 0)


if __name__ == "__main__":
    context = mp.get_context("spawn")
    processes = [context.Process(target=run, args=(rank,)) for rank in range(RANKS)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    codes = [process.exitcode for process in processes]
    print("exit codes of the ranks:", codes)
    sys.exit(0 if not any(codes) else 1)
