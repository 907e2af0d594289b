"""What a cluster's Python workers need of `dlq` goes there with the job, so that nothing of it is installed on them."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from zipfile import ZIP_DEFLATED, ZipFile

if TYPE_CHECKING:
    from pyspark import SparkContext

ROOMS = ("dlq.core", "dlq.archive", "dlq.analyzers")
"""What judges letters; it imports these rooms, pyarrow, and Python's own modules."""


@contextmanager
def shipped(context: "SparkContext") -> Iterator[None]:
    """Inside, every Python worker of the session can import the rooms."""
    before = list(sys.path)
    with TemporaryDirectory() as folder:
        context.addPyFile(str(pack(Path(folder, "dlq.zip"))))
        sys.path[:] = before  # which PySpark changes, too
        yield


def pack(target: Path) -> Path:
    """The rooms as a zip that Python imports from. It has an entry for each folder: by the one of `dlq`, a
    namespace, Python finds what lies below."""
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
