"""Found by shardfuzz: s0/mb0/step/main_grad/layers.0.norm.weight/0 of deepspeed on 1 ranks is not what one device gives.

Run it with python: it needs deepspeed 0.19.8 and torch alone, and starts 1 ranks itself. Exit code 1: something is wrong.
"""
import contextlib, os, sys
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

CASE = {'layout': {'dp': 1, 'cp': 1}, 'zero': {'stage': 3, 'overlap_comm': False, 'reduce_bucket_size': 256}, 'engine': {'accumulate': 'counted', 'backward': 'engine', 'dynamic_loss_scale': False, 'groups': 'parallel_state_sp', 'read': 'buffers', 'prescale_gradients': False, 'gradient_predivide_factor': 1.0, 'communication_data_type': 'none', 'grad_accum_dtype': 'none'}, 'train': {'precision': 'fp32', 'loss_scale': 1, 'optimizer': 'sgd', 'weight_decay': 0.0, 'groups': 1, 'clipping': 0.0, 'grad_norm': False, 'steps': 1, 'accumulation': 1, 'backwards': 1, 'joint': False, 'rows': 12, 'tokens': 4}, 'model': {'layers': 1, 'uses': 2, 'hidden': 8, 'ffn': 16, 'bias': False, 'attention': False, 'heads': 4, 'tied': False, 'extra': 'none', 'frozen': 'none', 'recompute': 'reentrant'}, 'seed': 0}
FIRST, RANKS, STEPS = 's0/mb0/step/main_grad/layers.0.norm.weight/0', 1, 1


# --- the program ---
"""Trains a small transformer with DeepSpeed's engine, and the same one with plain PyTorch on one device."""
import contextlib
import inspect
import os
import types

import torch
import torch.nn.functional as F
import torch.utils.checkpoint

VOCAB = 16
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class Embedding(torch.nn.Embedding):
    """Weights may be kept in more precision than the model computes in: the reference trains what DeepSpeed calls master weights."""

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
    def __init__(self, size, heads, bias):
        super().__init__()
        self.heads, self.core, self.spread = heads, Core(), None
        self.query, self.value, self.out = (Linear(size, size, bias) for _ in range(3))
        self.key = Linear(size, size, False)  # the gradient of its bias would be rounding alone

    def forward(self, x):
        parts = [one(x).unflatten(2, (self.heads, -1)) for one in (self.query, self.key, self.value)]
        mixed = self.core(*parts) if self.spread is None else self.spread(*parts)
        return self.out(mixed.flatten(2))


class Block(torch.nn.Module):
    def __init__(self, model, size):
        super().__init__()
        self.norm = Norm(size)
        self.attention = Attention(size, model["heads"], model["bias"]) if model["attention"] else None
        self.up, self.down = Linear(size, model["ffn"], model["bias"]), Linear(model["ffn"], size, model["bias"])

    def forward(self, x):
        if self.attention is not None:
            x = x + self.attention(x)
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Model(torch.nn.Module):
    def __init__(self, case):
        super().__init__()
        model, size = case["model"], case["model"]["hidden"]
        self.order, self.recompute = list(range(model["layers"])) * model["uses"], model["recompute"]
        self.embedding = Embedding(VOCAB, size)
        self.embedding.dtype = DTYPES[case["train"]["precision"]]
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


