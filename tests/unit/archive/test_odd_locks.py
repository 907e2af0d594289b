"""A lock on an object store is somebody's, whatever its object holds."""

from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any

import pytest
from botocore.exceptions import ClientError
from support.rows import each_row

from dlq.archive.storage.s3_lock import Lock
from dlq.core.errors import Busy


class OneObject:
    """An object store with one fresh object, which nobody may replace."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def call_s3(self, operation: str, **_: Any) -> dict[str, Any]:
        if operation == "put_object":
            raise OSError from ClientError({"Error": {"Code": "PreconditionFailed"}}, operation)
        now = datetime.now(UTC).replace(microsecond=0)
        head = {"HTTPHeaders": {"date": format_datetime(now)}}
        return {"ETag": "x", "LastModified": now, "ResponseMetadata": head}

    def cat_file(self, _path: str, start: int, end: int) -> bytes:
        return self.content[start:end]


@each_row("content", [
    b"", b"5", b"[]", b"null", b"{}", b"\xff", b"[" * 5000, b'{"pid": "x"}', b'{"token": [], "pid": 1e999}',
    b'{"lease": 1e308, "pid": -1, "host": 5}', b'{"pid": 99999999999999999999, "host": "h"}',
    b"{" + b" " * 9999,
])  # fmt: skip
def test_an_object_of_any_shape_is_a_lock_of_another(content: bytes) -> None:
    with pytest.raises(Busy, match="work is locked by another run"):
        Lock(OneObject(content), "bucket/key", "work").take()
