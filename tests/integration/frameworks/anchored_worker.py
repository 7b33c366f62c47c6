"""The sample worker with a wrong fc1 in what candidates compute: its weights on rank 1 are 1 % too large, so that fc2 differs too. With the argument
"whole" it does not say that its reference can be given a candidate's tensors; with "deaf" it says so, and computes its own all the same. With
"turns" every second draw moves all weights by more than rank 1 is off, and the draws between by far less: as a sum that cancels, which another order of
its terms moves and a rounding of its result does not. Nothing is wrong then. With "notes" it says that it can note operations, and says which rank of how
many it was asked about; with "raises" candidates fail when they are asked to; with "answers-otherwise" the answer is no text."""
import os
import random
import sys
import types

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../targets/samples"))
import worker_mlp  # noqa: E402

MANNER = sys.argv[1]
turn = False  # a draw that moves all weights


class Wrong(random.Random):
    def __init__(self, seed):
        super().__init__(seed)
        off = 1e-3 if MANNER == "turns" else 0.01
        self.factor = 1 + off * (worker_mlp.RANK == 1 and "fc1" in str(seed)) + turn * random.Random(f"turn {seed}").uniform(-0.01, 0.01)

    def gauss(self, mean, spread):
        return self.factor * super().gauss(mean, spread)


def run(request, links):
    global turn
    turn = MANNER == "turns" and request.get("draw", 0) % 2 == 1
    if MANNER == "deaf":
        request.pop("anchors", None)
    worker_mlp.run(request, links)
    noting = request.get("operations")
    if noting and request["run"] == "candidate":
        if MANNER == "raises":
            raise ValueError("no notes today")
        open(os.path.join(noting["folder"], str(worker_mlp.RANK)), "w").close()
    elif noting:
        ranks = len(os.listdir(noting["folder"]))
        return {"operation": 7 if MANNER == "answers-otherwise" else f"rank {noting['rank']} of {ranks} has {noting['tensor']}"}
    return None


worker_mlp.random = types.SimpleNamespace(Random=Wrong)
connections = worker_mlp.connect_ranks(os.environ["SHARDFUZZ_SOCKET"] + ".ranks") if worker_mlp.RANKS > 1 else []
worker_mlp.worker.serve({**worker_mlp.DESCRIBE, "anchored": MANNER != "whole", "operations": MANNER in ("notes", "raises", "answers-otherwise")}, lambda request, beat: run(request, connections))
