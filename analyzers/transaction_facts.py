"""What pulls learned of RocketMQ brokers, as far as transactions need it.

`topology/<pull>.json` holds `brokers`: node -> check_interval_ms, file_reserved_hours, index and more; the
pull's name says when it looked.
"""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from dlq.analyzers.rules_rocketmq import DEFAULT_RESERVED_HOURS
from dlq.archive.store import Store, checked_format
from dlq.core.errors import ArchiveError

_OP_BATCH_MS = 3000
_NAME_OF_PULL = "%Y%m%dT%H%M%S"


class NodeFacts(NamedTuple):
    """One broker node as the newest pull of a source saw it."""

    source: str
    broker_node: str
    looked_at: datetime | None
    """When that pull began: what it did not bring was not there then."""
    reserved_hours: int
    check_interval_ms: int | None
    settles_after_ms: int
    """How long after a discard a late outcome may still come: a check interval and an op batch."""
    indexed: bool
    """Whether the broker finds real messages by key; without that nothing tells a rollback from a commit."""


def node_facts(store: Store) -> tuple[NodeFacts, ...]:
    """The newest facts of each source and node."""
    newest: dict[tuple[str, str], NodeFacts] = {}
    for name in sorted(store.list("topology/")):
        try:
            document = checked_format(name, store.get(name))
        except ArchiveError:
            continue
        looked_at = _time_of(name.rpartition("/")[2])
        for facts in _of_document(document, looked_at):
            newest[facts.source, facts.broker_node] = facts
    return tuple(newest.values())


def _of_document(document: Mapping[str, Any], looked_at: datetime | None) -> Iterator[NodeFacts]:
    brokers = document.get("brokers")
    for node, known in brokers.items() if isinstance(brokers, dict) else ():
        interval = _number(known.get("check_interval_ms"))
        batch = _number(known.get("op_batch_interval_ms"))
        yield NodeFacts(
            str(document.get("source")),
            str(node),
            looked_at,
            _number(known.get("file_reserved_hours")) or DEFAULT_RESERVED_HOURS,
            interval,
            (interval or 0) + (_OP_BATCH_MS if batch is None else batch),
            known.get("index") is not False,
        )


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _time_of(file_name: str) -> datetime | None:
    """A pull's name begins with the second it was made in, UTC."""
    try:
        return datetime.strptime(file_name[:15], _NAME_OF_PULL).replace(tzinfo=UTC)
    except ValueError:
        return None
