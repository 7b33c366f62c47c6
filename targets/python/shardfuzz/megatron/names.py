"""Global names of modules and parameters, and the cuts of parameters: which elements of the logical tensor a rank holds.

The package's own marks (tensor_model_parallel, partition_dim) are not read: a wrong mark would hide the bug that it makes.
"""
import re

from . import layout as cuts

# Name of a parameter -> (cut, dimension). Cuts: tp, contiguous over tp; glu, each half of [gate; up] over tp; etp and eglu, the same over
# the experts' tensor parallel ranks; gdn, each of the packed parts over tp; what no line names is whole on every rank.
PARAMETERS = [
    (r"word_embeddings\.weight$|output_layer\.weight$", "tp", 0),
    (r"local_experts\.\d+\.linear_fc1\.(weight|bias)$", "eglu", 0),
    (r"local_experts\.\d+\.linear_fc2\.weight$", "etp", 1),
    (r"experts\.linear_fc1\.(weight|bias)\d+$", "eglu", 0),
    (r"experts\.linear_fc2\.weight\d+$", "etp", 1),
    (r"linear_fc1\.(weight|bias)$", "glu", 0),
    (r"(linear_fc2|linear_proj|out_proj)\.weight$", "tp", 1),
    (r"linear_qkv\.(weight|bias)$", "tp", 0),
    (r"linear_(q|q_up|kv_up)_proj\.weight$", "tp", 0),
    (r"linear_(q|kv)_down_proj\.weight$", "tp", 0),
    (r"self_attention\.(in_proj|conv1d)\.(weight|bias)$", "gdn", 0),
    (r"self_attention\.(A_log|dt_bias)$", "tp", 0),
    (r"softmax_offset$", "tp", 0),
    (r"eh_proj\.weight$", "tp", 0),
]
PARAMETERS = [(re.compile(pattern), cut, dimension) for pattern, cut, dimension in PARAMETERS]


def cut_of(name):
    """(cut, dimension) of a parameter; (None, None) if it is whole."""
    for pattern, cut, dimension in PARAMETERS:
        if pattern.search(name):
            return cut, dimension
    return None, None


def packed_sizes(name, config):
    """Sizes of the packed parts of GatedDeltaNet's projections: queries, keys, values, and for in_proj output gates, beta and alpha."""
    keys = config.linear_key_head_dim * config.linear_num_key_heads
    values = config.linear_value_head_dim * config.linear_num_value_heads
    heads = config.linear_num_value_heads
    return [keys, keys, values] + ([values, heads, heads] if "in_proj" in name else [])


def parameter_place(name, shape, config, layout):
    """Where a rank's shard of a parameter lies.

    name: global; shape: of the local shard. Returns {"shape": of the logical tensor, "index": a list of [start, length] per dimension}.
    """
    cut, dimension = cut_of(name)
    shape = list(shape)
    index = [[[0, size]] for size in shape]
    if cut is None:
        return {"shape": shape, "index": index}
    axis = "etp" if cut in ("etp", "eglu") else "tp"
    parts, which = layout.n[axis], layout.at[axis]
    size = shape[dimension] * parts
    if cut == "gdn":
        runs = cuts.packed(packed_sizes(name, config), parts, which)
    elif cut in ("glu", "eglu") and config.gated_linear_unit:
        runs = cuts.packed([size // 2, size // 2], parts, which)
    else:
        runs = cuts.contiguous(size, parts, which)
    shape[dimension], index[dimension] = size, runs
    return {"shape": shape, "index": index}


class Names:
    """Global names of one chunk of the model: layer i of the whole model, expert j of all, whatever rank holds it.

    chunk: the GPTModel. A tied output layer is the embedding."""

    def __init__(self, chunk, config, layout):
        self.layers = [layer.layer_number - 1 for layer in chunk.decoder.layers]
        self.first_expert = (config.num_moe_experts or 0) // layout.n["ep"] * layout.at["ep"]
        self.tied = chunk.share_embeddings_and_output_weights

    def of(self, local):
        """The global name of the module or parameter that the chunk calls `local`."""
        name = re.sub(r"^decoder\.layers\.(\d+)", lambda found: f"decoder.layers.{self.layers[int(found.group(1))]}", local)
        name = re.sub(r"local_experts\.(\d+)", lambda found: f"local_experts.{int(found.group(1)) + self.first_expert}", name)
        name = re.sub(r"(experts\.linear_fc[12]\.(weight|bias))(\d+)$", lambda found: f"{found.group(1)}{int(found.group(3)) + self.first_expert}", name)
        if self.tied and name == "output_layer.weight":
            return "embedding.word_embeddings.weight"
        return name
