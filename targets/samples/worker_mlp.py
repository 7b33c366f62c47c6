"""A sample worker: fc2(relu(fc1(x))) in plain Python, fc1 cut by columns, fc2 by rows. Its case may plant a missing all-reduce.

    shardfuzz worker 'python3 targets/samples/worker_mlp.py' CASES.jsonl
"""
import array, os, random, sys, time
from multiprocessing.connection import Client, Listener

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../python"))  # without pip install ./targets/python
from shardfuzz import worker

RANK, RANKS = worker.place()
DESCRIBE = {"name": "sample-mlp", "draws": 4, "anchored": True, "fields": {
    "ranks": {"choices": [1, 2, 4], "layout": True}, "tokens": {"min": 1, "max": 8}, "hidden": {"min": 8, "max": 32, "step": 8},
    "seed": {"min": 0, "max": 1000}, "bug": {"choices": ["none", "no-reduce"], "layout": True}},
    "refuses": [{"when": {"hidden": [24], "ranks": [4]}, "reason": "6 columns on each of 4 ranks are not a whole number of quads"}]}


def connect_ranks(address):
    """Rank 0's connections to the other ranks; another rank's connection to rank 0."""
    if RANK == 0:
        with Listener(address, backlog=RANKS) as listener:
            return [listener.accept() for _ in range(1, RANKS)]
    while True:
        try:
            return [Client(address)]
        except (FileNotFoundError, ConnectionRefusedError):
            time.sleep(0.01)


def all_reduce(links, values):
    """Sum over the ranks, in their order."""
    if RANK:
        links[0].send(values)
        return links[0].recv()
    total = [sum(column) for column in zip(values, *[link.recv() for link in links])]
    for link in links:
        link.send(total)
    return total


def step(case, perturbed, links, anchors={}):
    """{name: (shape, index, values)}; perturbed > 0 moves every stored value as rounding might. anchors: the candidate's tensors by name, of which the
    reference makes what comes after them; empty, its own."""
    tokens, hidden, rng = range(case["tokens"]), range(case["hidden"]), random.Random(perturbed)
    mine = range(RANK * len(hidden) // RANKS, (RANK + 1) * len(hidden) // RANKS)
    value = lambda *element: random.Random(f"{case['seed']}/{element}").gauss(0, 1)  # of a logical element, whoever holds it
    store = lambda values: array.array("f", [v * (1 + (perturbed > 0) * 2**-23 * rng.uniform(-1, 1)) for v in values])
    x = [store(value("x", t, k) for k in hidden) for t in tokens]
    w1, w2 = [[value("fc1", n, k) for k in hidden] for n in mine], [[value("fc2", n, k) for k in mine] for n in hidden]
    fc1 = [store(max(0, sum(a * b for a, b in zip(x[t], row))) for row in w1) for t in tokens]
    given = anchors.get("s0/mb0/fwd/act/mlp.fc1/0")
    part = [sum(a * b for a, b in zip(given[t * len(hidden):(t + 1) * len(hidden)] if given else fc1[t], row)) for t in tokens for row in w2]
    fc2 = store(part if case["bug"] == "no-reduce" or RANKS == 1 else all_reduce(links, part))
    shape, rows = [len(tokens), len(hidden)], [[0, len(tokens)]]
    return {"s0/mb0/fwd/act/mlp.fc1/0": (shape, [rows, [[mine.start, len(mine)]]], sum(fc1, array.array("f"))),
            "s0/mb0/fwd/act/mlp.fc2/0": (shape, [rows, [[0, len(hidden)]]], fc2)}


def run(request, links):
    """One run of one case, its trace in request["out"]."""
    anchors = worker.read_tensors(request["anchors"]) if "anchors" in request else {}
    tensors = step(request["case"], request.get("draw", -1) + 1, links, anchors)
    worker.write_trace(request["out"], tensors, "anchored" if anchors else "e2e", {"tp": list(range(RANKS))})


if __name__ == "__main__":
    connections = connect_ranks(os.environ["SHARDFUZZ_SOCKET"] + ".ranks") if RANKS > 1 else []
    worker.serve(DESCRIBE, lambda request, beat: run(request, connections))
