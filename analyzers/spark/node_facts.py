"""What pulls learned of RocketMQ brokers, as far as transactions need it.

`topology/<pull>.json` holds `brokers`: node -> check_interval_ms, file_reserved_hours, index and more; the
pull's name says when it looked.
"""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from dlq.analyzers.groups.transactions import Node
from dlq.analyzers.rules.rocketmq import DEFAULT_RESERVED_HOURS
from dlq.archive.store import Store, checked_format
from dlq.core.clock import to_micros
from dlq.core.errors import ArchiveError

_OP_BATCH_MS = 3000
_NAME_OF_PULL = "%Y%m%dT%H%M%S"


def node_facts(store: Store) -> dict[str, dict[str, Node]]:
    """Source -> node -> the newest facts."""
    newest: dict[str, dict[str, Node]] = {}
    for name in sorted(store.list("topology/")):
        try:
            document = checked_format(name, store.get(name))
        except ArchiveError:
            continue
        looked_at = _time_of(name.rpartition("/")[2])
        of_source = newest.setdefault(str(document.get("source")), {})
        of_source.update(_of_document(document, looked_at))
    return newest


def _of_document(document: Mapping[str, Any], looked_at: int | None) -> Iterator[tuple[str, Node]]:
    brokers = document.get("brokers")
    for node, known in brokers.items() if isinstance(brokers, dict) else ():
        interval = _number(known.get("check_interval_ms"))
        batch = _number(known.get("op_batch_interval_ms"))
        yield (
            str(node),
            Node(
                looked_at,
                _number(known.get("file_reserved_hours")) or DEFAULT_RESERVED_HOURS,
                interval,
                (interval or 0) + (_OP_BATCH_MS if batch is None else batch),
                known.get("index") is not False,
            ),
        )


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _time_of(file_name: str) -> int | None:
    """A pull's name begins with the second it was made in, UTC."""
    try:
        return to_micros(datetime.strptime(file_name[:15], _NAME_OF_PULL).replace(tzinfo=UTC))
    except ValueError:
        return None
