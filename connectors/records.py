"""What the records of every broker have in common: a driver says only what its letters have of their own."""

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any, TypedDict, cast

from dlq.connectors.base import ReadRequest
from dlq.core.clock import now
from dlq.core.columns import Column, Constant
from dlq.core.record import NOTHING, Record


def stamp(record: Record, request: ReadRequest) -> Record:
    """Return a record of a reading: when, by which pull and how it was captured."""
    return record._replace(captured_at=now(), pull_id=request.pull_id, mode=request.mode)


def _common_fields(request: ReadRequest, kind: str, version: str | None, node: str | None) -> dict[str, Any]:
    """Return whose the letters are, on what broker of which `kind` and `version` and on what node of it they
    were read, and now."""
    return {
        "source": request.source.name,
        "broker": request.source.broker,
        "broker_kind": kind,
        "broker_version": version,
        "broker_node": node,
        "captured_at": now(),
        "pull_id": request.pull_id,
        "mode": request.mode,
    }


def make_record(
    request: ReadRequest,
    kind: str,
    record_id: str,
    body: bytes,
    headers: Mapping[str, str],
    properties: Mapping[str, str] = NOTHING,
    *,
    message_id: str | None = None,
    digest: str | None = None,
    version: str | None = None,
    node: str | None = None,
    **own: Any,
) -> Record:
    """Return one letter's record with the columns of its `own`. `digest`: the body's SHA-256 in hex, where it
    is known already."""
    return Record(
        record_id=record_id,
        message_id=message_id,
        key=request.key_reader()(message_id, headers, properties, body),
        headers=headers,
        properties=properties,
        body=body,
        body_size=len(body),
        body_sha256=digest or sha256(body).hexdigest(),
        **_common_fields(request, kind, version, node),
        **own,
    )


class _CommonColumns(TypedDict):
    """The columns of which all letters of a batch have the same value."""

    source: Column
    broker: Column
    broker_kind: Column
    broker_version: Column
    broker_node: Column
    captured_at: Column
    pull_id: Column
    mode: Column


def common_columns(
    rows: int, request: ReadRequest, kind: str, version: str | None = None, node: str | None = None
) -> _CommonColumns:
    """Return what `make_record` adds of the reading, for so many letters."""
    fields = _common_fields(request, kind, version, node)
    return cast(_CommonColumns, {name: Constant(value, rows) for name, value in fields.items()})


class _ContentColumns(TypedDict):
    """The columns of the letters' bodies."""

    body: Column
    body_size: Column
    body_sha256: Column


def content_columns(bodies: Sequence[bytes], digests: Sequence[bytes]) -> _ContentColumns:
    """`digests` are their SHA-256."""
    sizes, texts = [*map(len, bodies)], [digest.hex() for digest in digests]
    return {"body": bodies, "body_size": sizes, "body_sha256": texts}


def key_column(
    request: ReadRequest, message_ids: Column, headers: Column, properties: Column, bodies: Iterable[bytes]
) -> Column:
    """Return the letters' business keys. `bodies` are looked at only for a key that is in them."""
    if request.source.key == "message_id":
        return message_ids
    return [*map(request.key_reader(), message_ids, headers, properties, bodies)]
