"""The sample worker as one whose first process forks its ranks, with what can go wrong there: the case's fault, and an argument for what happens while it imports."""
import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../targets/samples"))
import worker_mlp  # noqa: E402
from worker_mlp import worker  # noqa: E402

WORK, AT_IMPORT = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""
DESCRIBE = {"name": "forking", "draws": 2,
            "fields": {**worker_mlp.DESCRIBE["fields"], "fault": {"choices": ["none", "fall", "orphan", "sleep", "raise", "no-zygote"], "layout": True}}}
STATE = []


def note(name):
    """One line for each time that something happens."""
    with open(f"{WORK}/{name}", "a", encoding="ascii") as file:
        file.write(f"{os.getpid()}\n")


def preload():
    note("imports")
    if AT_IMPORT == "broken":
        raise ImportError("there is no such framework")
    print("imported", flush=True)


def parent_of(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        return int(file.read().split()[3])


def run(request, beat):
    if not STATE:
        note("ranks")
        worker_mlp.RANK, worker_mlp.RANKS = worker.place()
        STATE.append(worker_mlp.connect_ranks(os.environ["SHARDFUZZ_SOCKET"] + ".ranks") if worker_mlp.RANKS > 1 else [])
    fault = request["case"]["fault"] if request["run"] == "candidate" and worker_mlp.RANK == 0 else "none"
    if fault == "orphan":
        subprocess.Popen(["sleep", "1000"], start_new_session=True)
    if fault in ("fall", "orphan"):
        print("rank 0 is about to fall", flush=True)
        os.kill(os.getpid(), signal.SIGSEGV)
    if fault == "sleep":
        time.sleep(1000)
    if fault == "raise":
        raise ValueError("this configuration is wrong")
    worker_mlp.run(request, STATE[0])
    if fault == "no-zygote" and "OMPI_COMM_WORLD_RANK" not in os.environ and not os.path.exists(f"{WORK}/killed"):
        note("killed")
        os.kill(parent_of(os.getppid()), signal.SIGKILL)


worker.serve(DESCRIBE, run, preload=preload)
