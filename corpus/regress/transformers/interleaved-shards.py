"""Found by shardfuzz: param of mlp.experts.gate_up_proj of transformers on 2 ranks is not what one device gives.

Run it with python: it needs transformers 5.24.0 and torch alone, and starts 2 ranks itself. Exit code 1: something is wrong.
"""
import contextlib, os, sys
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

CASE = {'model': {'type': 'inkling2_text', 'layers': 2, 'heads': 4, 'queries_per_key': 1, 'intermediate': 32, 'vocabulary': 64, 'tied': False, 'bias': False, 'attention': 'default', 'experts': 4, 'active': 2, 'expert_code': 'default'}, 'data': {'rows': 4, 'tokens': 8, 'mask': 'none'}, 'train': {'steps': 1, 'microbatches': 1, 'optimizer': 'sgd', 'clip': 0, 'loss': 'logits', 'checkpointing': False}, 'layout': {'tp': 2, 'dp': 1, 'replicas': 1, 'ep': 1, 'ep_implementation': 'auto', 'reduce': 'always', 'load': 'one device'}, 'seed': 0, 'settings': {'vocab_size': 64, 'unpadded_vocab_size': 64, 'hidden_size': 32, 'num_hidden_layers': 2, 'num_attention_heads': 4, 'num_key_value_heads': 4, 'head_dim': 8, 'swa_num_attention_heads': 4, 'swa_num_key_value_heads': 4, 'swa_head_dim': 8, 'sliding_window_size': 4, 'd_rel': 16, 'rel_extent': 64, 'log_scaling_n_floor': 64, 'layer_types': ['hybrid_sliding', 'hybrid'], 'max_position_embeddings': 64, 'moe_intermediate_size': 16, 'n_routed_experts': 4, 'num_experts_per_tok': 2, 'eos_token_id': 2}}
FIRST, RANKS, STEPS = 'param of mlp.experts.gate_up_proj', 2, 1


# --- the program ---
"""Training steps of a transformers model, on one device or in a layout that `from_pretrained` makes of a checkpoint."""
import contextlib
import logging
import shutil
import tempfile

import torch
import torch.distributed as dist
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, Trainer
from transformers.distributed import DistributedConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
from transformers.utils.logging import disable_progress_bar

logging.getLogger("transformers").setLevel(logging.ERROR)
disable_progress_bar()
IGNORED = -100


def batch_of(case):
    """Token numbers and labels, [microbatches, rows, tokens], of all data-parallel ranks."""
    data, generator = case["data"], torch.Generator().manual_seed(case["seed"] + 1)
    shape = (case["train"]["microbatches"], data["rows"], data["tokens"])
    tokens = torch.randint(8, case["model"]["vocabulary"], shape, generator=generator)
    labels = tokens.clone()
    if data["mask"] == "random":
        labels[torch.rand(shape, generator=generator) < 0.4] = IGNORED
    if data["mask"] == "rows":                           # the rows of a rank have other numbers of labels than those of the next one
        for row in range(data["rows"]):
            labels[:, row, data["tokens"] - 2 * row % data["tokens"]:] = IGNORED
    labels[..., 1] = tokens[..., 1]                      # a row has a label at least
    return tokens, labels


def config_of(layout):
    given = {"fsdp_size": layout["dp"], "dp_replicate_size": layout["replicas"], "tp_size": layout["tp"], "ep_size": layout["ep"],
             "ep_implementation": layout["ep_implementation"], "enable_expert_parallel": layout["ep"] > 1}
    return DistributedConfig(**{name: value for name, value in given.items() if name in DistributedConfig.__dataclass_fields__})


