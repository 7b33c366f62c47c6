"""How many of the cases that a campaign would run have what each known bug of megatron-core needs:

shardfuzz fuzz --target megatron-core --dry-run --cases 1000 --seed 1 | python3 tests/bench/frameworks/bench_triggers.py

Reads cases, one on a line; prints for each bug of corpus/regress/megatron-core the number of cases and the first one's place. Needs no ranks and no torch.
"""
import json
import sys

AUXILIARY = ("aux_loss", "seq_aux_loss", "global_aux_loss")


class Case:
    """A case's fields by path, at the plainest value where it has none."""
    PLAIN = {"loss": "mean", "precision": "fp32", "data.loss_mask": "full", "data.microbatches": "drawn", "optimizer.clip_grad": 0.1,
             "model.parallel_output": True, "model.position_embedding_type": "rope", "model.softmax_type": "vanilla",
             "model.moe_router_load_balancing_type": "none", "model.moe_aux_loss_coeff": 0.0, "model.num_layers": 1}

    def __init__(self, document):
        self.document = document

    def __getitem__(self, path):
        value = self.document
        for part in path.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        if value is None:
            value = self.PLAIN.get(path, 1 if path.startswith("layout.") and path != "layout.sp" else None)
        return value


def auxiliary(case, kinds=AUXILIARY):
    return case["model.num_moe_experts"] and case["model.moe_router_load_balancing_type"] in kinds and case["model.moe_aux_loss_coeff"] > 0


def has_z_loss(case):
    return case["model.num_moe_experts"] and case["model.moe_z_loss_coeff"]


TRIGGERS = {
    "mla-shared-key": lambda c: c["model.multi_latent_attention"] and c["layout.tp"] > 1,
    "gathered-logits": lambda c: not c["model.parallel_output"] and c["layout.tp"] > 1 and c["precision"] == "bf16",
    "loss-of-local-tokens": lambda c: c["loss"] == "sum_and_count" and c["data.loss_mask"] == "uneven" and c["layout.cp"] > 1,
    "aux-loss-per-token": lambda c: c["loss"] == "per_token" and (auxiliary(c) or has_z_loss(c)) and (c["layout.cp"] > 1 or c["layout.tp"] > 1 and c["layout.sp"]),
    "global-aux-loss": lambda c: auxiliary(c, ("global_aux_loss",)) and c["layout.dp"] > 1,
    "expert-data-group": lambda c: c["model.num_moe_experts"] and c["layout.etp"] != c["layout.tp"] and c["layout.ep"] == 1,
    "linear-attention-norm": lambda c: c["model.experimental_attention_variant"] and c["layout.tp"] > 1 and not c["layout.sp"],
    "sinks-clipping-norm": lambda c: c["model.softmax_type"] == "learnable" and c["layout.tp"] > 1 and c["optimizer.clip_grad"] > 0
    and not c["model.multi_latent_attention"],
    "mtp-loss-of-local-tokens": lambda c: c["model.mtp_num_layers"] and c["layout.cp"] > 1,
    "z-loss-padding": lambda c: has_z_loss(c) and c["data.padding"] == "uneven"
    and (c["layout.cp"] > 1 or c["layout.tp"] > 1 and c["layout.sp"]),
    "mtp-position-embedding": lambda c: c["model.mtp_num_layers"] and c["model.position_embedding_type"] == "learned_absolute" and c["layout.pp"] > 1,
}


def main():
    cases = [Case(json.loads(line)["framework"]) for line in sys.stdin if line.strip()]
    fields = sum(len(json.dumps(case.document).split(":")) for case in cases)
    print(f"{len(cases)} cases, {fields / max(len(cases), 1):.1f} members each")
    for name, has in TRIGGERS.items():
        places = [place for place, case in enumerate(cases) if has(case)]
        alone = sum(1 for place in places if not any(other(cases[place]) for key, other in TRIGGERS.items() if key != name))
        print(f"{name:26} {len(places):5} cases, {alone:4} of them without another one, first {places[0] if places else '-'}")


if __name__ == "__main__":
    main()
