"""The sample worker with everything that can go wrong with a worker: a case's fault says what, and on which rank; an argument, at import."""
import functools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../targets/samples"))
import worker_mlp  # noqa: E402

RANK, RANKS = worker_mlp.RANK, worker_mlp.RANKS
DESCRIBE = {"name": "faulty", "draws": 2,
            "fields": {**worker_mlp.DESCRIBE["fields"],
                       "fault": {"choices": ["none", "stdout", "silent", "silent-once", "nap", "alive", "slow", "other-id", "garbage", "no-object", "empty", "endless", "fill", "unusable",
                                             "crash", "exit", "raise", "one-sided", "one-sided-exit", "child", "twice", "late", "refuse", "refuse-last", "disagree",
                                             "truncate", "no-file", "nan", "unperturbed", "greedy", "loop", "fifo", "directory", "socket", "forbidden",
                                             "no-folder", "other-folder", "closed-folder", "no-work-folder", "no-reference",
                                             "burn", "burn-some", "burn-then-crash", "late-words"], "layout": True},
                       "where": {"choices": [-1, 0, 1], "layout": True},
                       "run": {"choices": ["candidate", "reference", "draw", "draw 8"], "layout": True}},
            "refuses": []}
AT_IMPORT = sys.argv[1] if len(sys.argv) > 1 else ""


def say(stream, text):
    stream.write(text + "\n")
    stream.flush()


def beat(stream, request, stop):
    while not stop.wait(0.1):
        say(stream, json.dumps({"id": request["id"], "heartbeat": "still there"}))


def burn(fault):
    """Uses processor time: all that this process has, or less than a second."""
    began = time.process_time()
    while fault == "burn" or time.process_time() - began < 0.8:
        pass


def end_at_once(fault):
    """What ends this process."""
    if fault.startswith("burn"):
        burn(fault)
    if fault == "child":
        subprocess.Popen(["sleep", "1000"], start_new_session=True)
    if fault in ("crash", "child", "burn-then-crash"):
        print(f"rank {RANK} is about to fall", flush=True)
        os.kill(os.getpid(), signal.SIGSEGV)
    if fault == "exit":
        os._exit(0)
    held = []
    while fault == "greedy":  # for a process whose memory is limited
        held.append(bytearray(1 << 24))


def spoil(request, fault):
    """The trace, after it was written."""
    path = f"{request['out']}/rank-{RANK:05d}.safetensors"
    if fault == "no-file":
        os.unlink(path)
    if fault == "truncate":
        os.truncate(path, os.path.getsize(path) - 4)
    if fault == "nan":
        with open(path, "r+b") as file:
            file.seek(-4, os.SEEK_END)
            file.write(b"\0\0\xc0\x7f")
    spoil_place(request["out"], path, fault)


def spoil_place(folder, path, fault):
    """Where the trace should be."""
    if fault in ("loop", "fifo", "directory", "socket"):
        os.unlink(path)
    if fault == "loop":
        os.symlink(path, path)
    if fault == "fifo":
        os.mkfifo(path)
    if fault == "directory":
        os.mkdir(path)
    if fault == "socket":
        socket.socket(socket.AF_UNIX).bind(path)
    if fault == "forbidden":
        os.chmod(path, 0)
    if fault in ("no-folder", "other-folder"):
        shutil.rmtree(folder)
    if fault == "other-folder":
        os.symlink("/tmp", folder)
    if fault == "closed-folder":
        os.mkdir(folder + "/closed")
        open(folder + "/closed/file", "w").close()
        os.chmod(folder + "/closed", 0)
    if fault == "no-work-folder":
        shutil.rmtree(os.path.dirname(folder))
    if fault == "no-reference":
        shutil.rmtree(os.path.join(os.path.dirname(folder), "reference"))


def run(links, fault, request, _):
    """The sample's run, unless the framework does not want to."""
    if fault == "raise":
        raise ValueError("this configuration is wrong")
    if fault == "unusable":
        raise worker_mlp.worker.Unusable("the service of GPU 0 is gone")
    if fault in ("refuse", "refuse-last", "disagree"):
        raise worker_mlp.worker.Refused("not today", last=fault == "refuse-last")
    perturbed = 0 if fault == "unperturbed" else request.get("draw", -1) + 1
    worker_mlp.worker.write_trace(request["out"], worker_mlp.step(request["case"], perturbed, links))


