"""Checks a SARIF log by the rules of SARIF 2.1.0 that count for a reader: python3 tests/integration/sarif.py FILE. Exits 1 with a line for each offence.

The rules are written down here from the standard (OASIS, sections 3.13 to 3.52), so that the test needs neither its schema file nor a network.
"""
import json
import re
import sys

LEVELS = {"none", "note", "warning", "error"}
URI = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*:)?(?:[A-Za-z0-9._~!$&'()*+,;=:@/?#-]|%[0-9A-Fa-f]{2})+")
# Of each kind of object: {property: (type, required)}. A property that is not named here is an offence, as the schema has no further ones.
OBJECTS = {
    "log": {"$schema": (str, False), "version": (str, True), "runs": (list, True)},
    "run": {"tool": (dict, True), "results": (list, False), "invocations": (list, False), "properties": (dict, False)},
    "tool": {"driver": (dict, True)},
    "driver": {"name": (str, True), "version": (str, False), "rules": (list, False)},
    "rule": {"id": (str, True), "shortDescription": (dict, False), "defaultConfiguration": (dict, False)},
    "invocation": {"executionSuccessful": (bool, True)},
    "configuration": {"level": (str, False)},
    "message": {"text": (str, True)},
    "result": {"ruleId": (str, False), "level": (str, False), "message": (dict, True), "locations": (list, False), "partialFingerprints": (dict, False),
               "properties": (dict, False)},
    "location": {"physicalLocation": (dict, False)},
    "physicalLocation": {"artifactLocation": (dict, True), "region": (dict, False)},
    "artifactLocation": {"uri": (str, True)},
    "region": {"startLine": (int, False)},
}
# What lies inside: {kind: {property: kind of it, or of each in a list}}.
INSIDE = {
    "log": {"runs": "run"},
    "run": {"tool": "tool", "results": "result", "invocations": "invocation"},
    "tool": {"driver": "driver"},
    "driver": {"rules": "rule"},
    "rule": {"shortDescription": "message", "defaultConfiguration": "configuration"},
    "result": {"message": "message", "locations": "location"},
    "location": {"physicalLocation": "physicalLocation"},
    "physicalLocation": {"artifactLocation": "artifactLocation", "region": "region"},
}


def check_object(value, kind, path, wrong):
    if not isinstance(value, dict):
        wrong.append(f"{path}: {kind} is no object")
        return
    for name, (wanted, required) in OBJECTS[kind].items():
        if name not in value and required:
            wrong.append(f"{path}.{name}: missing")
        elif name in value and (not isinstance(value[name], wanted) or (wanted is int and isinstance(value[name], bool))):
            wrong.append(f"{path}.{name}: not {wanted.__name__}")
    wrong.extend(f"{path}.{name}: no such property" for name in value.keys() - OBJECTS[kind].keys())
    for name, inner in INSIDE.get(kind, {}).items():
        inside = value.get(name, [])
        for at, one in enumerate(inside if isinstance(inside, list) else [inside]):
            check_object(one, inner, f"{path}.{name}[{at}]", wrong)


def check_values(log, wrong):
    if log["version"] != "2.1.0":
        wrong.append("version: not 2.1.0")
    for run in log["runs"]:
        rules = [rule["id"] for rule in run["tool"]["driver"].get("rules", [])]
        if len(rules) != len(set(rules)):
            wrong.append("rules: an id stands there twice")
        for result in run.get("results", []):
            if result["ruleId"] not in rules:
                wrong.append(f"result: its rule {result['ruleId']} is not there")
            if result["level"] not in LEVELS:
                wrong.append(f"result: level {result['level']}")
            if not result["message"]["text"]:
                wrong.append("result: an empty message")
            for location in result["locations"]:
                place = location["physicalLocation"]
                if not URI.fullmatch(place["artifactLocation"]["uri"]) or place["region"]["startLine"] < 1:
                    wrong.append(f"location: {place}")
            if not all(isinstance(one, str) for one in result["partialFingerprints"].values()):
                wrong.append("result: a fingerprint that is no text")


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        log = json.load(file)
    wrong = []
    check_object(log, "log", "log", wrong)
    if not wrong:
        check_values(log, wrong)
    print("\n".join(wrong), end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
