"""Text of stand-alone scripts (script.py): parts that are put in each where its case needs it. @NAME@: filled in by script.py."""

HEAD = '''\
"""megatron-core 0.16.1, torch 2.13.0, CPU: @WHAT@ on @RANKS@ ranks (@LAYOUT@) is not that of one device.
    python THIS_FILE && mpirun --oversubscribe -n @RANKS@ python THIS_FILE            (or: torchrun --nproc-per-node @RANKS@ THIS_FILE)
The run on one device leaves its numbers in THIS_FILE.pt; each rank of the second run prints where it is off most."""
import contextlib, os, re, zlib
import torch, torch.distributed as dist
RANK, RANKS = (int(os.environ.get("OMPI_COMM_WORLD_" + key, os.environ.get(other, one))) for key, other, one in (("RANK", "RANK", 0), ("SIZE", "WORLD_SIZE", 1)))
os.environ.update(TORCHDYNAMO_DISABLE="1", GLOO_SOCKET_IFNAME="lo", RANK=str(RANK), WORLD_SIZE=str(RANKS),
                  MASTER_ADDR=os.environ.get("MASTER_ADDR", "127.0.0.1"), MASTER_PORT=os.environ.get("MASTER_PORT", str(20000 + os.getppid() % 12000)))
ONE = RANKS == 1
class Nothing(contextlib.nullcontext):     # what megatron-core takes from CUDA, on a CPU
    __getattr__ = lambda self, name: lambda *args, **options: Nothing()
def on_cpu(make):
    return lambda *args, pin_memory=None, device=None, **options: make(*args, device=device and "cpu", **options)
for name in "empty zeros ones full tensor arange rand randn".split(): setattr(torch, name, on_cpu(getattr(torch, name)))
for name in "synchronize set_device manual_seed_all Stream Event stream current_stream default_stream manual_seed".split():
    setattr(torch.cuda, name, lambda *args, **options: Nothing())
torch.cuda.current_device, torch.cuda.get_rng_state = lambda: torch.device("cpu"), lambda *args: torch.get_rng_state()
torch.Tensor.type = lambda self, *args, kind=torch.Tensor.type: kind(self, *args) if args else kind(self).replace("torch.", "torch.cuda.")
torch.Tensor.cuda, torch.Tensor.record_stream = lambda self, *args, **options: self, lambda *args: None
from megatron.core import parallel_state as groups, tensor_parallel
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads, param_and_grad_buffer as buffers
from megatron.core.models.gpt import gpt_layer_specs as specs, gpt_model
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.transformer import module, transformer_block, transformer_config
tensor_parallel.random._get_cuda_rng_state, tensor_parallel.random._set_cuda_rng_state = lambda *a, **k: torch.get_rng_state(), lambda state, *a, **k: torch.set_rng_state(state)
buffers._coalescing_manager = lambda *args, **options: Nothing()
'''

OVERLAP = '''\
def at_once(call):                         # Gloo cannot coalesce: each collective is waited for
    return lambda *args, async_op=False, **options: call(*args, **options)
dist.all_reduce, buffers.dist_reduce_scatter_func = at_once(dist.all_reduce), at_once(buffers.dist_reduce_scatter_func)
'''

# The package's own norm for a CPU refuses sequence parallelism; this one is marked as its others are.
NORM = '''\
from megatron.core.models import backends
class Norm(torch.nn.@NORMALIZATION@):
    def __init__(self, config, hidden_size, eps=1e-5, **options):
        super().__init__(hidden_size, eps, dtype=config.params_dtype)
        for parameter in self.parameters():
            parameter.sequence_parallel = config.sequence_parallel
@NORM_FORWARD@backends.WrappedTorchNorm = backends.LNImpl = specs.LNImpl = transformer_block.LayerNormImpl = Norm
'''
NORM_FORWARD = '''\
    def forward(self, x):
        options = {} if getattr(self, "bias", None) is None else {"bias": self.bias.to(x.dtype)}
        apply = torch.nn.functional.layer_norm if options else torch.nn.functional.rms_norm
        return apply(x, self.normalized_shape, (self.weight + @GAMMA@).to(x.dtype), eps=self.eps, **options).to(self.weight.dtype)
'''

