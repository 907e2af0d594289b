"""Letters for the analyzer tests, made with as few words as possible."""

import json
from typing import Any

from dlq.connectors.jsonl.format import parse_line, record_of
from dlq.core.record import Death, Record


def record(**columns: Any) -> Record:
    """A RabbitMQ letter with these columns."""
    given = {"record_id": "0" * 32, "source": "orders", "broker": "shop", "broker_kind": "rabbitmq"}
    return Record(**{**given, "dead_letter_queue": "orders.dlq", **columns})


def died(*deaths: tuple[Any, ...], **columns: Any) -> Record:
    """A letter with a death history of (reason, queue, count), most recent first."""
    history = [Death(*([reason, queue, "shop", ("key",)]), count) for reason, queue, count in deaths]
    return record(deaths=history, **columns)


def imported(document: dict[str, Any]) -> Record:
    """A letter as `dlq import` makes it."""
    return record_of(parse_line(json.dumps(document)), "orders", "shop", "1", lambda mid, _h, _p, _b: mid)


def said(row: dict[str, Any], expected: dict[str, Any]) -> dict[str, Any]:
    """Of a verdict what is expected of it."""
    return {name: row[name] for name in expected}
