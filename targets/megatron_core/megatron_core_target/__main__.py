"""mpirun -n RANKS python -m megatron_core_target CASE.json... --out FOLDER

Each case has a folder in FOLDER, with the name of its file. On one rank it gets the reference in reference/ and perturbed runs of it in
draw-0/, draw-1/, ...; on as many ranks as the case's layout has, the candidate in candidate/.
Exit codes: 0; 2 bad usage, bad case, or a case that is not supported; 3 a run failed.
"""
import argparse
import os
import sys
import traceback

from .case import LAYOUT, CaseError, read_case
from .layout import layout_of


def arguments():
    parser = argparse.ArgumentParser(prog="megatron_core_target", description="Runs cases on megatron-core and writes their traces.")
    parser.add_argument("case", nargs="+")
    parser.add_argument("--out", required=True, metavar="FOLDER")
    parser.add_argument("--draws", type=int, default=9, help="perturbed runs beside the reference (9)")
    parser.add_argument("--strict", action="store_true", help="run what differs by design too")
    return parser.parse_args()


def fail(code, text):
    print(f"megatron_core_target: {text}", file=sys.stderr)
    return code


def folder_of(path, options):
    return os.path.join(options.out, os.path.splitext(os.path.basename(path))[0])


def main():
    options = arguments()
    try:
        cases = [(path, read_case(path, options.strict)) for path in options.case]
        for path, _ in cases:
            os.makedirs(folder_of(path, options), exist_ok=True)
    except (CaseError, OSError) as error:
        return fail(2, error)
    from . import shims
    shims.install_torch()
    from . import world
    rank, ranks = world.join(options.out)
    shims.install_megatron()
    for path, case in cases:
        layout = layout_of(case["layout"] if ranks > 1 else LAYOUT, rank)
        if layout.ranks != ranks:
            return fail(2, f"{path}: the layout has {layout.ranks} ranks, this run has {ranks}") if rank == 0 else 2
        try:
            run(case, layout, folder_of(path, options), options.draws, ranks)
        except Exception as error:  # whatever the package raises; other ranks end by their time limit or by mpirun
            traceback.print_exc()
            return fail(3, f"{path}: rank {rank}: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
    world.leave(options.out)
    return 0


def run(case, layout, folder, draws, ranks):
    from .standins import use_norm
    from .traces import write_candidate, write_reference
    use_norm()
    if ranks == 1:
        write_reference(case, layout, folder, draws)
    else:
        write_candidate(case, layout, folder, ranks)


def end(code):
    """Ends the process at once: a Gloo thread that still runs while the interpreter is taken down now and then aborts it, with all work done."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


end(main())