def load(case, model, layout, fill):
    """What `from_pretrained` makes of the model's checkpoint on the ranks: one that a single device has written, or ranks.
    layout.load=filled: it has the model's parameters even where loading is wrong."""
    folder = [tempfile.mkdtemp(prefix="sf-transformers-") if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(folder)

    def loaded(name, layout):
        given = {"distributed_config": config_of(layout), "dtype": torch.float32, **implementations(case)}
        return type(model).from_pretrained(f"{folder[0]}/{name}", **given)
    try:
        if dist.get_rank() == 0:
            model.save_pretrained(f"{folder[0]}/one")
        dist.barrier()
        if layout["load"] in ("one device", "filled"):
            made = loaded("one", layout)
            if layout["load"] == "filled":
                fill(made)
            return made
        first = {**layout, "dp": layout["tp"], "tp": layout["dp"], "ep": 1} if layout["load"] == "other layout" else layout
        loaded("one", first).save_pretrained(f"{folder[0]}/ranks", distributed_checkpoint=layout["load"] == "shards")
        dist.barrier()
        return loaded("ranks", layout)
    finally:
        dist.barrier()
        if dist.get_rank() == 0:
            shutil.rmtree(folder[0])


def implementations(case):
    given = {"attn_implementation": case["model"]["attention"], "experts_implementation": case["model"]["expert_code"]}
    return {name: value for name, value in given.items() if value != "default"}


def make(case, mesh, fill):
    layout, train = case["layout"], case["train"]
    torch.manual_seed(case["seed"])
    causal = case["model"]["type"] in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    config = AutoConfig.for_model(case["model"]["type"], **case["settings"])
    model = (AutoModelForCausalLM if causal else AutoModel).from_config(config, **implementations(case))
    fill(model)
    if mesh is not None:
        model = load(case, model, layout, fill)
    model.train()
    if train["checkpointing"]:
        model.gradient_checkpointing_enable()
    if train["optimizer"] == "sgd":
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=False)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, foreach=False)

    parts = 1 if mesh is None else layout["dp"] * layout["replicas"]
    part = 0 if mesh is None else dist.get_rank() // layout["tp"]
    tokens, labels = batch_of(case)
    size = case["data"]["rows"] // parts
    rows = slice(part * size, (part + 1) * size)
    count = (labels[..., 1:] != IGNORED).sum()

    def loss_of(number):
        ids, wanted = tokens[number, rows], labels[number, rows]
        if train["loss"] == "labels" and causal:
            loss = model(input_ids=ids, labels=wanted, use_cache=False, num_items_in_batch=count).loss
        else:
            scores = model(input_ids=ids, use_cache=False)[0]
            scores, wanted = scores[:, :-1].flatten(0, 1), wanted[:, 1:].flatten()
            # A model without a head has fewer scores than there are tokens.
            wanted = torch.where(wanted == IGNORED, wanted, wanted % scores.shape[-1])
            loss = torch.nn.functional.cross_entropy(scores, wanted, ignore_index=IGNORED, reduction="sum") / count
        return loss * parts                              # gradients are the mean over data-parallel ranks

    def step(number, trace):
        for microbatch in range(train["microbatches"]):
            trace.microbatch(microbatch)
            last = microbatch == train["microbatches"] - 1
            with contextlib.nullcontext() if last or parts == 1 or layout["reduce"] == "always" else deferred(model):
                loss = loss_of(microbatch)
                trace.scalar("loss", loss.detach())
                loss.backward()
        trace.gradients()
        norm = clipped(model, train["clip"] or float("inf"))
        trace.scalar("grad_norm", norm)
        optimizer.step()
        optimizer.zero_grad()
    return model, optimizer, step


def clipped(model, most):
    """The norm of all gradients, clipped as transformers' Trainer does; versions that cannot clip such gradients: by hand."""
    if hasattr(Trainer, "_mixed_mesh_grad_norm"):
        return Trainer._mixed_mesh_grad_norm(None, model, most)
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    norm = torch.stack([(one.full_tensor() if hasattr(one, "full_tensor") else one).norm() for one in gradients]).norm()
    for one in gradients if norm > most else ():
        one.mul_(most / norm.item())
    return norm


@contextlib.contextmanager
def deferred(model):
    """As transformers' Trainer does for all microbatches but the last."""
    with Trainer._defer_fsdp_gradient_reduction(type("OfModel", (), {"model": model})):
        yield


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
                if parameter.grad is not None:
                    self.add("gradient", name, parameter.grad)
        self.taken = True

    def scalar(self, name, value):
        self.add("value", name, torch.as_tensor(value).reshape(1))

    @contextlib.contextmanager
    def update(self):
        self.gradients()
        yield

    def end_step(self):
        for name, parameter in self.named():
            self.add("parameter after the update", name, parameter)
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
