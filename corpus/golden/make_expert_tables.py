"""Writes expert_tables.csv: groups of the expert mesh as Megatron Core's own RankGenerator makes them.

    pip install --no-deps megatron-core==0.16.1    # a PyTorch that it can import must be there already
    python3 corpus/golden/make_expert_tables.py

Columns: tp, cp, dp, pp, etp, ep, order, axes of the group joined by '-' (tp means etp, dp edp), groups joined by '/', ranks of a group joined
by ' '. Only orders with pp last: of the others Megatron takes those alone in which both meshes have the same pipelines.
Read by tests/unit/spec/test_spec_mesh.c.
"""

import csv
import pathlib

from megatron.core.parallel_state import RankGenerator

SIZES = [(1, 1, 2, 1, 1, 2), (2, 1, 2, 1, 1, 2), (2, 1, 2, 2, 2, 2), (2, 1, 4, 2, 1, 4), (4, 1, 2, 1, 2, 2), (2, 2, 2, 2, 1, 4)]
SIZES += [(3, 1, 2, 2, 1, 6), (2, 1, 6, 1, 2, 3), (4, 1, 1, 2, 4, 1), (2, 1, 2, 1, 4, 1)]
ORDERS = ["tp-cp-ep-dp-pp", "dp-tp-cp-ep-pp", "ep-tp-dp-cp-pp", "cp-dp-ep-tp-pp"]
AXES = ["tp", "ep", "dp", "tp-ep", "tp-ep-pp", "pp"]


def main():
    path = pathlib.Path(__file__).with_name("expert_tables.csv")
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["tp", "cp", "dp", "pp", "etp", "ep", "order", "axes", "groups"])
        for tp, cp, dp, pp, etp, ep in SIZES:
            for order in ORDERS:
                generator = RankGenerator(tp=etp, ep=ep, dp=tp * cp * dp // (etp * ep), pp=pp, cp=1, order=order)
                for axes in AXES:
                    groups = generator.get_ranks(axes)
                    text = "/".join(" ".join(str(rank) for rank in group) for group in groups)
                    writer.writerow([tp, cp, dp, pp, etp, ep, order, axes, text])


main()
