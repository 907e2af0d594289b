"""Install this project with the libraries of an extra (its only argument), each by its hash, and say what
takes long."""

import re
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
_LONG = re.compile(
    r"\s*(Downloading \S+ \([\d.]+ MB\)|Building wheel for \S+(?=.*started)|Installing collected packages)"
)
"""What pip says before steps that may take seconds: it fetches 1 MB or more, builds, unpacks."""


def long_step(line: str) -> str | None:
    """What a line of pip's says of a step that takes long; None for any other."""
    found = _LONG.match(line)
    return found[1] if found else None


def main(extra: str) -> int:
    """Pip's exit code; where it failed, all that it said is shown. What is built of source takes the tools
    that are installed first, as pip would fetch others without looking at their hashes."""
    locked = ("--require-hashes", "--no-deps", "--no-build-isolation", "--requirement")
    for words in (
        (*locked, "requirements/build.txt"),
        (*locked, f"requirements/{extra}.txt"),
        ("--no-deps", "--no-build-isolation", "--editable", "."),
    ):
        if code := _install(*words):
            return code
    return 0


def _install(*words: str) -> int:
    # Less than half of what it would compile is ever imported, and that is compiled then.
    quick = ("--progress-bar", "off", "--no-compile")
    command = [sys.executable, "-m", "pip", "install", *quick, *words]
    said = []
    with subprocess.Popen(
        command, cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as pip:
        assert pip.stdout is not None
        for line in pip.stdout:
            said.append(line)
            if step := long_step(line):
                print(f"  {step}", flush=True)
    if pip.returncode:
        sys.stderr.writelines(said)
    return pip.returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
