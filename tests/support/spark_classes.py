"""Spark's classes, as a first analysis leaves them to those that follow, so that no test waits for them.

python tests/support/spark_classes.py   into the cache of this user, once
"""

import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

_DLQ = Path(sys.executable).with_name("dlq")
_DONE = Path(__file__).resolve().parents[2] / ".brokers" / f"spark-classes-{version('pyspark')}"


def install() -> None:
    """Run the demo, whose JVM writes them when it ends; returns at once when that was done."""
    if not _DONE.exists():
        with tempfile.TemporaryDirectory() as folder:
            command = [_DLQ, "-q", "demo", "--folder", "tour"]
            subprocess.run(command, cwd=folder, stdout=subprocess.DEVNULL, check=True)
        _DONE.touch()


if __name__ == "__main__":
    install()
