"""Checks that help, man pages, completions and the reference document have the same commands, options, choices, fields and exit codes.

    SHARDFUZZ=build/shardfuzz python3 tests/integration/manual.py PREFIX    # below PREFIX lies what `shardfuzz manual PREFIX` wrote

The help is the measure; the reference shows it word for word, which tests/integration/documents.py compares. Prints a line for each difference and
exits with 1 if there is any.
"""
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("SHARDFUZZ", str(ROOT / "build/shardfuzz"))
REFERENCE = (ROOT / "harness/docs/reference.md").read_text()
OPTION = r"--[a-z][a-z-]*"


def printed(*arguments):
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, check=True).stdout


def plain(roff):
    """A page's text without roff's requests and escapes."""
    text = re.sub(r"(?m)^\.(?:B|I|BR|TP|SH|TH)\b ?", "", roff)
    return text.replace("\\&", "").replace("\\-", "-").replace("\\e", "\\")


def terms(page, section):
    """The terms of a section's items."""
    body = re.search(rf"(?ms)^\.SH {section}\n(.*?)(?=^\.SH |\Z)", page)
    return [plain(term) for term in re.findall(r"(?m)^\.TP\n\.B (.*)$", body.group(1))] if body else []


class Manual:
    def __init__(self, prefix):
        share = Path(prefix, "share")
        self.pages = {path.stem: path.read_text() for path in [*share.glob("man/man1/*.1"), *share.glob("man/man7/*.7")]}
        self.bash = (share / "bash-completion/completions/shardfuzz").read_text()
        self.zsh = (share / "zsh/site-functions/_shardfuzz").read_text()
        self.wrong = []

    def same(self, what, want, **seen):
        for where, value in seen.items():
            if list(value) != list(want):
                only = [f"only {side}: {one}" for side, values, others in (("the help", want, value), (where, value, want)) for one in values if one not in others]
                self.wrong.append(f"{what}: {where} differs from the help: {', '.join(only) or 'another order'}")

    def bash_of(self, pattern):
        found = re.search(rf'(?m)^  {pattern}\) words="([^"]*)"', self.bash)
        return found.group(1).split() if found else []

    def check_program(self):
        text = printed("--help")
        commands = re.findall(r"(?m)^  (\w+) {2,}\S", text.split("exit codes")[0])
        codes = re.findall(r"(?m)^  ([\d, ]*\d) {2,}\S", text.split("exit codes")[1])
        self.same("commands", commands, man=terms(self.pages["shardfuzz"], "COMMANDS"), bash=self.bash_of(r"\*:shardfuzz[^)]*")[:-3],
                  zsh=re.findall(r"(?m)^    '(\w+):", self.zsh)[:-1], reference=re.findall(r"\$ shardfuzz (\w+) --help", REFERENCE))
        self.same("pages", sorted([*commands, "fields"]), man=sorted(name.removeprefix("shardfuzz-") for name in self.pages if name != "shardfuzz"))
        for name in ("shardfuzz", *(f"shardfuzz-{command}" for command in commands)):
            self.same(f"exit codes of {name}", codes, man=terms(self.pages[name], "EXIT STATUS"))
        return commands

    def check_command(self, name):
        usages = re.findall(rf"(?m)^  ((?:-\w, )?{OPTION}(?: \S+)*?)(?: {{2,}}|$)", printed(name, "--help"))
        names = [re.search(OPTION, usage).group(0) for usage in usages]
        section = re.search(rf"(?ms)^  {name}\) _arguments (.*?) ;;$", self.zsh).group(1)
        self.same(f"options of {name}", usages, man=terms(self.pages[f"shardfuzz-{name}"], "OPTIONS"))
        self.same(f"options of {name}", names, bash=self.bash_of(rf"{name}:\*")[:-1], zsh=re.findall(rf"'\*?({OPTION})", section)[1:])
        for usage in usages:
            option, _, choices = re.sub(r"^-\w, ", "", usage).partition(" ")
            if "|" in choices and choices.islower():
                zsh = re.search(rf"'\*?{option}=.*:\(([^)]*)\)'", section)
                self.same(f"choices of {name} {option}", choices.split("|"), bash=self.bash_of(f"{name}:{option}"), zsh=zsh.group(1).split() if zsh else [])

    def check_fields(self):
        lines = printed("list", "fields").splitlines()
        fields = [line.split()[0] for line in lines]
        self.same("fields", fields, man=[term.split(" ")[0] for term in terms(self.pages["shardfuzz-fields"], "FIELDS")])
        for where, text in (("bash", self.bash), ("zsh", self.zsh)):
            self.same("fields", sorted(fields), **{where: sorted(re.search(r'fields=[("]([^)"]*)', text).group(1).replace("=", "").split())})
        if "$ shardfuzz list fields\n" + "\n".join(lines) not in REFERENCE:
            self.wrong.append("fields: the reference does not show what `shardfuzz list fields` prints")


def main():
    manual = Manual(sys.argv[1])
    for name in manual.check_program():
        manual.check_command(name)
    manual.check_fields()
    print("\n".join(manual.wrong) or f"{len(manual.pages)} pages and 2 completions agree with the help")
    return 1 if manual.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
