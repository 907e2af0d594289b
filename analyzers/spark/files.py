"""The archive's files as Spark and its Python workers see them: explicit lists of files, explicit schemas."""

import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import pyarrow as pa

from dlq.archive import parquet, scratch
from dlq.archive.folder import Folder
from dlq.archive.schema import SEGMENT
from dlq.archive.store import LocalStore, Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_OF_PATTERNS = re.compile(r"[\[\]{}*?\\]")


class Files(NamedTuple):
    """How a Python worker, on whatever host, opens files of the archive."""

    root: str
    s3: Mapping[str, str] | None = None
    """Of an archive on S3: what pyarrow's client needs to know."""

    def _filesystem(self) -> Any:
        from pyarrow import fs

        return fs.S3FileSystem(**(self.s3 or {}))

    def read(self, name: str) -> Any:
        """`name` as pyarrow reads it. Raises OSError."""
        if self.s3 is not None:
            return self._filesystem().open_input_file(f"{self.root}/{name}")
        with Folder(self.root).open(name) as file:
            return parquet.native(file)

    @contextmanager
    def write(self, name: str) -> Iterator[IO[bytes] | Any]:
        """A stream into `name`, which is durable at the end."""
        if self.s3 is None:
            with Folder(self.root).replacing(name, make=True) as file:
                yield file
        else:
            with self._filesystem().open_output_stream(f"{self.root}/{name}") as stream:
                yield stream


class _LentStore(LocalStore):
    """An archive in a folder, whose files another process of this machine opens as what they were when it was
    told of them, whatever lies there by then."""

    def __init__(self, location: str, until: ExitStack) -> None:
        super().__init__(location)
        self._until = until

    def url(self, name: str) -> str:
        return self.lend(name, self._until).replace("self", str(os.getpid()), 1)


@contextmanager
def lent(spark: "SparkSession", store: Store) -> Iterator[Store]:
    """The archive as Spark opens it until the end: where both are here, by descriptors of this process."""
    with ExitStack() as held:
        yield _LentStore(store.location, held) if _folder_here(spark, store) else store


def _folder_here(spark: "SparkSession", store: Store) -> Folder | None:
    """The archive's folder, where it and Spark are on this machine."""
    is_here = str(spark.sparkContext.master).startswith("local")
    return store.folder if is_here and isinstance(store, LocalStore) else None


def files_of(store: Store, s3a: Mapping[str, str]) -> Files:
    """`s3a`: the Spark settings of an archive on S3 (`s3a.configuration`)."""
    if isinstance(store, LocalStore):
        return Files(store.location)
    given = {name.removeprefix("spark.hadoop.fs.s3a."): value for name, value in s3a.items()}
    names = {
        "access.key": "access_key",
        "secret.key": "secret_key",
        "session.token": "session_token",
        "endpoint.region": "region",
    }
    s3 = {name: given[key] for key, name in names.items() if given.get(key)}
    if "endpoint" in given:
        endpoint = urlsplit(given["endpoint"])
        s3 |= {"endpoint_override": endpoint.netloc, "scheme": endpoint.scheme}
    return Files(store.location.removeprefix("s3://"), s3)


def spark_schema(schema: pa.Schema = SEGMENT) -> "StructType":
    """The Spark schema of an archive table; a segment unless another is named."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema)


def spark_url(location: str) -> str:
    """How Spark names a place of the archive: local paths and s3 need a scheme that Hadoop knows."""
    if location.startswith("s3://"):
        return f"s3a://{location.removeprefix('s3://')}"
    return location if "://" in location else f"file://{location}"


def literal(url: str) -> str:
    """A place as Spark reads it without taking it for a pattern.

    The option that turns patterns off does not do: of several files whose paths look like patterns Spark 4.0
    reads each as often as there are files.
    """
    return _OF_PATTERNS.sub(r"\\\g<0>", url)


def read_files(spark: "SparkSession", store: Store, names: Sequence[str], schema: pa.Schema) -> "DataFrame":
    """Some Parquet files of the archive. Names are taken literally, whatever characters are in the path."""
    reader = spark.read.schema(spark_schema(schema))
    return reader.parquet(*(literal(spark_url(store.url(name))) for name in names))


def kept_in_memory(frame: "DataFrame") -> "DataFrame":
    """Kept (or on disk, beyond memory) for all that asks for it, and computed at once: a join that knows how
    small one side is need not sort the other."""
    frame.persist()
    frame.count()
    return frame


def write_table(store: Store, frame: "DataFrame", schema: pa.Schema, folder: str) -> None:
    """Write a table of the archive; its columns are those of the schema, in its order and of its types."""
    from pyspark.sql import functions as F

    shown = [
        f.name if frame.schema[f.name].dataType == f.dataType else F.col(f.name).cast(f.dataType)
        for f in spark_schema(schema).fields
    ]
    save(store, frame.select(*shown), folder)


def save(store: Store, frame: "DataFrame", folder: str) -> None:
    """Write a frame into files below `folder` of the archive. Spark opens files by their paths, so where the
    archive is a folder of this machine, it writes elsewhere, and the files are copied."""
    here = _folder_here(frame.sparkSession, store)
    if here is None:
        frame.write.parquet(spark_url(store.url(folder)))
        return
    with TemporaryDirectory(dir=scratch.folder()) as above:
        made = Path(above, "table")
        frame.write.parquet(spark_url(str(made)))
        for path in made.glob("*.parquet"):
            with path.open("rb") as file, here.replacing(f"{folder}/{path.name}", make=True) as copy:
                shutil.copyfileobj(file, copy)
