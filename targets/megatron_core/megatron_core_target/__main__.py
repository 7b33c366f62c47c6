"""Runs cases on the real megatron-core.

mpirun -n RANKS python -m megatron_core_target CASE.json... --out FOLDER
    Each case has a folder in FOLDER, with the name of its file. On one rank it gets the reference in reference/ and perturbed runs of it in
    draw-0/, draw-1/, ...; on as many ranks as the case's layout has, the candidate in candidate/.
python -m megatron_core_target serve
    The worker of targets/worker.md, started by shardfuzz.
Exit codes: 0; 2 bad usage, bad case, or a case that is not supported; 3 a run failed.
"""
import argparse
import os
import sys
import traceback

from .case import CaseError, read_case
from shardfuzz.megatron.layout import layout_of


def arguments():
    serving = sys.argv[1:2] == ["serve"]
    parser = argparse.ArgumentParser(prog="megatron_core_target" + " serve" * serving, description="Runs cases on megatron-core and writes their traces.",
                                     epilog="megatron_core_target serve: be the worker of shardfuzz fuzz or shardfuzz worker")
    parser.add_argument("--strict", action="store_true", help="run what differs by design too")
    if not serving:
        parser.add_argument("case", nargs="+")
        parser.add_argument("--out", required=True, metavar="FOLDER")
        parser.add_argument("--draws", type=int, default=9, help="perturbed runs beside the reference (9)")
    return serving, parser.parse_args(sys.argv[2:] if serving else sys.argv[1:])


def fail(code, text):
    print(f"megatron_core_target: {text}", file=sys.stderr)
    return code


def folder_of(path, options):
    return os.path.join(options.out, os.path.splitext(os.path.basename(path))[0])


def main():
    serving, options = arguments()
    if serving:
        from .serving import serve
        try:
            serve(options.strict)
        except RuntimeError as error:
            return fail(2, error)
        return 0
    try:
        cases = [(path, read_case(path, options.strict)) for path in options.case]
        for path, _ in cases:
            os.makedirs(folder_of(path, options), exist_ok=True)
    except (CaseError, OSError) as error:
        return fail(2, error)
    return run_files(cases, options)


def run_files(cases, options):
    """Traces of case files, as the text above says. Returns the exit code."""
    from shardfuzz import gloo

    from . import shims
    shims.install_torch()
    rank, ranks = gloo.join(os.path.join(options.out, ""))
    shims.install_megatron()
    from .given import require_library
    from .session import Session
    from .standins import use_norm
    from .traces import write_candidate, write_reference
    use_norm()
    session = Session(rank, ranks)
    try:
        for _, case in cases:
            require_library(case)
    except RuntimeError as error:
        return fail(2, error)
    for path, case in cases:
        layout = layout_of(case["layout"], rank)
        if ranks > 1 and layout.ranks != ranks:
            return fail(2, f"{path}: the layout has {layout.ranks} ranks, this run has {ranks}") if rank == 0 else 2
        try:
            if ranks == 1:
                write_reference(session, case, folder_of(path, options), options.draws)
            else:
                write_candidate(session, case, folder_of(path, options), ranks)
        except Exception as error:  # whatever the package raises; other ranks end by their time limit or by mpirun
            traceback.print_exc()
            return fail(3, f"{path}: rank {rank}: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
    gloo.leave()
    return 0


def end(code):
    """Ends the process at once: a Gloo thread that still runs while the interpreter is taken down now and then aborts it, with all work done."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


end(main())
