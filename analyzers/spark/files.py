"""The archive's files as Spark and its Python workers see them: explicit lists of files, explicit schemas."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import pyarrow as pa

from dlq.archive.schema import SEGMENT
from dlq.archive.storage import parquet
from dlq.archive.storage.folder import Folder
from dlq.archive.storage.store import LocalStore, Store
from dlq.core.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_AMAZON = ".amazonaws.com"
_NO_REGION = "aws-global"
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
        """Open a stream into `name`, which is durable at the end."""
        if self.s3 is None:
            with Folder(self.root).replacing(name, make=True) as file:
                yield file
        else:
            with self._filesystem().open_output_stream(f"{self.root}/{name}") as stream:
                yield stream


def files_of(store: Store) -> Files:
    """Return the archive as workers open it. Raises UsageError where an object store has no credentials."""
    if isinstance(store, LocalStore):
        return Files(store.location)
    return Files(store.location.removeprefix("s3://"), _access())


def _access() -> dict[str, str]:
    """Endpoint, region and credentials, as the AWS variables, files and roles say, for pyarrow's client."""
    from botocore.exceptions import BotoCoreError
    from botocore.session import get_session

    session = get_session()
    try:
        found = session.get_credentials()
        place = session.create_client("s3").meta
    except BotoCoreError as error:
        raise UsageError(f"the archive on S3 cannot be reached: {error}") from error
    if found is None:
        raise UsageError(
            "there are no credentials for the archive on S3: set AWS_PROFILE or AWS_ACCESS_KEY_ID"
        )
    keys = found.get_frozen_credentials()
    access = {"access_key": keys.access_key, "secret_key": keys.secret_key, "session_token": keys.token}
    access["region"] = place.region_name if place.region_name != _NO_REGION else "us-east-1"
    if _AMAZON not in place.endpoint_url:
        endpoint = urlsplit(place.endpoint_url)
        access |= {"endpoint_override": endpoint.netloc, "scheme": endpoint.scheme}
    return {name: str(value) for name, value in access.items() if value}


def spark_schema(schema: pa.Schema = SEGMENT) -> "StructType":
    """Return the Spark schema of an archive table; a segment unless another is named."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema)


def spark_url(location: str) -> str:
    """Return how Spark names a file of this machine: a path needs a scheme that Hadoop knows."""
    return location if "://" in location else f"file://{location}"


def literal(url: str) -> str:
    """Return a place as Spark reads it without taking it for a pattern.

    The option that turns patterns off does not do: of several files whose paths look like patterns Spark 4.0
    reads each as often as there are files.
    """
    return _OF_PATTERNS.sub(r"\\\g<0>", url)
