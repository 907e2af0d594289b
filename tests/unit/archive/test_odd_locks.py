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


class Store:
    """An object store with room for one object, and all conditions unless it is told otherwise."""

    def __init__(self, knows: bool = True) -> None:
        self.knows, self.versions, self.content = knows, 0, b""

    def call_s3(self, operation: str, **asked: Any) -> dict[str, Any]:
        etag = f"{self.versions}" if self.content else ""
        if operation == "delete_object" and not self.knows:
            raise OSError from ClientError({"Error": {"Code": "NotImplemented"}}, operation)
        if asked.get("IfMatch", etag) != etag or ("IfNoneMatch" in asked and self.content):
            raise OSError from ClientError({"Error": {"Code": "PreconditionFailed"}}, operation)
        if operation == "head_object":
            return OneObject(self.content).call_s3(operation) | {"ETag": etag}
        self.versions, self.content = self.versions + 1, asked.get("Body", b"")
        return {"ETag": f"{self.versions}"}

    def cat_file(self, _path: str, start: int, end: int) -> bytes:
        return self.content[start:end]

    def rm_file(self, _path: str) -> None:
        self.content = b""


@pytest.mark.parametrize("knows", [True, False])
def test_who_lets_go_leaves_nothing_also_where_a_renewal_was_on_its_way(knows: bool) -> None:
    store = Store(knows)
    lock = Lock(store, "bucket/key", "work")
    lock.take()
    store.call_s3("put_object", Body=store.content)
    lock.release()
    assert store.content == b""


def test_who_lets_go_late_leaves_the_lock_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is taken over between the last look at the lease and the deletion."""
    store, others = Store(), b'{"token": "of another"}'
    lock = Lock(store, "bucket/key", "work")
    lock.take()
    monkeypatch.setattr(lock, "check", lambda: store.call_s3("put_object", Body=others))
    lock.release()
    assert store.content == others


@each_row("content", [
    b"", b"5", b"[]", b"null", b"{}", b"\xff", b"[" * 5000, b'{"pid": "x"}', b'{"token": [], "pid": 1e999}',
    b'{"lease": 1e308, "pid": -1, "host": 5}', b'{"pid": 99999999999999999999, "host": "h"}',
    b"{" + b" " * 9999,
])  # fmt: skip
def test_an_object_of_any_shape_is_a_lock_of_another(content: bytes) -> None:
    with pytest.raises(Busy, match="work is locked by another run"):
        Lock(OneObject(content), "bucket/key", "work").take()
