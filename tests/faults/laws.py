"""What holds after every plan. Each law is a function of a trial that yields what breaks it, a line each; LAWS is the table."""
import contextlib
import json
import os
import re
import signal
import sqlite3
import time

from plan import breaks_connection, is_endless
from trial import processes

GONE_S = 5  # a process that ends is given so long
# Errors of the machine that make a case inconclusive: such a case is compared no further.
LIMITS = {"ENOMEM", "ENOSPC", "EAGAIN", "EIO"}
ENDING = {"KILL", "TERM", "INT", "torn"}
# Of a finding's folder: what the machine had no memory or no process for while the finding was shrunk is missing in these.
TOLD = {"shrink.txt", "report.txt", "contrast.json"}


class Books:
    """What a campaign has in the end. rows: idx -> (verdict, class, key, signature, label, rank); findings: signature -> (idx, case, smallest case);
    files: path -> text without the folder's own name."""

    def __init__(self, folder):
        self.rows, self.findings, self.doubled = {}, {}, []
        with contextlib.closing(sqlite3.connect(f"file:{folder}/store.sqlite?mode=ro", uri=True)) as store:
            self.integrity = store.execute("PRAGMA integrity_check").fetchone()[0]
            for idx, count, *row in store.execute("SELECT idx, max(count, 1), verdict, class, shrink_key, signature, label, rank FROM verdict ORDER BY idx"):
                for index in range(idx, idx + count):
                    self.doubled += [index] if index in self.rows else []
                    self.rows[index] = tuple(row)
            for signature, *row in store.execute("SELECT signature, idx, case_json, min_json FROM finding"):
                self.findings[signature] = tuple(row)
        self.files = dict(read_files(f"{folder}/out", folder))


def read_files(top, folder):
    for where, _, names in os.walk(top):
        for name in names:
            with open(os.path.join(where, name), encoding="utf-8", errors="replace") as file:
                yield os.path.relpath(os.path.join(where, name), top), file.read().replace(folder, "")


class Trial:
    """A plan that has run: its way, its runs (the last one left alone), its folder, its books, those of the campaign left alone."""

    def __init__(self, plan, way, runs, folder, expected):
        self.plan, self.way, self.runs, self.folder, self.expected = plan, way, runs, folder, expected
        self.beside = [name for name in os.listdir(folder) if name.startswith("store.sqlite") and name != "store.sqlite"]  # before reading leaves one
        self.books, self.unreadable = None, ""
        try:
            self.books = Books(folder)
        except (sqlite3.Error, OSError) as error:
            self.unreadable = str(error)
        # Cases that a fault may change: want of memory, disk or connections leaves one inconclusive, and a process that ends once in the middle of one is a finding that
        # does not come again. So is, to a campaign, the rank of a framework or a launched set whose connection broke, to the program or to another rank.
        self.lacks = any(fault.get("effect") in LIMITS for fault in plan.faults)
        self.is_cut_off = any(map(is_endless, plan.faults))
        breaks = plan.way in ("framework", "launched") and any(map(breaks_connection, plan.faults))
        may = {"INCONCLUSIVE"} if self.lacks or self.is_cut_off or breaks else set()
        once = {"flaky", "crash"} if self.is_cut_off else {"flaky"}  # without connections nobody can confirm a crash
        ending = breaks or any(fault.get("signal", fault.get("effect")) in ENDING for fault in plan.faults)
        rows = self.books.rows if self.books else {}
        self.limited = {index for index, row in rows.items() if row != expected.rows.get(index) and (row[0] in may or (ending and row[1] in once))}


def messages(run):
    return [line for line in run.stderr.splitlines() if line.startswith("shardfuzz: ")]


def closing(run):
    lines = run.stdout.strip().splitlines()
    with contextlib.suppress(ValueError, IndexError):
        return json.loads(lines[-1])
    return None


def ends(trial):
    """Each run ends: with a verdict and all cases, by a signal that it was sent, or with one line that says why."""
    for number, run in enumerate(trial.runs):
        last = number + 1 == len(trial.runs)
        name = "the last resume" if last else f"run {number}"
        report = closing(run)
        if run.code is None and run.launcher_stays:
            continue  # mpirun waits for itself (PMIx_server_finalize of Open MPI 4.1), and nothing of the program is left to end it
        if run.code is None and trial.way.mpi and trial.is_cut_off:
            continue  # each set of ranks whose connections break has a minute to start
        if run.code is None:
            yield f"{name} did not end"
        elif run.code == 1 and report and report["interrupted"] and not last and any_signal(run):
            continue  # what was found before the signal is new
        elif run.code in (0, 1) and report and (report["interrupted"] or report["cases"] != trial.way.cases):
            yield f"{name} ended with {run.code} after {report['cases']} of {trial.way.cases} cases"
        elif run.code in (0, 1) and report:
            continue
        elif run.code == 3 and report and report["cases"] == trial.way.cases == len(trial.limited):
            continue  # a limit of the machine left every case inconclusive, and the program says that nothing was judged
        elif last:
            yield f"{name} ended with {run.code}: {run.stderr.strip()[-300:]}"
        elif run.code < 0 or run.code > 128:
            ended_by = -run.code if run.code < 0 else run.code - 128
            if not any_signal(run) and not (trial.way.mpi and any(fault.get("effect") == "ENOMEM" for fault in run.faults)):  # Open MPI does not survive that
                yield f"{name} was ended by {signal.Signals(ended_by).name}, which nobody sent: {run.stderr.strip()[-300:]}"
        elif not trial.way.mpi and len(messages(run)) != 1:
            yield f"{name} ended with {run.code} and {len(messages(run))} lines that say why: {run.stderr.strip()[-300:]}"