ATTENTION = '''\
from megatron.core.transformer.dot_product_attention import DotProductAttention
class Attention(DotProductAttention):      # @ATTENTION_WHY@
    def __init__(self, config, *args, k_channels=None, v_channels=None, **options):
@ATTENTION_SIZE@        super().__init__(config, *args, **options)
@ATTENTION_REST@'''
ATTENTION_CONTEXT = '''\
    def forward(self, query, key, value, mask, *args, **options):
        gather, order = tensor_parallel.gather_from_sequence_parallel_region, torch.tensor(sum(POSITIONS, [])).argsort()
        key, value = (gather(x.contiguous(), group=groups.get_context_parallel_group())[order] for x in (key, value))
        return super().forward(query, key, value, mask[..., POSITIONS[groups.get_context_parallel_rank()], :], *args, **options)
'''

LINEAR_ATTENTION = '''\
import copy
from megatron.core.ssm import gated_delta_net as gdn
from megatron.core.models.gpt.experimental_attention_variant_module_specs import get_linear_attention_pattern
from megatron.core.tensor_parallel.layers import ColumnParallelLinear, RowParallelLinear
gdn.HAVE_FLA, gdn.chunk_gated_delta_rule = True, gdn.torch_chunk_gated_delta_rule    # the package's own form in torch
gdn.l2norm = lambda x: x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 2.0**-20)
LINEAR = specs.ModuleSpec(gdn.GatedDeltaNet, submodules=gdn.GatedDeltaNetSubmodules(ColumnParallelLinear, Norm, RowParallelLinear))
'''

LATENT = '''\
from megatron.core.transformer import multi_latent_attention
multi_latent_attention.TELinear = type("Absent", (), {})
'''

EXPERTS = '''\
from megatron.core.transformer.moe import moe_utils, token_dispatcher
moe_utils.te_general_gemm = None
token_dispatcher.maybe_move_tensor_to_cpu = lambda x, as_numpy=False, record_stream=False: x.numpy() if as_numpy and x is not None else x
'''

RECOMPUTE = '''\
tensor_parallel.random.FP8GlobalStateManager = type("Absent", (), {name: staticmethod(lambda: False) for name in ("is_fp8_enabled", "is_fp8_calibration", "get_fp8_recipe")})
tensor_parallel.random.activation_recompute_forward = tensor_parallel.random.fp8_autocast = lambda *args, **options: Nothing()
'''

SHARD = '''\
def shard(full, dimension, parts, axis):   # each of the parts is cut by itself: a list of their sizes, or how many equal ones there are
    pieces, (count, at) = full.split(parts, dimension) if isinstance(parts, list) else full.chunk(parts, dimension), SIZES[axis]
    return torch.cat([piece.chunk(count, dimension)[at] for piece in pieces], dimension)
'''

WATCH_GRADIENT = '''\
def watch(part, args, options):            # the gradient of this call's input alone, whoever else reads the tensor
    inputs = {**dict(enumerate(args)), **options}
    keys = [key for key, x in inputs.items() if torch.is_tensor(x) and x.requires_grad and not isinstance(x, torch.nn.Parameter)]
    calls.append(now[0]) if keys else None
    if len(keys) > @INPUT@ and now[0] == @MICROBATCH@ and calls.count(@MICROBATCH@) == @CALL@ + 1:
        inputs[keys[@INPUT@]] = x = inputs[keys[@INPUT@]].view_as(inputs[keys[@INPUT@]])
        x.register_hook(lambda gradient: seen.append(gradient * (1 if ONE else @SCALE@)))
    return tuple(inputs[i] for i in range(len(args))), {key: inputs[key] for key in options}
'''
WATCH_OUTPUT = '''\
def watch(part, args, output):
    calls.append(now[0]) if torch._C._current_graph_task_id() == -1 else None
    if now[0] == @MICROBATCH@ and calls.count(@MICROBATCH@) == @CALL@ + 1 and not seen:
        output = output[0] if isinstance(output, tuple) else output
        seen.append(output.detach()@TRANSPOSE@)
'''

