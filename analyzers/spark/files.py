"""The archive's files as Spark and its Python workers see them: explicit lists of files, explicit schemas."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import pyarrow as pa

from dlq.archive import parquet
from dlq.archive.folder import Folder
from dlq.archive.schema import SEGMENT
from dlq.archive.store import LocalStore, Store

if TYPE_CHECKING:
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

    def parquet(self, name: str) -> Any:
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
