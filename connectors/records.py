"""What the records of every broker have in common: a driver says only what its letters have of their own."""

from typing import Any, TypedDict, cast

from dlq.connectors.base import ReadRequest
from dlq.core.clock import now
from dlq.core.columns import Column, Constant


class CommonColumns(TypedDict):
    """The columns of which all letters of a batch have the same value."""

    source: Column
    broker: Column
    broker_kind: Column
    broker_version: Column
    broker_node: Column
    captured_at: Column
    pull_id: Column
    mode: Column


def common_fields(
    request: ReadRequest, kind: str, version: str | None = None, node: str | None = None
) -> dict[str, Any]:
    """Whose the letters are, on what broker of which `kind` and `version` and on what node of it they were
    read, and now."""
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


def common_columns(
    rows: int, request: ReadRequest, kind: str, version: str | None = None, node: str | None = None
) -> CommonColumns:
    """`common_fields` of so many letters."""
    fields = common_fields(request, kind, version, node)
    return cast(CommonColumns, {name: Constant(value, rows) for name, value in fields.items()})
