"""What RabbitMQ's management answers to a get, and what of it is no letter."""

import json
import time
from typing import Any

import pytest

from dlq.connectors.rabbitmq.console.formats import management

DEATH = {
    "count": 2, "exchange": "shop", "queue": "orders", "reason": "rejected", "routing-keys": ["order.new"],
    "time": 1_700_000_000,
}  # fmt: skip


def got(**values: Any) -> dict[str, Any]:
    properties = {
        "message_id": "m1",
        "delivery_mode": 2,
        "headers": {"x-death": [DEATH], "x-first-death-queue": "orders"},
    }
    message = {
        "payload_bytes": 2, "redelivered": True, "exchange": "dlx", "routing_key": "order.new",
        "message_count": 4, "properties": properties, "payload": "{}", "payload_encoding": "string",
    }  # fmt: skip
    return {name: value for name, value in (message | values).items() if value is not None}


def test_answers_one_after_another_are_read_with_the_lines_where_they_begin() -> None:
    pretty = json.dumps([got(), got()], indent=2)
    found = management(f"{json.dumps([got()])}\n[]\n{pretty}\n{json.dumps(got())}")
    assert not found.unread
    assert [line for line, _ in found.letters][:2] == [1, 4]


@pytest.mark.parametrize(("values", "reason"), [
    ({"payload_bytes": 400}, "not whole: 2 bytes of 400"),
    ({"payload_bytes": None}, "no payload_bytes"),
    ({"payload_bytes": True}, "no payload_bytes"),
    ({"payload_bytes": 10**400}, "not whole"),
    ({"payload_encoding": None}, "it has no payload_encoding"),
    ({"payload_encoding": "hex"}, "unknown payload_encoding 'hex'"),
    ({"payload_encoding": "base64"}, "no base64"),
    ({"payload": "\ud800"}, "no string"),
    ({"payload": 7}, "payload must be text"),
    ({"properties": "p"}, "properties must be an object"),
    ({"properties": {"headers": "h"}}, "headers must be an object"),
    ({"exchange": None}, "it has no exchange"),
])  # fmt: skip
def test_what_is_cut_or_no_message_is_said_and_the_rest_is_read(values: dict[str, Any], reason: str) -> None:
    found = management(json.dumps([got(**values), got()]))
    assert len(found.letters) == 1
    ((line, why),) = found.unread
    assert line == 1
    assert reason in why


def test_an_answer_that_is_cut_loses_its_last_letter_alone() -> None:
    pretty = json.dumps([got(), got()], indent=2)
    found = management(f"{pretty[:-40]}\n{json.dumps([got()])}\n")
    assert len(found.letters) == 2
    assert len(found.unread) == 1
    assert "no JSON" in found.unread[0][1]


def test_a_table_says_which_form_holds_all() -> None:
    table = """
+-------------+----------+---------------+---------+---------------+------------------+-------------+
| routing_key | exchange | message_count | payload | payload_bytes | payload_encoding | redelivered |
+-------------+----------+---------------+---------+---------------+------------------+-------------+
| orders.dlq  |          | 0             | {}      | 2             | string           | False       |
+-------------+----------+---------------+---------+---------------+------------------+-------------+
"""
    found = management(table)
    assert found.letters == []
    assert [line for line, _ in found.unread] == [1]
    assert "-f raw_json" in found.unread[0][1]


def test_other_json_and_other_text_are_no_letters() -> None:
    found = management('7\n"x"\nHTTP/1.1 200 OK\n{"broker_kind": "rabbitmq", "queue": "q"}\n')
    assert found.letters == []
    assert [line for line, _ in found.unread] == [1, 2, 3, 4]


@pytest.mark.parametrize("text", ['{"a":[' * 20_000, '{"a":\n' * 10_000, "9" * 65_536])
def test_no_text_runs_away_or_breaks_it(text: str) -> None:
    start = time.process_time()
    found = management(text)
    assert time.process_time() - start < 1.0
    assert found.letters == []
