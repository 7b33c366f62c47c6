"""DeepSpeed's tensor parallelism of the model (AutoTP): what a config says of it, and how ranks share features."""
from .model import VOCAB

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
