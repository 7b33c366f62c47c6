"""Writes rank_tables.csv: groups of ranks as Megatron Core's own RankGenerator makes them.

    pip install --no-deps megatron-core==0.16.1    # a PyTorch that it can import must be there already
    python3 corpus/golden/make_rank_tables.py

Columns: tp, cp, dp, pp, order, axes of the group joined by '-', groups joined by '/', ranks of a group joined by ' ' in the
generator's order. Read by tests/unit/spec/test_spec_mesh.c.
"""

import csv
import pathlib

from megatron.core.parallel_state import RankGenerator

SIZES = [(1, 1, 1, 1), (2, 1, 1, 1), (2, 1, 2, 1), (2, 1, 2, 2), (4, 1, 2, 1), (1, 1, 3, 2), (3, 1, 2, 2)]
SIZES += [(2, 2, 2, 2), (2, 3, 1, 2), (1, 2, 2, 4)]
ORDERS = ["tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp", "tp-pp-dp-cp-ep", "dp-tp-cp-ep-pp", "pp-dp-ep-cp-tp", "cp-tp-dp-pp-ep"]
AXES = ["tp", "cp", "dp", "pp", "tp-cp", "tp-dp", "tp-pp", "dp-cp", "tp-dp-cp", "tp-cp-dp-pp"]


def main():
    path = pathlib.Path(__file__).with_name("rank_tables.csv")
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["tp", "cp", "dp", "pp", "order", "axes", "groups"])
        for tp, cp, dp, pp in SIZES:
            for order in ORDERS:
                generator = RankGenerator(tp=tp, ep=1, dp=dp, pp=pp, cp=cp, order=order)
                for axes in AXES:
                    groups = generator.get_ranks(axes)
                    text = "/".join(" ".join(str(rank) for rank in group) for group in groups)
                    writer.writerow([tp, cp, dp, pp, order, axes, text])


main()
