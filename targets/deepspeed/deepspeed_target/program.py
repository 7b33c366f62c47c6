"""Trains a small transformer with DeepSpeed's engine, and the same one with plain PyTorch on one device."""
import contextlib
import datetime
import inspect
import math
import os
import shutil
import tempfile
import types

import torch

from .model import DTYPES, VOCAB, Block, Feed, Model, loss_of, uses_extra
from .pipeline import pipeline_of, pipeline_settings
from .tensor import tensor_settings
from .values import is_matrix, state

ORDER = ("pp", "dp", "cp", "tp")    # of the ranks, as DeepSpeed numbers them


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


def forget():
    """Drops DeepSpeed's groups of a world that is joined again."""
    import deepspeed
    from deepspeed.utils import groups
    deepspeed.comm.comm.cdb = None
    getattr(groups, "_release_process_group_references", lambda: None)()  # older versions keep less
    groups._WORLD_GROUP = groups.mpu = groups.mesh_device = None


def count_anew():
    """Numbers parameters and modules from 0 again, as a new process does: stage 3 compares the numbers of all ranks."""
    import deepspeed
    from deepspeed.runtime.zero.parameter_offload import DeepSpeedZeRoOffload
    deepspeed.zero.Init.param_id = DeepSpeedZeRoOffload._register_deepspeed_module.__defaults__[0][0] = 0


def join_first(ranks):
    """Replaces the world by one of the first `ranks` ranks, as in a job that has only these. Every rank calls it. Returns whether this rank is in it."""
    c10d = torch.distributed.distributed_c10d
    state.all_ranks = state.all_ranks or (torch.distributed.get_rank(), c10d._get_default_store())
    (rank, store), state.worlds = state.all_ranks, state.worlds + 1
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    forget()
    count_anew()
    os.environ["WORLD_SIZE"] = str(ranks)
    if rank == 0:
        store.set(f"ready {state.worlds}", "")
    else:
        wait_for_first(state.worlds)
    if rank < ranks:
        torch.distributed.init_process_group("gloo", store=torch.distributed.PrefixStore(f"world {state.worlds}", store), rank=rank, world_size=ranks,
                                             timeout=datetime.timedelta(seconds=120))
    return rank < ranks


def wait_for_first(world):
    """Waits until rank 0 makes that world. Raises NotImplementedError if rank 0 says that the case is not supported."""
    said = state.all_ranks[1].get(f"ready {world}").decode()
    if said:
        raise NotImplementedError(said)


def tell_ranks_outside(text):
    """Rank 0 tells the ranks outside this world that the case is over ("") or why it is not supported: they would wait for the next world otherwise."""
    if state.all_ranks is not None and state.all_ranks[0] == 0:
        for name in (state.worlds + 1, "end"):
            state.all_ranks[1].set(f"ready {name}", text)


def at_step(case, number):
    """The case with the number of data-parallel ranks that train in that step."""
    checkpoint, layout = case["checkpoint"], case["layout"]
    some = checkpoint.get("loaded_by" if 0 < checkpoint["before"] <= number else "saved_by", 0)
    return {**case, "layout": {**layout, "dp": some or layout["dp"]}}


def ranks_of(case):
    return math.prod(case["layout"][axis] for axis in ORDER)


def changes_ranks(case):
    """Whether fewer ranks than the layout has train before the checkpoint or after it."""
    return case["checkpoint"]["before"] > 0 and any(case["checkpoint"].get(name, 0) for name in ("saved_by", "loaded_by"))


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
    return mesh(**{axis: layout[axis] for axis in ORDER}, one=1)


def spread(case, model, mesh):
    deepspeed = load()
    train, engine_of = case["train"], case["engine"]
    part = {}

    def start(model, case):
        layout, more = case["layout"], {}
        if not deepspeed.comm.is_initialized():
            deepspeed.init_distributed("gloo", auto_mpi_discovery=False)
        from deepspeed.utils import groups
        groups.mpu = groups.mesh_device = None  # an earlier engine's
        ranks = mesh_of(layout, mesh)
        part.update({name: (ranks.get_local_rank(name), layout[name]) for name in ("dp", "cp")})
        if layout["cp"] > 1:
            by_mesh = engine_of["groups"] == "mesh_param"
            more = {"mesh_param": (layout["dp"], layout["cp"])} if by_mesh else {"mpu": groups_of(ranks, engine_of["groups"])}
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

    state.engine, state.all_ranks, state.worlds = None, None, 0
    first = at_step(case, 0)
    works = not changes_ranks(case) or join_first(ranks_of(first))
    model = start(model, first) if works else []

    def step(number, trace):
        if number > 0 and number == case["checkpoint"]["before"]:
            trace.replace(reloaded(case, start), [])
        engine = state.engine
        if engine is None:  # this rank is outside the world of the step
            with trace.update():
                return
        if case["layout"]["pp"] > 1:
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
    case = at_step(case, checkpoint["before"])
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
    """Saves the running engine, and loads that into a new engine whose parameters were others. Returns the new engine's model; [] on a rank outside its world."""
    universal, after, folder = case["checkpoint"].get("universal", False), after_loading(case), None
    try:
        if state.engine is not None:
            folder = of_first(tempfile.mkdtemp(prefix="sf-deepspeed-") if torch.distributed.get_rank() == 0 else None)
            with numbers_of_rank(state.engine.module):
                state.engine.save_checkpoint(folder, tag="saved")
            torch.distributed.barrier()
            if universal and torch.distributed.get_rank() == 0:
                make_universal(folder)
            torch.distributed.barrier()
            state.engine.destroy()
            state.engine = None
        if changes_ranks(case) and not join_first(ranks_of(after)):
            return []
        folder = of_first(folder)
        model = Model(case)
        for one in model.parameters():
            torch.nn.init.constant_(one, 0.5)
        model = start(model, after)
        with numbers_of_rank(model):
            if state.engine.load_checkpoint(folder, tag="universal" if universal else "saved")[0] is None:
                raise RuntimeError("load_checkpoint found nothing to load")
        torch.distributed.barrier()
        return model
    finally:
        if folder is not None and torch.distributed.is_initialized() and torch.distributed.get_rank() == 0:
            shutil.rmtree(folder)


def of_first(value):
    """The value that rank 0 passed."""
    values = [value]
    torch.distributed.broadcast_object_list(values)
    return values[0]


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
