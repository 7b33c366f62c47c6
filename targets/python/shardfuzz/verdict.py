"""What the program says of a trace, as a Python object. Needs no torch."""
import json

from .program import call


class Result:
    """One verdict. str() is the report, bool() is whether it passed.

    reference, candidate: the folders that were compared. verdict: "PASS", "FINDING" or "INCONCLUSIVE" (nothing could be judged, which is not a pass). details: the candidate's object of
    `shardfuzz check --json`, whose keys harness/docs/reference.md lists."""

    def __init__(self, reference: str, report: str, details: dict):
        self.reference, self.report, self.details = reference, report, details
        self.candidate, self.verdict = details["path"], details["verdict"]

    def __str__(self) -> str:
        return self.report

    def __bool__(self) -> bool:
        return self.verdict == "PASS"

    def __repr__(self) -> str:
        first = self.details.get("first")
        return f"<shardfuzz.Result {self.verdict}{': ' + first['id'] if first else ''}>"


def check(reference: str, candidate: str) -> Result:
    """Judges the trace in the folder `candidate` by the one in `reference`, as `shardfuzz check` does. Prints nothing:

        result = shardfuzz.check("reference", "parallel")
        assert result, result

    Raises ShardfuzzError when a folder cannot be read, or there is no program."""
    done = call("check", str(reference), str(candidate), "--json", codes=(0, 1))
    details = json.loads(done.stdout.strip().splitlines()[-1])
    return Result(str(reference), done.stderr.rstrip("\n"), details["candidates"][0])
