"""What a cluster's Python workers need of `dlq` goes there with the job; none of it is installed on them."""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from zipfile import ZIP_DEFLATED, ZipFile

from dlq.archive.storage import scratch
from dlq.core.errors import UsageError

if TYPE_CHECKING:
    from pyspark import SparkContext

ROOMS = ("dlq.core", "dlq.archive", "dlq.analyzers", "dlq.connectors")
"""What classifies letters, and the brokers' descriptions; both need Python and pyarrow alone."""
_HOST = re.compile(r"\((\S+) executor \S+\)")
_MISSING = (
    (re.compile(r"Cannot run program "), "there is no program {python}"),
    (re.compile(r"PYTHON_VERSION_MISMATCH\].*?version: (\S+) than"), "{python} is Python {}"),
    (re.compile(r"No module named '(pyarrow)\b"), "{python} has no {}"),
    (re.compile(r"Error from python worker:\s(?s:.*?)\n\s*(\w+Error: .*)"), "{python} does not start: {}"),
)
"""What Spark says -> what a worker lacks."""


@contextmanager
def shipped(context: "SparkContext") -> Iterator[None]:
    """Let every Python worker of the session import the rooms inside."""
    before = list(sys.path)
    with TemporaryDirectory(dir=scratch.folder()) as folder:
        context.addPyFile(str(pack(Path(folder, "dlq.zip"))))
        sys.path[:] = before  # which PySpark changes, too
        with told(str(context.master), context.pythonExec):
            yield


@contextmanager
def told(master: str, python: str) -> Iterator[None]:
    """Turn a worker whose Python cannot run the rooms into a UsageError that says what it lacks."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        lack = name_what_lacks(f"{error}\n{getattr(error, '_stackTrace', '')}", master, python)
        if lack is None:
            raise
        raise UsageError(lack) from error


def name_what_lacks(said: str, master: str, python: str) -> str | None:
    """Return what a worker lacks, where and how to fix it, by what Spark said; None: something else."""
    matches = ((pattern.search(said), text) for pattern, text in _MISSING)
    found = next((text.format(*match.groups(), python=python) for match, text in matches if match), None)
    if found is None:
        return None
    host = _HOST.search(said)
    where = f" on {host[1]}" if host else ""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return (
        f"a worker of {master}{where} cannot classify letters: {found}; every worker needs Python {version} "
        'with pyarrow: name the program as "spark.pyspark.python" in [spark.conf]'
    )


def pack(target: Path) -> Path:
    """Return the rooms as a zip that Python imports from. It has an entry for each folder: by the one of
    `dlq`, a namespace, Python finds what lies below."""
    with ZipFile(target, "w", ZIP_DEFLATED) as zipped:
        zipped.mkdir("dlq")
        for room in ROOMS:
            folder = Path(str(import_module(room).__file__)).parent
            name = room.replace(".", "/")
            for path in sorted([folder, *folder.rglob("*")]):
                if path.is_dir() and path.name != "__pycache__":
                    zipped.mkdir(f"{name}/{path.relative_to(folder)}".removesuffix("/."))
                elif path.suffix == ".py":
                    zipped.write(path, f"{name}/{path.relative_to(folder)}")
    return target