STEP = '''\
def chunk(config, stage):
@STAGE@    block = specs.get_gpt_decoder_block_spec(config, use_transformer_engine=False, normalization=config.normalization@L_TWO@, vp_stage=stage)
@LAYERS@    return gpt_model.GPTModel(config, block, max_sequence_length=@LENGTH@, pre_process=groups.is_pipeline_first_stage(False, vp_stage=stage),
                              post_process=groups.is_pipeline_last_stage(False, vp_stage=stage), vp_stage=stage@GPT@)
@NAME_OF@def step(number):
    generator = torch.Generator().manual_seed(@DATA_SEED@ + number)
    tokens = torch.randint(0, @VOCABULARY@, (@COUNT@, @SIZE@, @LENGTH@ + 1), generator=generator)
    masks, hidden = torch.ones(@COUNT@, @SIZE@, @LENGTH@), torch.ones(@LENGTH@, @LENGTH@).triu(1).bool().expand(@COUNT@, @SIZE@, 1, -1, -1)
@DATA@    here, numbers = torch.tensor(@HERE@), range(groups.get_data_parallel_rank(), @COUNT@, groups.get_data_parallel_world_size())
    def forward(iterator, model):
        i = now[0] = next(iterator)
        mask = masks[i][:, here]
        return model(tokens[i][:, here], here.expand(@SIZE@, -1), hidden[i], labels=tokens[i][:, here + 1]@MASK@), lambda losses: (
            @LOSS@)
@ZERO@    get_forward_backward_func()(forward_step_func=forward, data_iterator=@ITERATORS@, model=@MODELS@, seq_length=@LENGTH@,
                                micro_batch_size=@SIZE@, num_microbatches=len(numbers), forward_only=False)
'''
ZERO = '''\
    for model in wrapped:
        model.zero_grad_buffer()
'''

MAIN = '''\
dist.init_process_group("gloo")
groups.initialize_model_parallel(**GROUPS, create_gloo_process_groups=False)
tensor_parallel.random.model_parallel_cuda_manual_seed(1)
@SIZES@config = transformer_config.@CONFIG@(**CASE, **LAYOUT)
chunks = [chunk(config, stage) for stage in @STAGES@]
parameters = {@NAME@: parameter for model in chunks for name, parameter in model.named_parameters()}
for name, parameter in parameters.items():  # the same numbers whatever rank holds them
@CUT_SHAPE@    full = torch.rand(@FULL_SHAPE@, generator=torch.Generator().manual_seed(@SEED@ + zlib.crc32(name.encode()))) * 2 - 1
    full = @GAMMA_MEAN@ + 0.2 * full if "norm.weight" in name else 0.2 * full if full.dim() < 2 else full if "embed" in name else full * 1.2 / full[0].numel() ** 0.5
    parameter.data.copy_(@CUT_FULL@)
@HOOK@wrapped = [DistributedDataParallel(config, DistributedDataParallelConfig(grad_reduce_in_fp32=True@DDP@), @MODULE@) for model in chunks]
@NO_SYNC@@OPTIMIZER@@STEPS@@RESULT@if ONE: torch.save(result, __file__ + ".pt")
elif result is not None:
    expected = torch.load(__file__ + ".pt")
@PART@    off = (result.double() - expected.double()).nan_to_num(0)
    at = tuple(map(int, torch.unravel_index(off.abs().argmax(), off.shape)))
    texts[RANK] = f"rank {RANK}, {list(at)}: {result[at]:.9g}, one device {expected[at]:.9g}, off by {off.norm() / expected.double().norm():.3g} of the norm"
dist.all_gather_object(texts, texts[RANK])  # one rank prints: lines of several may run into each other
if any(texts) and RANK == 0: print(*filter(None, texts), sep="\\n", flush=True)
os._exit(0)
'''

OWNED = '''\
for model in [] if ONE else wrapped:       # of a gradient the distributed optimizer gets this rank's share alone
    for buffer in model.buffers + model.expert_parallel_buffers:
        for parameter, (first, last, number) in buffer.param_index_map.items():
            bucket, size = buffer.buckets[number], buffer.buckets[number].grad_data.numel() // buffer.data_parallel_group.size()
            at = torch.arange(first, last).view(parameter.shape) - bucket.offset - size * buffer.data_parallel_group.rank()
            parameter.main_grad = parameter.main_grad.masked_fill((at < 0) | (at >= size), float("nan"))
'''
