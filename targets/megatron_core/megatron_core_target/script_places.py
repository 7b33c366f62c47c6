"""A rank's part of a tensor, as lines of a stand-alone script that take it from one device's tensor."""
from shardfuzz.megatron import layout as cuts
from shardfuzz.megatron.names import packed_sizes
from shardfuzz.megatron.places import kinds_of


def part_of(script):
    """Lines that take a rank's part of one device's tensor."""
    what = script.what
    if what["kind"] == "main_grad":
        cut = script.cut(what["subject"])
        return f"    expected = shard(expected, {cut[0]}, {cut[1]}, \"{cut[2]}\")\n" if cut else ""
    if what["kind"] == "scalar":
        return ""
    name = what["subject"].split(":")[0]
    inputs, output = kinds_of("" if name == "model" else name)
    number = int((what["subject"].split(":") + ["0"])[1])
    kinds = output if what["kind"] == "act" else inputs[min(number, len(inputs) - 1)]
    return "".join(_dimension(script, name, kind, d) for d, kind in enumerate(_of_case(script, name, kinds)))


def _of_case(script, name, kinds):
    """As places.Places.output_kinds, from the case alone."""
    what, model, layout = script.what, script.model, script.layout
    if what["kind"] == "act" and name.endswith("output_layer") and not model["parallel_output"]:
        return ("ctx", "all", "all")
    if name.endswith(("word_embeddings", "position_embeddings")):
        scatters = layout["sp"] and model["position_embedding_type"] != "learned_absolute"
        return ("seq" if scatters and "word" in name else "ctx", "all", "all")
    if model["multi_latent_attention"] and name.endswith("q_layernorm"):
        return ("seq", "all", "all")
    return kinds


def _dimension(script, name, kind, d):
    layout, case = script.layout, script.case
    if kind == "all":
        return ""
    if kind in ("seq", "ctx", "tok"):
        sp = layout["sp"] and kind != "ctx"
        if layout["cp"] == 1 and not sp:
            return ""
        rows = case["microbatch_size"] if kind == "tok" else 1
        lists = []
        for rank in range(script.ranks):
            runs = cuts.sequence(case["sequence_length"], cuts.layout_of(layout, rank), sp)
            lists.append([(start + i) * rows + k for start, length in runs for i in range(length) for k in range(rows)])
        return f"    expected = expected.index_select({d}, torch.tensor({lists}[RANK]))\n"
    if layout["tp"] == 1:
        return ""
    sizes = packed_sizes(name, script.config) if kind == "gdn" else 2 if kind == "glu" and script.model["gated_linear_unit"] else 1
    return f"    expected = shard(expected, {d}, {sizes}, \"tp\")\n"
