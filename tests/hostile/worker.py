"""The sample worker with a missing all-reduce and texts that no report expects: a module's name, a refusal, an exception, what a rank prints."""
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../targets/samples"))
import worker_mlp  # noqa: E402

EVIL = "\x1b[31m<img src=x>`|\n::error::forged\r##[error]forged\u009b\u202e'; touch forged; '"
LONG = "encoder_with_a_name_that_no_field_of_a_report_was_made_for." * 3
NAMES = ["mlp.fc2", LONG + "query", LONG + "value", "x" * 90 + "1", "x" * 90 + "2", "block/query", "block/value", "block-query", "y" * 600 + "1", "y" * 600 + "2",
         "::error::<img src=x>`|##[error]$(touch forged)'; touch forged; '"]  # each a module; a trace's names are plain ASCII
DESCRIBE = {"name": "hostile" + (EVIL if sys.argv[1:] == ["name"] else ""), "draws": 2, "fields": {
    "ranks": {"choices": [2, 1], "layout": True}, "tokens": {"choices": [2]}, "hidden": {"choices": [8]}, "seed": {"min": 0, "max": 9},
    "name": {"choices": list(range(len(NAMES)))}, "does": {"choices": ["run", "refuse", "raise", "crash"], "layout": True}},
    "refuses": [{"when": {"does": ["refuse"], "name": [1]}, "reason": "refused: " + EVIL}]}


def run(request, _):
    case = request["case"]
    if request["run"] == "candidate" and case["does"] == "refuse":
        raise worker_mlp.worker.Refused(EVIL)
    if request["run"] == "candidate" and case["does"] == "raise":
        raise ValueError(f"at {tempfile.mktemp()} {EVIL}")  # a path of this process alone
    if request["run"] == "candidate" and case["does"] == "crash":
        print(EVIL, flush=True)
        os.abort()
    traced = worker_mlp.step({**case, "bug": "no-reduce"}, request.get("draw", -1) + 1, [])
    worker_mlp.worker.write_trace(request["out"], {name.replace("mlp.fc2", NAMES[case["name"]]): value for name, value in traced.items()})


if __name__ == "__main__":
    worker_mlp.worker.serve(DESCRIBE, run)
