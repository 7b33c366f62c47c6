"""A sample worker: fc2(relu(fc1(x))) in plain Python, fc1 cut by columns, fc2 by rows. Its case may plant a missing all-reduce.

    shardfuzz worker 'python3 targets/samples/worker_mlp.py' CASES.jsonl
"""
import array, json, os, random, sys, time
from multiprocessing.connection import Client, Listener

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../python"))  # without pip install ./targets/python
from shardfuzz import worker

RANK, RANKS = worker.place()
DESCRIBE = {"name": "sample-mlp", "draws": 4, "fields": {
    "ranks": {"choices": [1, 2, 4], "layout": True}, "tokens": {"min": 1, "max": 8}, "hidden": {"min": 8, "max": 32, "step": 8},
    "seed": {"min": 0, "max": 1000}, "bug": {"choices": ["none", "no-reduce"], "layout": True}},
    "refuses": [{"when": {"hidden": [24], "ranks": [4]}, "reason": "6 columns on each of 4 ranks are not a whole number of quads"}]}


def connect_ranks(address):
    """Rank 0's connections to the others; everybody else's to rank 0."""
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


def draw(seed, name, indices):
    """Values of logical elements, whoever holds them."""
    return [random.Random(f"{seed}/{name}/{index}").gauss(0, 1) for index in indices]


def step(case, perturbed, links):
    """{name: (shape, index, values)}; perturbed > 0 moves every stored value as rounding might."""
    tokens, hidden, rng = case["tokens"], case["hidden"], random.Random(perturbed)
    store = lambda values: array.array("f", [v * (1 + (perturbed > 0) * 2**-23 * rng.uniform(-1, 1)) for v in values])
    mine = range(RANK * hidden // RANKS, (RANK + 1) * hidden // RANKS)
    x = store(draw(case["seed"], "x", range(tokens * hidden)))
    w1 = [draw(case["seed"], "fc1", range(n * hidden, (n + 1) * hidden)) for n in mine]
    w2 = [draw(case["seed"], "fc2", [n * hidden + k for k in mine]) for n in range(hidden)]
    fc1 = store(max(0, sum(a * b for a, b in zip(x[t * hidden:], row))) for t in range(tokens) for row in w1)
    part = [sum(a * b for a, b in zip(fc1[t * len(mine):], row)) for t in range(tokens) for row in w2]
    fc2 = store(part if case["bug"] == "no-reduce" or RANKS == 1 else all_reduce(links, part))
    shape, rows = [tokens, hidden], [[0, tokens]]
    return {"s0/mb0/fwd/act/mlp.fc1/0": (shape, [rows, [[mine.start, len(mine)]]], fc1), "s0/mb0/fwd/act/mlp.fc2/0": (shape, [rows, [[0, hidden]]], fc2)}


def write(folder, tensors):
    header, data = {}, b""
    for name, (_, index, values) in tensors.items():
        header[name] = {"dtype": "F32", "shape": [runs[0][1] for runs in index], "data_offsets": [len(data), len(data) + 4 * len(values)]}
        data += values.tobytes()
    places = {name: {"shape": shape, "index": index} for name, (shape, index, _) in tensors.items()}
    header["__metadata__"] = {"shardfuzz": json.dumps({"format": 1, "rank": RANK, "ranks": RANKS, "mode": "e2e", "tensors": places})}
    text = json.dumps(header).encode()
    with open(f"{folder}/rank-{RANK:05d}.safetensors", "wb") as file:
        os.posix_fallocate(file.fileno(), 0, 8 + len(text) + len(data))  # no room is an error here, which is answered
        file.write(len(text).to_bytes(8, "little") + text + data)


if __name__ == "__main__":
    connections = connect_ranks(os.environ["SHARDFUZZ_SOCKET"] + ".ranks") if RANKS > 1 else []
    worker.serve(DESCRIBE, lambda request, beat: write(request["out"], step(request["case"], request.get("draw", -1) + 1, connections)))