def any_signal(run):
    """Whether something may have ended this run."""
    return bool(run.sent) or any(fault.get("effect") in ENDING for fault in run.faults)


def sound(trial):
    """The store can be read and is sound."""
    if trial.books is None:
        yield f"the store cannot be read: {trial.unreadable}"
    elif trial.books.integrity != "ok":
        yield f"integrity_check: {trial.books.integrity}"


def once(trial):
    """No case is lost or judged twice."""
    if trial.books is None:
        return
    missing = sorted(set(range(trial.way.cases)) - set(trial.books.rows))
    more = sorted(set(trial.books.rows) - set(range(trial.way.cases)))
    for text, indices in (("without a verdict", missing), ("beyond the last", more), ("with two verdicts", trial.books.doubled)):
        if indices:
            yield f"cases {text}: {indices[:5]}"


def same_verdicts(trial):
    """Verdicts are those of the campaign left alone. After a limit of the machine a case may be inconclusive; then another case's finding comes first, and
    names what shrinking made of it."""
    columns = 3 if trial.limited or trial.is_cut_off or trial.way.mpi else 6
    for index, row in trial.expected.rows.items():
        seen = trial.books.rows.get(index) if trial.books else None
        if seen and index not in trial.limited and seen[:columns] != row[:columns]:
            yield f"case {index}: {seen[:columns]}, left alone {row[:columns]}"


def same_findings(trial):
    """Findings and smallest cases are those of the campaign left alone."""
    if trial.books is None or trial.limited or trial.is_cut_off:
        return
    for signature in sorted(set(trial.expected.findings) | set(trial.books.findings)):
        seen, expected = trial.books.findings.get(signature), trial.expected.findings.get(signature)
        if seen != expected:
            what = "is new" if expected is None else "is missing" if seen is None else "has another case" if seen[:2] != expected[:2] else "has another smallest case"
            yield f"finding {signature} {what}"


def difference(expected, seen):
    """How a file is not as it should be; of one that differs the places from where on it does."""
    if expected is None or seen is None:
        return "is missing" if seen is None else "is left"
    at = len(os.path.commonprefix([expected, seen]))
    begin = max(0, at - 40)
    return f"differs: {expected[begin:at + 80]!r} should stand there, not {seen[begin:at + 80]!r}"


def same_files(trial):
    """The folders of findings have what they have in the campaign left alone, and nothing half-written."""
    if trial.books is None or trial.limited or trial.is_cut_off:
        return
    for path in sorted(set(trial.expected.files) | set(trial.books.files)):
        if trial.lacks and os.path.basename(path) in TOLD:
            continue
        if trial.books.files.get(path) != trial.expected.files.get(path):
            yield f"file {path} {difference(trial.expected.files.get(path), trial.books.files.get(path))}"


def nothing_left(trial):
    """No process and no file is left, but what Open MPI leaves when it is killed, which lies apart."""
    until = time.monotonic() + GONE_S
    while processes(trial.folder) and time.monotonic() < until:
        time.sleep(0.05)
    for pid in processes(trial.folder):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as file:
            yield f"process {pid} is left: {file.read().replace(chr(0), ' ')[:200]}"
    while (left := temporary_files(trial)) and time.monotonic() < until:
        time.sleep(0.05)
    for name in left:
        yield f"{name} is left"


def temporary_files(trial):
    """Where no process could be started to keep a folder, it stays until the next program removes it."""
    unkept = "shardfuzz" if any(fault.get("call") == "fork" for fault in trial.plan.faults) else "openmpi"
    return [f"temporary folder {name}" for name in os.listdir(f"{trial.folder}/tmp") if not re.match(f"ompi|openmpi|{unkept}", name)] + trial.beside


LAWS = {"ends": ends, "sound": sound, "once": once, "same verdicts": same_verdicts, "same findings": same_findings, "same files": same_files, "nothing left": nothing_left}


def broken(trial):
    """The laws that do not hold: name -> what breaks it first."""
    found = {}
    for name, law in LAWS.items():
        for text in law(trial):
            found.setdefault(name, text)
    return found
