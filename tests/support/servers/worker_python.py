"""A Python as the workers of a cluster have it: with pyarrow, and without `dlq` and all else that it needs.

python tests/support/servers/worker_python.py   into .brokers/worker-python, once
"""

import sys
from importlib.metadata import version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from support.environments import environment

FOLDER = Path(__file__).resolve().parents[3] / ".brokers" / "worker-python"
PYTHON = str(FOLDER / "bin" / "python")
BARE = str(FOLDER / "bare" / "bin" / "python")
"""One that has not even pyarrow."""


def install() -> None:
    """Make both virtual environments; returns at once when they are there."""
    complete = FOLDER / f".complete-{version('pyarrow')}"
    if not complete.exists():
        environment(FOLDER, "pyarrow")
        environment(FOLDER / "bare")
        complete.touch()


def why_missing(_kind: str) -> str | None:
    """Why there is none on this machine; None when there is."""
    complete = FOLDER / f".complete-{version('pyarrow')}"
    return None if complete.exists() else "it was not made (make brokers)"


if __name__ == "__main__":
    install()
