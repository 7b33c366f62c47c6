"""Where activations lie: what each dimension of a module's input and output is, in one table, and the index lists that follow.

Kinds of dimensions: seq, positions of the sequence, cut by cp in zig-zag and by tp where sequence parallelism is on; ctx, positions cut by
cp alone; tok, seq times the sequences of a microbatch; tp, cut over tp; glu, each half over tp if the unit is gated; gdn, packed parts of
GatedDeltaNet, each over tp; all, whole; sum, whole, of which each rank of tp has a summand.
"""
import re

from . import layout as cuts
from .names import packed_sizes

HIDDEN = ("seq", "all", "all")         # the residual stream [s, b, h]
HEADS = ("ctx", "all", "tp", "all")    # [s, b, heads, dim]
INNER = ("ctx", "all", "tp")           # what lies between a column and a row parallel linear
WIDE = ("ctx", "all", "all")
SUMMAND = ("ctx", "all", "sum")        # its sum over tp is yet to come

# Module (the end of its global name) -> (kinds of its input, None if it has none to judge; kinds of its output). The first match counts.
# With more input tensors than one, a tuple of kinds for each.
MODULES = [
    (r"^$", None, ("all", "ctx")),
    (r"^embedding$", None, HIDDEN),
    (r"^embedding\.(word|position)_embeddings$", None, HIDDEN),
    (r"layers\.\d+$|transformer_layer$", HIDDEN, HIDDEN),
    (r"(input|pre_mlp|final)_layernorm$|[eh]norm$", HIDDEN, HIDDEN),
    (r"self_attention$|mlp$|shared_experts$", HIDDEN, HIDDEN),
    (r"linear_qkv$", HIDDEN, INNER),
    (r"self_attention\.in_proj$", HIDDEN, ("ctx", "all", "gdn")),
    (r"linear_(q|kv)_down_proj$|linear_(q|q_up|kv_up)_proj$|eh_proj$", HIDDEN, INNER),
    (r"self_attention\.kv_layernorm$", HIDDEN, HIDDEN),
    (r"self_attention\.(q|k)_layernorm$", HEADS, HEADS),
    (r"core_attention$", (HEADS, HEADS, HEADS), INNER),
    (r"linear_fc1$", HIDDEN, ("ctx", "all", "glu")),
    (r"(linear_proj|linear_fc2|out_proj)$", INNER, HIDDEN),
    (r"router$", HIDDEN, ("tok", "all")),
    (r"output_layer$", HIDDEN, INNER),
]
MODULES = [(re.compile(pattern), inputs, output) for pattern, inputs, output in MODULES]

# What is not traced, and why.
UNTRACED = [
    (r"^(decoder|mtp|rotary_pos_emb)$|layers$", "adds nothing to its last module, or has no gradient"),
    (r"embedding_dropout$|attention_dropout$|scale_mask_softmax$|_bda$|activation_func$", "has no parameters; its neighbours are traced"),
    (r"(flash|fused|unfused)_attention$", "Transformer Engine computes core_attention in it"),
    (r"rotary_pos_emb$|rope", "is the same in every case"),
    (r"\.experts$|\.experts\.", "rows are the tokens that came to a rank, in an order of its own"),
    (r"conv1d$|out_norm$|act_fn$", "works on another order of dimensions; in_proj and out_proj are traced"),
    (r"^decoder.*cross_attn|token_dispatcher$", "moves only"),
]
UNTRACED = [(re.compile(pattern), reason) for pattern, reason in UNTRACED]


def kinds_of(name):
    """(kinds of the input tensors, a tuple of kinds for each; kinds of the output), or None for a module that is not traced.

    Raises KeyError for a module that neither table knows, so that none is left out by mistake."""
    if any(pattern.search(name) for pattern, _ in UNTRACED):
        return None
    for pattern, inputs, output in MODULES:
        if pattern.search(name):
            several = inputs is not None and isinstance(inputs[0], tuple)
            return (() if inputs is None else inputs if several else (inputs,)), output
    raise KeyError(f"no line for module {name!r} in places.py")


def without_sums(place):
    """The place of what belongs to summands on the other way, the gradient of a sum or the input of what gives summands: whole on each rank."""
    if not has_sums(place):
        return place
    return {"shape": place["shape"], "index": [[run[:2] for run in runs] for runs in place["index"]]}


def has_sums(place):
    """Whether some elements are summands."""
    return any(len(run) > 2 for runs in place["index"] for run in runs)


class Places:
    """Index lists of one rank in one layout. config: the package's TransformerConfig; microbatch_size: sequences."""

    def __init__(self, config, layout, microbatch_size):
        self.config, self.layout, self.microbatch_size = config, layout, microbatch_size
        self.known = {}

    def of(self, name, kinds, shape):
        """Place of a local tensor of this shape, as {"shape", "index"}. Raises ValueError when it has other dimensions than the table says."""
        key = (kinds, tuple(shape), name if "gdn" in kinds else None, self.microbatch_size)
        if key not in self.known:
            if len(kinds) != len(shape):
                raise ValueError(f"{name}: {len(shape)} dimensions, the table in places.py has {len(kinds)}")
            pairs = [self._dimension(name, kind, size) for kind, size in zip(kinds, shape)]
            self.known[key] = {"shape": [size for size, _ in pairs], "index": [runs for _, runs in pairs]}
        return self.known[key]

    def output_kinds(self, name, module, kinds):
        """Kinds of an output where the case decides: gathered logits, embeddings before they are cut, MLA's query norm, overlapped shared experts."""
        if self._without_communication(name, "linear_fc2"):
            return SUMMAND
        if name.endswith("output_layer") and module.gather_output:
            return WIDE
        if re.search(r"(word|position)_embeddings$", name):
            return HIDDEN if getattr(module, "reduce_scatter_embeddings", False) else WIDE
        return self._norm_kinds(name, kinds)

    def input_kinds(self, name, kinds):
        """Kinds of an input's gradient where the case decides: MLA's query norm, overlapped shared experts."""
        return SUMMAND if self._without_communication(name, "linear_fc1") else self._norm_kinds(name, kinds)

    def _norm_kinds(self, name, kinds):
        """MLA's query norm works on the residual stream's rows."""
        return HIDDEN if self.config.multi_latent_attention and name.endswith("q_layernorm") else kinds

    def _without_communication(self, name, linear):
        """Whether it is that linear of a shared expert which gathers and reduces by itself, between the dispatcher's calls."""
        return self.config.moe_shared_expert_overlap and name.endswith("shared_experts." + linear)

    def _dimension(self, name, kind, size):
        layout, tp, cp = self.layout, self.layout.n["tp"], self.layout.n["cp"]
        if kind == "all":
            return size, [[0, size]]
        if kind == "sum":
            return size, [[0, size, layout.summand("tp")]] if tp > 1 else [[0, size]]
        if kind == "ctx":
            return size * cp, cuts.zig_zag(size * cp, layout)
        if kind in ("seq", "tok"):
            rows = self.microbatch_size if kind == "tok" else 1
            length = size // rows * cp * (tp if layout.sp else 1)
            runs = cuts.sequence(length, layout, layout.sp)
            return length * rows, [[start * rows, count * rows] for start, count in runs]
        if kind == "gdn":
            return size * tp, cuts.packed(packed_sizes(name, self.config), tp, layout.at["tp"])
        if kind == "glu" and self.config.gated_linear_unit:
            return size * tp, cuts.packed([size * tp // 2] * 2, tp, layout.at["tp"])
        return size * tp, cuts.contiguous(size * tp, tp, layout.at["tp"])