def answer(stream, request, links, fault):
    """The lines to say."""
    if fault == "stdout":
        print("noise on stdout\n" + json.dumps({"id": request["id"], "ok": {}}), flush=True)
        print("noise on stderr", file=sys.stderr, flush=True)
    once = os.path.join(os.path.dirname(os.environ["SHARDFUZZ_SOCKET"]), "hung-once")  # in the folder that all sets of a run share
    if fault == "silent" or (fault == "silent-once" and not os.path.exists(once)):
        if fault == "silent-once":
            open(once, "w").close()
        time.sleep(1000)
    if fault == "nap":
        open(os.path.join(os.path.dirname(request["out"]), "napping"), "w").close()
        time.sleep(3)
    if fault in ("alive", "slow"):
        stop = threading.Event()
        thread = threading.Thread(target=beat, args=(stream, request, stop))
        thread.start()
        time.sleep(1000 if fault == "alive" else 1.5)
        stop.set()
        thread.join()
    end_at_once(fault)
    if fault == "other-id":
        return [json.dumps({"id": request["id"] + 7, "ok": {}})]
    if fault in ("garbage", "no-object", "empty"):
        return [{"garbage": "\x07not JSON at all", "no-object": "[1]", "empty": json.dumps({"id": request["id"]})}[fault]]
    if fault == "endless":
        return ["x" * (3 << 20)]
    if fault == "one-sided":
        return [json.dumps({"id": request["id"], "error": f"RuntimeError: only rank {RANK} sees this"})]
    if fault == "one-sided-exit":
        say(stream, json.dumps({"id": request["id"], "error": f"RuntimeError: only rank {RANK} sees this"}))
        os._exit(1)
    if fault == "late-words":
        threading.Timer(0.15, say, (sys.stderr, "in run\nLateError: told late")).start()
        return [json.dumps({"id": request["id"], "error": "LateError: told late"})]
    if fault == "fill":
        os.posix_fallocate = lambda fd, start, length: fallocate(fd, start, 1 << 60)
    said = [json.dumps({"id": request["id"], **worker_mlp.worker.answer(request, functools.partial(run, links, fault), None)})]
    os.posix_fallocate = fallocate
    spoil(request, fault)
    if fault == "twice":
        time.sleep(0.3)  # the others have answered
        return ["\n".join(said * 2)]
    if fault == "late":
        threading.Timer(0.5, say, (stream, said[0])).start()
    return said


fallocate = os.posix_fallocate


def main():
    if AT_IMPORT == "import" or (AT_IMPORT == "import-one" and RANK == RANKS - 1 and RANKS > 1):
        raise ImportError("no module named nonsense")
    if AT_IMPORT == "sleep" and RANKS > 1:
        time.sleep(1000)
    path = os.environ["SHARDFUZZ_SOCKET"]
    with open(os.path.join(os.path.dirname(path), "mark"), "w") as file:
        print(os.environ.get("SHARDFUZZ_TEST_MARK"), file=file)
    links = worker_mlp.connect_ranks(path + ".ranks") if RANKS > 1 else []
    harness = socket.socket(socket.AF_UNIX)
    harness.connect(path)
    stream = harness.makefile("rw")
    hello = {"hello": 1, "rank": RANK, "ranks": RANKS}
    say(stream, json.dumps({**hello, **json.loads(AT_IMPORT)}) if AT_IMPORT.startswith("{") else json.dumps(hello))
    for line in stream:
        request = json.loads(line)
        if request["request"] == "quit":
            break
        if request["request"] == "describe":
            say(stream, json.dumps({"id": request["id"], "ok": DESCRIBE}))
            continue
        case = request["case"]
        here = case["where"] in (-1, RANK) and case["run"] in (request["run"], f"draw {request.get('draw')}")
        for text in answer(stream, request, links, case["fault"] if here else "none"):
            say(stream, text)
        if here and case["fault"] == "refuse-last":
            time.sleep(0.5)  # the next request comes before the end
            break


main()
