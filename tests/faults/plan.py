"""A plan of faults: one way to run a campaign, and what happens to it when. Its text is one line that can be replayed:

    sim seed=2; signal=TERM to=parent at=300ms run=0; call=pwrite path=*sqlite* after=40 effect=ENOSPC times=0 who=any run=1

A plan has at most RUNS disturbed runs (run=0: the campaign's start; run=1: its first resume); a last resume is always left alone.
"""
import random
import re

RUNS = 2
SIGNALS = ("KILL", "TERM", "INT", "STOP")
# Who gets a signal: the process that was started; one of its descendants, by number; all processes; those of the upper half of the ranks, as if their
# machine was gone.
RECEIVERS = ("parent", "child:0", "child:1", "child:2", "child:3", "all", "node")
PATHS = {"write": ("*", "*.json*", "*.txt*", "*pipe*"), "pwrite": ("*sqlite*", "*sqlite-wal"), "fsync": ("*sqlite*", "*"), "ftruncate": ("*",), "mmap": ("*", "*sqlite*")}
DISK = ("ENOSPC", "EIO", "short", "torn", "slow", "KILL", "TERM", "INT")
# What can be wrong with a call: effects, and the most calls that go well before.
CALLS = {
    "write": (DISK, 60), "pwrite": (DISK, 200), "fsync": (("EIO", "slow", "KILL", "TERM"), 30), "ftruncate": (("EIO", "ENOSPC", "KILL"), 20),
    "mmap": (("ENOMEM", "KILL"), 60), "malloc": (("ENOMEM",), 20000), "fork": (("EAGAIN", "ENOMEM"), 12),
    "send": (("ECONNRESET", "hangup", "slow"), 20), "recv": (("ECONNRESET", "hangup", "EINTR"), 20),
    "time": (("jump:86400", "jump:-86400"), 40), "monotonic": (("jump:5", "jump:3600"), 200),
}
# Fields of a fault in the order of the text, with the simplest value of each: what shrinking tries first.
FIELDS = {
    "signal": {"to": "parent", "at": "0ms", "hold": "100ms", "run": "0"},
    "call": {"path": "*", "after": "0", "effect": None, "times": "1", "who": "any", "run": "0"},
}


class Plan:
    """way: a key of ways.WAYS; seed: the campaign's; faults: dicts of texts, whose first key is "signal" or "call"."""

    def __init__(self, way, seed, faults):
        self.way, self.seed, self.faults = way, seed, faults

    def __str__(self):
        return "; ".join([f"{self.way} seed={self.seed}"] + [" ".join(f"{name}={value}" for name, value in fault.items()) for fault in self.faults])

    def of_run(self, run):
        return [fault for fault in self.faults if int(fault["run"]) == run]


def kind(fault):
    return "signal" if "signal" in fault else "call"


def breaks_connection(fault):
    return fault.get("call") in ("send", "recv") and fault["effect"] in ("ECONNRESET", "hangup")


def is_endless(fault):
    """Whether the connections of all processes break for ever: what they would have said is not known."""
    return breaks_connection(fault) and fault["times"] == "0"


def allowed(name, value):
    """Whether a field may have this value; None where there is no such field."""
    if name == "signal":
        return value in SIGNALS
    if name == "to":
        return value in RECEIVERS
    if name == "call":
        return value in CALLS
    if name == "effect":
        return any(value in effects for effects, _ in CALLS.values())
    if name == "who":
        return value in ("any", "parent", "child")
    patterns = {"at": r"\d+(ms|cases)", "hold": r"\d+ms", "after": r"\d+", "times": r"\d+", "run": rf"[0-{RUNS - 1}]", "path": r"\S+"}
    return bool(re.fullmatch(patterns[name], value)) if name in patterns else None


def parse_fault(text):
    fault = dict(field.split("=", 1) if "=" in field else (field, "") for field in text.split())
    if not {"signal", "call"} & set(fault):
        raise ValueError(f"'{text}': a fault begins with signal= or call=")
    fields = FIELDS[kind(fault)]
    for name, value in fault.items():
        if name != kind(fault) and name not in fields:
            raise ValueError(f"'{text}': a {kind(fault)} has no field '{name}': it has {', '.join(fields)}")
        if not allowed(name, value):
            raise ValueError(f"'{text}': '{value}' is no value of {name}")
    missing = {name: simplest for name, simplest in fields.items() if name not in fault and (name != "hold" or fault.get("signal") == "STOP")}
    if "effect" in missing:
        raise ValueError(f"'{text}': effect= is missing: one of {', '.join(CALLS[fault['call']][0])}")
    return {kind(fault): fault.pop(kind(fault)), **fault, **missing}


def parse(text, ways):
    """The plan of a line. ValueError says what is wrong with it."""
    head, *faults = [part.strip() for part in text.split(";")]
    match = re.fullmatch(r"(\S+) seed=(\d+)", head)
    if not match or match[1] not in ways:
        raise ValueError(f"'{head}': a plan begins with 'WAY seed=N'; WAY is one of {', '.join(ways)}")
    return Plan(match[1], int(match[2]), [parse_fault(fault) for fault in faults if fault])


def draw_signal(rng, way, signals=SIGNALS):
    """Moments are early more often than late, in time or in verdicts that are stored."""
    signal = rng.choice(signals)
    at = f"{rng.randrange(1, way.cases + 1)}cases" if rng.random() < 0.3 else f"{int(way.seconds * 1000 * rng.random() ** 1.5)}ms"
    receivers = RECEIVERS if way.mpi else RECEIVERS[:-1]
    fault = {"signal": signal, "to": rng.choice(receivers), "at": at}
    return {**fault, "hold": f"{rng.randrange(50, 800)}ms"} if signal == "STOP" else fault


def draw_call(rng, way):
    """Few calls before are as likely as many, over several powers of ten."""
    call = rng.choice([call for call in CALLS if not (way.ranks and call in ("send", "recv"))])  # inside MPI all connections are MPI's own
    effects, most = CALLS[call]
    fault = {"call": call, "path": rng.choice(PATHS.get(call, ("*",))), "after": str(int(most ** rng.random()) - 1), "effect": rng.choice(effects)}
    once = fault["effect"] in ("torn", "KILL", "TERM", "INT", "EINTR", "hangup") or call == "malloc"
    return {**fault, "times": "1" if once or rng.random() < 0.5 else rng.choice(("0", "3")), "who": rng.choice(("any", "any", "parent", "child"))}


def draw(seed, ways, weights):
    """The plan of a seed; ways: name to way, weights: name to share."""
    rng = random.Random(seed)
    name = rng.choices(list(weights), list(weights.values()))[0]
    faults = []
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3))):
        fault = (draw_signal if rng.random() < 0.4 else draw_call)(rng, ways[name])
        faults.append({**fault, "run": str(rng.choice((0, 0, 1)))})
    return Plan(name, rng.randrange(1, ways[name].seeds + 1), faults)


def draw_one_signal(seed, ways, names, signals):
    """The plan of a seed with one signal, while the campaign runs first; all pairs of a way and a signal come in turn."""
    pairs = [(name, signal) for name in names for signal in signals]
    name, signal = pairs[seed % len(pairs)]
    rng = random.Random(seed)
    fault = {**draw_signal(rng, ways[name], (signal,)), "run": "0"}
    return Plan(name, rng.randrange(1, ways[name].seeds + 1), [fault])
