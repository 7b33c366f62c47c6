"""A case: a JSON object that fixes the computation and its layout. It is read strictly; a case that cannot run is refused with a reason."""
import json

from .fields import CHOICES, SEED, defaults, value_of
from .rules import refusals


class CaseError(ValueError):
    """A case that cannot be read or run; its text is one line for the user."""


TOP = defaults()
COUNTS = ("steps", "microbatches", "microbatch_size", "sequence_length", "layout.tp", "layout.cp", "layout.dp", "layout.pp", "layout.vpp",
          "layout.ep", "layout.etp")


def read_case(path, strict=False):
    """The case in a file with every field filled in. Raises CaseError."""
    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file, object_pairs_hook=_unique)
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, CaseError) as error:
        raise CaseError(f"{path}: {error}") from error
    try:
        return complete(_of_campaign(document), strict)
    except CaseError as error:
        raise CaseError(f"{path}: {error}") from error


def complete(document, strict=False):
    """A case with defaults filled in. Raises CaseError for unknown fields, wrong types and what the target does not support."""
    case = _filled(document, TOP, "")
    for path, choices in CHOICES.items():
        value = value_of(case, path)
        if isinstance(choices[0], str) and not path.startswith("model.") and value not in choices:
            raise CaseError(f"{path}: {value!r} is none of {', '.join(choices)}")
    if case["target"] != "megatron-core":
        raise CaseError("target must be megatron-core")
    for path in COUNTS:
        if value_of(case, path) < 1:
            raise CaseError(f"{path}: {value_of(case, path)} is below 1")
    reasons = refusals(case, strict)
    if reasons:
        raise CaseError("not supported: " + "; ".join(reasons))
    return case


def _of_campaign(document):
    """The object of a case as shardfuzz writes it, with its seed; other documents as they are."""
    if not isinstance(document, dict) or "framework" not in document:
        return document
    return {"seed": SEED["min"] + document.get("seed", 0) % (SEED["max"] - SEED["min"] + 1), "target": document["target"]["name"], **document["framework"]}


def _unique(pairs):
    keys = [key for key, _ in pairs]
    if len(set(keys)) != len(keys):
        raise CaseError(f"repeated key {next(key for key in keys if keys.count(key) > 1)!r}")
    return dict(pairs)


def _filled(document, defaults, path):
    """`document` over `defaults`; keys that those lack and values of another type are refused. None as default admits any value."""
    if not isinstance(document, dict):
        raise CaseError(f"{path or 'the case'}: not an object")
    result = dict(defaults)
    for key, value in document.items():
        here = f"{path}.{key}" if path else key
        if key not in defaults:
            raise CaseError(f"{here}: unknown key")
        default = defaults[key]
        if isinstance(default, dict):
            result[key] = _filled(value, default, here)
        elif default is None or value is None and path == "model":
            result[key] = value
        elif isinstance(default, bool) != isinstance(value, bool) or not isinstance(value, _types(default)):
            raise CaseError(f"{here}: {value!r} is of another type than {default!r}")
        else:
            result[key] = value
    for key, default in defaults.items():
        if isinstance(default, dict) and key not in document:
            result[key] = dict(default)
    return result


def _types(default):
    if isinstance(default, float):
        return (int, float, list)
    return (str, list) if isinstance(default, str) else (int, list) if isinstance(default, int) else type(default)
