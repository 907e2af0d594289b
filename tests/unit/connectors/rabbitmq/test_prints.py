"""What RabbitMQ's management answers to a get, and what of it is no letter."""

import json
import time
from typing import Any

from support.rows import each_row

from dlq.connectors.rabbitmq.console.formats import management

DEATH = {
    "count": 2, "exchange": "shop", "queue": "orders", "reason": "rejected", "routing-keys": ["order.new"],
    "time": 1_700_000_000,
}  # fmt: skip


def got(**values: Any) -> dict[str, Any]:
    message = {
        "payload_bytes": 2, "redelivered": True, "exchange": "dlx", "routing_key": "order.new",
        "message_count": 4, "properties": {"message_id": "m1", "headers": {"x-death": [DEATH]}},
        "payload": "{}", "payload_encoding": "string",
    }  # fmt: skip
    return {name: value for name, value in (message | values).items() if value is not None}


ONE, PRETTY = json.dumps([got()]), json.dumps([got(), got()], indent=2)
TABLE = """
+-------------+----------+---------------+---------+---------------+------------------+-------------+
| routing_key | exchange | message_count | payload | payload_bytes | payload_encoding | redelivered |
+-------------+----------+---------------+---------+---------------+------------------+-------------+
| orders.dlq  |          | 0             | {}      | 2             | string           | False       |
+-------------+----------+---------------+---------+---------------+------------------+-------------+
"""
READ = {
    "answers one after another": (f"{ONE}\n[]\n{PRETTY}\n{ONE}", [1, 4, 30, 57], {}),
    "one that is cut loses its last letter alone": (f"{PRETTY[:-40]}\n{ONE}\n", [2, 52], {28: "no JSON"}),
    "a table says which form holds all": (TABLE, [], {1: "-f raw_json"}),
    "other JSON and other text": (
        '7\n"x"\nHTTP/1.1 200 OK\n{"broker_kind": "rabbitmq", "queue": "q"}\n', [],
        {1: "", 2: "", 3: "", 4: ""},
    ),
}  # fmt: skip
"""What it is -> the lines of its letters, and what is said of which lines."""


@each_row("what", READ)
def test_answers_are_read_and_what_is_no_letter_is_said_with_its_line(what: str) -> None:
    text, letters, unread = READ[what]
    found = management(text)
    assert ([line for line, _ in found.letters], [line for line, _ in found.unread]) == (letters, [*unread])
    assert all(unread[line] in why for line, why in found.unread)


@each_row(("values", "reason"), [
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


@each_row("text", ['{"a":[' * 20_000, '{"a":\n' * 10_000, "9" * 65_536])
def test_no_text_runs_away_or_breaks_it(text: str) -> None:
    start = time.process_time()
    found = management(text)
    assert time.process_time() - start < 1.0
    assert found.letters == []
