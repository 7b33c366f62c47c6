"""Runs a campaign under a plan: its disturbed runs, then resumes that are left alone until it has ended."""
import contextlib
import dataclasses
import os
import signal
import sqlite3
import subprocess
import threading
import time

from plan import RUNS, is_endless

TIMEOUT_S = 90  # of one run; the machine may be busy
START_S = 4 * 60  # where Open MPI does not come back: launched ranks have three times a minute to start, MPI_Init inside a job 3 minutes
BROKEN_S = 6 * 60  # each case and each trial of shrinking three times, where connections break for ever
POLL_S = 0.01
MARK = "SHARDFUZZ_FAULTS_MARK"
STATE_BYTES = 4096


@dataclasses.dataclass
class Run:
    """One run of the program. code: as subprocess has it, None where it did not end; sent: names of the signals that it was sent;
    faults: those of the plan that were of this run; launcher_stays: whether mpirun alone did not end, when all processes of the program had."""
    code: int | None
    stdout: str
    stderr: str
    sent: list
    faults: list
    launcher_stays: bool = False


class Tools:
    """What a trial needs: the program, its build folder, the interposed library."""

    def __init__(self, program, interpose):
        self.program, self.interpose = os.path.realpath(program), os.path.realpath(interpose)
        self.build = os.path.dirname(self.program)


def environment(folder):
    """Temporary files and the segments of MPI lie in the plan's own folder, by which its processes are known too."""
    os.makedirs(f"{folder}/tmp", exist_ok=True)
    own = {MARK: folder, "TMPDIR": f"{folder}/tmp", "OMP_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
           "OMPI_MCA_hwloc_base_binding_policy": "none", "OMPI_MCA_btl_vader_backing_directory": f"{folder}/mpi", "OMPI_MCA_orte_tmpdir_base": f"{folder}/mpi"}
    os.makedirs(f"{folder}/mpi", exist_ok=True)
    return {**os.environ, **own}


def environment_of(pid):
    with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
        return dict(part.split(b"=", 1) for part in file.read().split(b"\0") if b"=" in part)
    return {}


def is_dead(pid):
    with contextlib.suppress(OSError, IndexError), open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        return file.read().rsplit(")", 1)[1].split()[0] in "ZX"
    return True


def processes(folder):
    """Those of the plan of this folder, by number; ones that have ended do not count."""
    marked = [int(name) for name in os.listdir("/proc") if name.isdigit() and environment_of(name).get(MARK.encode()) == folder.encode()]
    return sorted(pid for pid in marked if not is_dead(pid))


def is_program(pid, tools):
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/{pid}/exe") == tools.program
    return False


def verdicts(folder):
    """How many cases the store has by now."""
    path = f"{folder}/store.sqlite"
    if not os.path.exists(path):
        return 0
    with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=0.05)) as store:
        return store.execute("SELECT coalesce(sum(count), 0) FROM verdict").fetchone()[0]
    return 0


def receivers(to, parent, folder):
    if to == "parent":
        return [parent]
    others = [pid for pid in processes(folder) if pid != parent]
    if to == "all":
        return [*others, parent]
    if to == "node":
        return [pid for pid in others if int(environment_of(pid).get(b"OMPI_COMM_WORLD_RANK", b"0")) > 0]
    return others[int(to.removeprefix("child:")) % len(others):][:1] if others else []


def send(pids, name):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, getattr(signal, f"SIG{name}"))


def deliver(fault, process, folder, sent, ended):
    """Waits for the moment of a signal, and sends it, unless the run ends first."""
    begin = time.monotonic()
    amount = int(fault["at"].rstrip("mscae"))
    reached = (lambda: verdicts(folder) >= amount) if fault["at"].endswith("cases") else (lambda: (time.monotonic() - begin) * 1000 >= amount)
    while not reached():
        if ended.wait(POLL_S):
            return
    pids = receivers(fault["to"], process.pid, folder)
    if ended.is_set() or not pids:
        return
    sent.append((fault["signal"], fault["to"]))
    send(pids, fault["signal"])
    if fault["signal"] == "STOP":
        time.sleep(int(fault["hold"].removesuffix("ms")) / 1000)
        send(pids[::-1], "CONT")


def calls(faults, tools, folder):
    """The environment that makes the calls fail."""
    lines = [" ".join(f"{name}={value}" for name, value in fault.items() if name != "run") for fault in faults if "call" in fault]
    if not lines:
        return {}
    with open(f"{folder}/calls", "wb") as file:
        file.write(bytes(STATE_BYTES))
    return {"LD_PRELOAD": tools.interpose, "SHARDFUZZ_FAULTS": "\n".join(lines), "SHARDFUZZ_FAULTS_STATE": f"{folder}/calls",
            "SHARDFUZZ_FAULTS_PROGRAM": os.path.basename(tools.program)}


def start(way, seed, faults, tools, folder):
    """One run under these faults."""
    command, sent, ended = way.command(tools.program, tools.build, seed, folder), [], threading.Event()
    with open(f"{folder}/stdout", "w+", encoding="utf-8", errors="replace") as out, open(f"{folder}/stderr", "w+", encoding="utf-8", errors="replace") as err:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env={**environment(folder), **calls(faults, tools, folder)},
                                   start_new_session=True)
        threads = [threading.Thread(target=deliver, args=(fault, process, folder, sent, ended)) for fault in faults if "signal" in fault]
        for thread in threads:
            thread.start()
        launcher_stays = False
        try:
            code = process.wait(TIMEOUT_S + START_S * way.mpi + BROKEN_S * any(map(is_endless, faults)))
        except subprocess.TimeoutExpired:
            code, launcher_stays = None, not any(is_program(pid, tools) for pid in processes(folder))
            send(processes(folder), "KILL")
            process.wait()
        ended.set()
        for thread in threads:
            thread.join()
        for file in (out, err):
            file.seek(0)
        return Run(code, out.read(), err.read(), sent, faults, launcher_stays)


def run_plan(plan, ways, tools, folder):
    """All runs of a plan; the last was left alone."""
    way = ways[plan.way]
    runs = []
    for number in range(RUNS):
        faults = plan.of_run(number)
        if faults:
            runs.append(start(way, plan.seed, faults, tools, folder))
    return [*runs, start(way, plan.seed, [], tools, folder)]
