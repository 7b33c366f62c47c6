"""Which part of a tensor a rank has. The library's own marks are not asked: a wrong mark is a mistake that shows."""

ROWS = ("out", "down")     # layers whose weight is cut along its inputs


def copies_of_keys(m, tp):
    """The number of ranks that hold each head of keys and values: more than one where there are fewer such heads than ranks."""
    return max(1, tp // m["kv_heads"])


def parts_of(name, case, ranks):
    """Where a rank's part of a parameter lies, for each dimension that is cut: [(dimension, its whole size, [(first, count) ..]) ..].

    ranks: {"tp": this rank's place in its tensor-parallel group, "ep": in its expert-parallel group}."""
    layer, kind = name.rsplit(".", 2)[-2:]
    kind, _, of = kind.partition("_")
    found, count, ep = features_of(of or layer, case, ranks["tp"]), case["model"]["experts"], case["layout"]["ep"]
    if found is None or kind == "bias" and layer in ROWS:
        return []
    if layer.endswith("_proj"):
        return [(0, count, [(ranks["ep"] * count // ep, count // ep)]), (1 if layer == "down_proj" else 2, *found)]
    return [(int(layer in ROWS or layer == "table" and case["model"]["embedding"] == "columns"), *found)]


def features_of(layer, case, rank):
    """Which features of a layer a rank has: (number of all, [(first, count) ..]), or None for a layer that is not cut. Of layers in ROWS the inputs."""
    m, tp = case["model"], case["layout"]["tp"]

    def part(size, begin=0):
        return begin + rank * size // tp, size // tp
    queries, keys, copies = m["heads"] * m["head_size"], m["kv_heads"] * m["head_size"], copies_of_keys(m, tp)
    groups = tp // copies     # of ranks, each with its own heads of keys; on trn1 copies of one are not on neighbours
    group, copy = (rank % groups, rank // groups) if case["layout"]["platform"] == "trn1" else (rank // copies, rank % copies)
    heads, mine = (group * queries // groups + copy * queries // tp, queries // tp), (group * keys // groups, keys // groups)
    inner, across = part(m["inner"]), m["embedding"] == "columns"
    up = (2 * m["inner"], [inner, part(m["inner"], m["inner"])]) if m["gated"] else (m["inner"], [inner])     # gates and values, each cut
    vocabulary = m["vocabulary"], [part(m["vocabulary"])]
    return {"q": (queries, [heads]), "k": (keys, [mine]), "v": (keys, [mine]), "core": (queries, [heads]), "out": (queries, [heads]),
            "qkv": (queries + 2 * keys, [heads, (queries + mine[0], mine[1]), (queries + keys + mine[0], mine[1])]),
            "up": up, "gate_up_proj": up, "up_proj": up, "act": (m["inner"], [inner]), "down": (m["inner"], [inner]), "down_proj": (m["inner"], [inner]),
            "project": vocabulary, "table": (m["width"], [part(m["width"])]) if across else vocabulary}.get(layer)
