"""Runs what a CI service would run, without it: a step of a composite action of GitHub Actions, or the script of a GitLab job.

    workflow.py github ACTION.yml STEP WORKFLOW.yml [INPUT=VALUE...]   the step's script; inputs as the workflow's `with:` gives them
    workflow.py gitlab PIPELINE.yml                                    the job's script

Reads as much of YAML as these files use: mappings by indentation, plain and quoted scalars, literal blocks. Exits with the script's code. As
on GitHub, RUNNER_TEMP and GITHUB_STEP_SUMMARY come from the environment.
"""
import os
import re
import subprocess
import sys
import textwrap


def read(path):
    with open(path, encoding="utf-8") as file:
        return [line.rstrip("\n") for line in file]


def indent(line):
    return len(line) - len(line.lstrip(" "))


def below(lines, start):
    """The lines that belong to the one at `start`."""
    end = start + 1
    while end < len(lines) and (not lines[end].strip() or indent(lines[end]) > indent(lines[start])):
        end += 1
    return lines[start + 1:end]


def find(lines, text):
    for number, line in enumerate(lines):
        if line.strip() == text:
            return number
    sys.exit(f"there is no line '{text}'")


def mapping(lines):
    """The scalars of a mapping's own level."""
    pairs = [re.fullmatch(r"([\w-]+): *(.*)", line.strip()) for line in lines if line.strip() and indent(line) == indent(lines[0])]
    return {pair[1]: pair[2].strip('"') for pair in pairs if pair}


def inputs_of(action):
    inputs = below(action, find(action, "inputs:"))
    names = [number for number, line in enumerate(inputs) if line.strip() and indent(line) == indent(inputs[0])]
    return {inputs[number].strip(" :"): mapping(below(inputs, number)).get("default", "") for number in names}


def github(action_path, step, workflow_path, *given):
    action, workflow = read(action_path), read(workflow_path)
    uses_action = re.search(r"uses: \S+/ci/examples/gate@main", "\n".join(workflow)) is not None
    inputs = inputs_of(action)
    wanted = {**mapping(below(workflow, find(workflow, "with:"))), **dict(one.split("=", 1) for one in given)}
    if not uses_action or set(wanted) - set(inputs):
        sys.exit(f"{workflow_path}: does not use the action, or gives it inputs that it lacks: {sorted(set(wanted) - set(inputs))}")
    inputs.update(wanted)
    lines = below(action, find(action, f"- name: {step}"))
    names = mapping(below(lines, find(lines, "env:")))
    environment = {name: re.sub(r"\$\{\{ inputs\.(\w+) \}\}", lambda match: inputs[match[1]], value) for name, value in names.items()}
    script = textwrap.dedent("\n".join(below(lines, find(lines, "run: |"))))
    return subprocess.run(["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script], env={**os.environ, **environment}, check=False).returncode


def gitlab(path):
    lines = read(path)
    script = textwrap.dedent("\n".join(below(lines, find(lines, "script:"))))
    commands = [re.sub(r"\s*\n\s*", " ", command) for command in re.split(r"^- ", script, flags=re.M)[1:]]
    return subprocess.run(["bash", "-eo", "pipefail", "-c", "\n".join(commands)], check=False).returncode


if __name__ == "__main__":
    sys.exit({"github": github, "gitlab": gitlab}[sys.argv[1]](*sys.argv[2:]))