def optimizer_of(train, model):
    """A torch optimizer; of two groups the second one has the vectors, its own rate and no decay."""
    trained = [one for one in model.parameters() if one.requires_grad]
    groups = [{"params": trained}]
    if train["groups"] == 2:
        groups = [{"params": [one for one in trained if is_matrix(one)]},
                  {"params": [one for one in trained if not is_matrix(one)], "lr": 0.02, "weight_decay": 0.0}]
    groups = [group for group in groups if group["params"]]
    options = {"lr": 0.01, "weight_decay": train["weight_decay"]}
    if train["optimizer"] in ("sgd", "momentum"):
        return torch.optim.SGD(groups, momentum=0.9 if train["optimizer"] == "momentum" else 0, **options)
    return {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[train["optimizer"]](groups, eps=1e-4, **options)


def is_matrix(parameter):
    return len(getattr(parameter, "ds_shape", parameter.shape)) > 1


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
    """Plain PyTorch. Master weights are fp32; gradients have the roundings of DeepSpeed's sums in the model's type, one for each summand."""
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
    """The groups of ranks as users hand them over: Megatron's functions, or DeepSpeed's own module, whose groups would be new in each case."""
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


def spread(case, model, mesh):
    deepspeed = load()
    train, layout, engine_of = case["train"], case["layout"], case["engine"]
    if not deepspeed.comm.is_initialized():
        deepspeed.init_distributed("gloo", auto_mpi_discovery=False)
    from deepspeed.utils import groups
    groups.mpu = groups.mesh_device = None  # an earlier engine's
    ranks = mesh(dp=layout["dp"], cp=layout["cp"], one=1)
    part = {name: (ranks.get_local_rank(name), layout[name]) for name in ("dp", "cp")}
    more = {}
    if layout["cp"] > 1:
        by_mesh = engine_of["groups"] == "mesh_param"
        more = {"mesh_param": (layout["dp"], layout["cp"])} if by_mesh else {"mpu": groups_of(ranks, engine_of["groups"])}
    config = config_of(case, layout["dp"])
    if case["zero"].get("init"):
        model = partitioned(deepspeed, case, model, config, more.get("mpu"))
    for block in model.layers if layout["cp"] > 1 else ():
        if block.attention is not None:
            block.attention.spread = ulysses(block.attention.core, ranks.get_group("cp"))
    if case["zero"].get("leaf"):
        deepspeed.utils.set_z3_leaf_modules(model, [Block])
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer_of(train, model), config=config, dist_init_required=False, **more)
    if engine_of["accumulate"] == "unmanaged" and not hasattr(engine, "managed_gradient_accumulation"):
        raise NotImplementedError("this version has no managed_gradient_accumulation")
    state.engine, state.safe = engine, engine_of["read"] == "safe_get"

    def step(number, trace):
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
        if engine_of["accumulate"] == "unmanaged":  # gradients are complete inside of engine.step()
            update = engine._take_model_step

            def traced(*arguments):
                with trace.update():
                    update(*arguments)
            engine._take_model_step = traced
            engine.step()
            engine._take_model_step = update
        else:
            with trace.update():
                engine.step()
        if train["grad_norm"] and engine.get_global_grad_norm() is not None:
            trace.scalar("grad_norm", engine.get_global_grad_norm())
    return model, [], step


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


state = types.SimpleNamespace(engine=None, safe=False)  # of the running case; no engine on one device


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


# --- the comparison ---
class Trace:
    """Keeps losses, gradients and changes of parameters, whole, by step."""

    def __init__(self, model):
        self.parts, self.step, self.seen, self.taken = model if isinstance(model, (list, tuple)) else [model], 0, {}, False

    def named(self):
        for part in self.parts:
            for name, parameter in part.named_parameters():
                yield name.replace("module.", "").replace("_checkpoint_wrapped_module.", ""), parameter

    def add(self, what, name, tensor):
        tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
        self.seen[f"step {self.step}: {what} of {name}"] = tensor.detach().double().clone()

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
        for name, parameter in self.named():
            self.add("parameter after the update", name, value(name, parameter) if "value" in globals() else parameter)
        self.step, self.taken = self.step + 1, False


def fill(model):
    for number, (name, parameter) in enumerate(model.named_parameters()):
        generator = torch.Generator().manual_seed(number)
        noise = torch.randn(parameter.shape, generator=generator)
        with torch.no_grad():
            parameter.copy_(noise * 0.25 if parameter.dim() > 1 else noise * 0.125 + (not name.endswith("bias")))


def train(mesh):
    model, optimizer, step = make(CASE, mesh, fill)
    trace = Trace(model)
    for one in (optimizer if isinstance(optimizer, (list, tuple)) else [optimizer]):
        one.register_step_pre_hook(lambda *_: trace.gradients())
    for number in range(STEPS):
        torch.manual_seed(CASE.get("seed", 0) + 1 + number)
        step(number, trace)
        trace.end_step()
    return trace.seen


def run(rank):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(20000 + os.getppid() % 12000), RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(RANKS), GLOO_SOCKET_IFNAME="lo")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    from torch.distributed.device_mesh import init_device_mesh
    want = train(None)
    got = train(lambda **sizes: init_device_mesh("cpu", tuple(sizes.values()), mesh_dim_names=tuple(sizes)))
    wrong = 0
    for other in range(RANKS):
        dist.barrier()
        for name, value in got.items() if other == rank else ():
            right = want.get(name)
            if right is None or right.shape != value.shape:
                continue
            off = (value - right).norm() / right.norm().clamp(min=1e-30)
            if not off < 1e-3:
                wrong += 1
                if wrong <= 4:
                    print(f"rank {rank}, {name}: off by {100 * off:.1f} %\n  got  {value.flatten()[:6].tolist()}\n  want {right.flatten()[:6].tolist()}", flush=True)
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
