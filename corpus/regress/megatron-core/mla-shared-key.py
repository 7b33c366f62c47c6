"""megatron-core 0.16.1, torch 2.13.0, CPU: the gradient of the input of decoder.layers.0.self_attention.linear_kv_down_proj on 2 ranks (tp 2) is not that of one device.
    python THIS_FILE && mpirun --oversubscribe -n 2 python THIS_FILE            (or: torchrun --nproc-per-node 2 THIS_FILE)
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
from megatron.core.transformer.dot_product_attention import DotProductAttention
class Attention(DotProductAttention):      # values may be wider than keys
    def __init__(self, config, *args, k_channels=None, v_channels=None, **options):
        super().__init__(config, *args, **options)
        self.hidden_size_per_partition = v_channels * self.num_attention_heads_per_partition if v_channels else self.hidden_size_per_partition
from megatron.core.transformer import multi_latent_attention
multi_latent_attention.TELinear = type("Absent", (), {})
CASE = dict(finalize_model_grads_func=finalize_model_grads, qk_pos_emb_head_dim=4, num_layers=1, hidden_size=8, num_attention_heads=2, ffn_hidden_size=8, add_bias_linear=False,
    activation_func=torch.nn.functional.gelu, q_lora_rank=None, rope_type='rope', kv_lora_rank=8, qk_head_dim=8, v_head_dim=8,
    use_cpu_initialization=True, attention_dropout=0.0, hidden_dropout=0.0, pipeline_dtype=torch.float32)
LAYOUT = {} if ONE else dict(tensor_model_parallel_size=2)
GROUPS = {} if ONE else dict(tensor_model_parallel_size=2)
CUTS = [(r"word_embeddings\.weight$|output_layer\.weight$", 0, 1, "tp"), (r"linear_fc1\.(weight|bias)$", 0, 1, "tp"),
        (r"(linear_fc2|linear_proj|out_proj)\.weight$", 1, 1, "tp"), (r"linear_(q|q_up|kv_up)_proj\.weight$", 0, 1, "tp"),
        (r"linear_(q|kv)_down_proj\.weight$", 0, 1, "tp")]     # parameters: pattern, dimension, parts, axis
def shard(full, dimension, parts, axis):   # each of the parts is cut by itself: a list of their sizes, or how many equal ones there are
    pieces, (count, at) = full.split(parts, dimension) if isinstance(parts, list) else full.chunk(parts, dimension), SIZES[axis]
    return torch.cat([piece.chunk(count, dimension)[at] for piece in pieces], dimension)
seen, means, calls, now, texts = [], [], [], [-1], [None] * RANKS
def watch(part, args, options):            # the gradient of this call's input alone, whoever else reads the tensor
    inputs = {**dict(enumerate(args)), **options}
    keys = [key for key, x in inputs.items() if torch.is_tensor(x) and x.requires_grad and not isinstance(x, torch.nn.Parameter)]
    calls.append(now[0]) if keys else None
    if len(keys) > 0 and now[0] == 0 and calls.count(0) == 0 + 1:
        inputs[keys[0]] = x = inputs[keys[0]].view_as(inputs[keys[0]])
        x.register_hook(lambda gradient: seen.append(gradient * (1 if ONE else 1.0)))
    return tuple(inputs[i] for i in range(len(args))), {key: inputs[key] for key in options}
def chunk(config, stage):
    block = specs.get_gpt_decoder_block_spec(config, use_transformer_engine=False, normalization=config.normalization, vp_stage=stage)
    for layer in block.layer_specs:
        layer.submodules.self_attention.submodules.core_attention = Attention
    return gpt_model.GPTModel(config, block, max_sequence_length=8, pre_process=groups.is_pipeline_first_stage(False, vp_stage=stage),
                              post_process=groups.is_pipeline_last_stage(False, vp_stage=stage), vp_stage=stage, vocab_size=32, position_embedding_type='rope')
def step(number):
    generator = torch.Generator().manual_seed(1000003 + number)
    tokens = torch.randint(0, 32, (1, 2, 8 + 1), generator=generator)
    masks, hidden = torch.ones(1, 2, 8), torch.ones(8, 8).triu(1).bool().expand(1, 2, 1, -1, -1)
    here, numbers = torch.tensor(range(8)), range(groups.get_data_parallel_rank(), 1, groups.get_data_parallel_world_size())
    def forward(iterator, model):
        i = now[0] = next(iterator)
        mask = masks[i][:, here]
        return model(tokens[i][:, here], here.expand(2, -1), hidden[i], labels=tokens[i][:, here + 1]), lambda losses: (
            (losses.float() * mask).sum() / masks[i].sum(), {})
    get_forward_backward_func()(forward_step_func=forward, data_iterator=iter(numbers), model=wrapped[0], seq_length=8,
                                micro_batch_size=2, num_microbatches=len(numbers), forward_only=False)
dist.init_process_group("gloo")
groups.initialize_model_parallel(**GROUPS, create_gloo_process_groups=False)
tensor_parallel.random.model_parallel_cuda_manual_seed(1)
SIZES = {"tp": (groups.get_tensor_model_parallel_world_size(), groups.get_tensor_model_parallel_rank())}
config = transformer_config.MLATransformerConfig(**CASE, **LAYOUT)
chunks = [chunk(config, stage) for stage in (None,)]
parameters = {name: parameter for model in chunks for name, parameter in model.named_parameters()}
for name, parameter in parameters.items():  # the same numbers whatever rank holds them
    cut = next((cut for pattern, *cut in CUTS if re.search(pattern, name)), None)
    shape = [size * SIZES[cut[2]][0] if cut and i == cut[0] else size for i, size in enumerate(parameter.shape)]
    full = torch.rand(shape, generator=torch.Generator().manual_seed(1 + zlib.crc32(name.encode()))) * 2 - 1
    full = 1 + 0.2 * full if "norm.weight" in name else 0.2 * full if full.dim() < 2 else full if "embed" in name else full * 1.2 / full[0].numel() ** 0.5
    parameter.data.copy_(shard(full, *cut) if cut else full)
for name, part, model in [(*found, model) for model in chunks for found in model.named_modules()]:
    if name == "decoder.layers.0.self_attention.linear_kv_down_proj":
        part.register_forward_pre_hook(watch, with_kwargs=True)
wrapped = [DistributedDataParallel(config, DistributedDataParallelConfig(grad_reduce_in_fp32=True), model) for model in chunks]
step(0)
result = seen[0] if seen else None
if ONE: torch.save(result, __file__ + ".pt")
elif result is not None:
    expected = torch.load(__file__ + ".pt")
    off = (result.double() - expected.double()).nan_to_num(0)
    at = tuple(map(int, torch.unravel_index(off.abs().argmax(), off.shape)))
    texts[RANK] = f"rank {RANK}, {list(at)}: {result[at]:.9g}, one device {expected[at]:.9g}, off by {off.norm() / expected.double().norm():.3g} of the norm"
dist.all_gather_object(texts, texts[RANK])  # one rank prints: lines of several may run into each other
if any(texts) and RANK == 0: print(*filter(None, texts), sep="\n", flush=True)
os._exit(0)
