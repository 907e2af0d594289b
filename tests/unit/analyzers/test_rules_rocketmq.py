"""The ways into a RocketMQ dead-letter topic are told apart by what each of them leaves behind."""

from typing import Any

from support.analyzers.rocket_letters import dead, letter

from dlq.core.record import Record

Verdict = tuple[str, str, str | None, int | None]
LETTERS: list[tuple[Record, Verdict]] = [
    (dead(REAL_TOPIC="%RETRY%pay"), ("redelivery_exhausted", "send_back", "orders", 17)),
    (dead(DLQ_ORIGIN_TOPIC="told"), ("redelivery_exhausted", "send_back", "told", 17)),
    (dead(RECONSUME_TIME="17", MAX_RECONSUME_TIMES="16", ORIGIN_MESSAGE_ID="7F"),
     ("redelivery_exhausted", "client_fallback", "orders", 17)),
    (dead(RETRY_TOPIC="%RETRY%pay_orders"), ("redelivery_exhausted", "pop", "orders", 16)),
    (dead(RETRY_TOPIC="%RETRY%pay"), ("redelivery_exhausted", "pop", None, 16)),
    (dead(**{"1ST_POP_TIME": "1795000000000"}), ("redelivery_exhausted", "pop", "orders", 16)),
    # A POP consumer in order sends it itself, with another count.
    (dead(**{"1ST_POP_TIME": "1", "RECONSUME_TIME": "3"}), ("redelivery_exhausted", "pop", "orders", None)),
    # Whoever counts by himself (gRPC in order, Go in order) sends back what the broker thinks failed once.
    (letter("%DLQ%pay", {"RETRY_TOPIC": "orders", "ORIGIN_MESSAGE_ID": "7F"}, times=1),
     ("redelivery_exhausted", "send_back", "orders", None)),
    # Up to 4.8.0 a first failure leaves neither property, but it was counted.
    (letter("%DLQ%pay", {"UNIQ_KEY": "K"}, times=1), ("redelivery_exhausted", "send_back", None, 1)),
    (letter("%DLQ%pay", {}), ("unknown", "none", None, None)),
    (letter("%DLQ%pay", {"REAL_TOPIC": "%RETRY%pay"}), ("unknown", "none", None, None)),
    (letter("TRANS_CHECK_MAX_TIME_TOPIC", {"REAL_TOPIC": "orders", "TRANSACTION_CHECK_TIMES": "15"}),
     ("check_max_exceeded", "check", "orders", None)),
    (letter("TRANS_CHECK_MAX_TIME_TOPIC", {"REAL_TOPIC": "orders"}, stored=73 * 3_600_000),
     ("check_skipped", "check_age", "orders", None)),
    (letter("RMQ_SYS_TRANS_HALF_TOPIC", {"REAL_TOPIC": "orders", "UNIQ_KEY": "K"}),
     ("transaction_pending", "none", "orders", None)),
    (letter("RMQ_SYS_TRANS_OP_HALF_TOPIC", {}, b"1,2,"), ("unknown", "none", None, None)),
]  # fmt: skip


def test_every_way_into_a_dead_letter_topic_has_its_verdict(judge: Any) -> None:
    rows = judge(*(record._replace(origin=None) for record, _ in LETTERS))
    said = [(row["cause"], row["mechanism"], row["origin"], row["attempts"]) for row in rows]
    assert said == [expected for _, expected in LETTERS]
    assert [row["origin_kind"] for row in rows] == ["topic" if row["origin"] else None for row in rows]
