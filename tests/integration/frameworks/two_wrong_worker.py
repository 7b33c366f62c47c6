"""The sample worker whose missing all-reduce is in two modules."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../targets/samples"))
import worker_mlp  # noqa: E402


def run(request, _):
    traced = worker_mlp.step(request["case"], request.get("draw", -1) + 1, links)
    again = {name.replace("fc2", "fc3"): value for name, value in traced.items() if "fc2" in name}
    worker_mlp.worker.write_trace(request["out"], {**traced, **again}, "isolated")


if __name__ == "__main__":
    links = worker_mlp.connect_ranks(os.environ["SHARDFUZZ_SOCKET"] + ".ranks") if worker_mlp.RANKS > 1 else []
    worker_mlp.worker.serve({**worker_mlp.DESCRIBE, "name": "two"}, run)
