"""Layouts of two and of four ranks whose speed the Megatron Core benches list."""

# Fields of `layout` that leave their first choice, by name.
LAYOUTS = {
    2: {"tp": {"tp": 2}, "tp+sp": {"tp": 2, "sp": True}, "pp": {"pp": 2}, "cp": {"cp": 2}, "dp": {"dp": 2},
        "dp+distributed_optimizer": {"dp": 2, "distributed_optimizer": True}, "dp+ep": {"dp": 2, "ep": 2}},
    4: {"tp": {"tp": 4}, "tp+pp": {"tp": 2, "pp": 2}, "tp+dp": {"tp": 2, "dp": 2}, "cp+dp": {"cp": 2, "dp": 2}, "dp+ep": {"dp": 4, "ep": 4}},
}


def case_of(layout):
    """A case of that layout with what the layout needs: a layer for each stage, experts to spread, a microbatch for each replica."""
    model = {**({"num_layers": layout["pp"]} if "pp" in layout else {}), **({"num_moe_experts": 4, "add_bias_linear": False} if "ep" in layout else {})}
    return {"layout": layout, "model": model, "microbatches": max(2, layout.get("dp", 1))}
