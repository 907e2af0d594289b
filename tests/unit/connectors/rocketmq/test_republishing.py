"""What a RocketMQ letter looks like on its way back, without a broker."""

import zlib
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.rows import each_row

from dlq.connectors.base import Outgoing, SendPreview, Target, keep_no_mark
from dlq.connectors.rocketmq.link.message import BATCH, encode_properties, parse_properties
from dlq.connectors.rocketmq.link.remoting import Frame
from dlq.connectors.rocketmq.republish import message_of, preview, queue_by_hash, target_of, unique_key_of
from dlq.connectors.rocketmq.send import _Resume, outcome_of
from dlq.core.errors import UsageError
from dlq.core.record import Record

PROVENANCE = {"dlq_replay_id": "ab" * 16, "dlq_replay_lap": "2", "dlq_replay_of": "1" * 32}


def record(topic: str = "%DLQ%pay", properties: dict[str, str] | None = None, **columns: Any) -> Record:
    given = {"origin": "orders", "origin_group": "pay" if topic.startswith("%DLQ%") else None, "body_size": 1}
    block = encode_properties(properties or {})
    return Record("1" * 32, "s", "b", "rocketmq", topic, **{"raw_properties": block, **given, **columns})


ORDERS, PAY = Target("topic", "orders"), Target("group", "pay")


def previewed(letter: Record, target: Target = ORDERS) -> SendPreview:
    return preview(Outgoing(0, letter, target, PROVENANCE))


def sent(letter: Record, target: Target = ORDERS) -> Any:
    return message_of(Outgoing(0, letter, target, PROVENANCE))


TARGETS: list[tuple[Record, str, Target | None]] = [
    (record(), "origin", ORDERS),
    (record(), "group", PAY),
    (record(), "topic:elsewhere", Target("topic", "elsewhere")),
    (record(origin=None), "origin", None),
    (record(origin=None), "group", None),
    (record(), "resume", None),
    (record("TRANS_CHECK_MAX_TIME_TOPIC"), "resume", Target("resume", "orders")),
    (record("TRANS_CHECK_MAX_TIME_TOPIC", origin_group="tx"), "group", None),
    (record("RMQ_SYS_TRANS_HALF_TOPIC"), "origin", ORDERS),
]


@each_row(("letter", "to", "expected"), TARGETS)
def test_a_letter_has_the_target_that_is_named(letter: Record, to: str, expected: Target | None) -> None:
    assert target_of(letter, to) == expected


@each_row("to", ["queue:orders", "exchange:a/b", "topic:", "nowhere", "topic:RMQ_SYS_TRANS_HALF_TOPIC"])
def test_a_target_that_rocketmq_does_not_have_is_a_usage_error(to: str) -> None:
    with pytest.raises(UsageError):
        target_of(record(), to)


@given(st.binary(max_size=200) | st.lists(st.sampled_from([b"a", b"\x01", b"\x02", b"\xff"])).map(b"".join))
def test_what_was_read_from_a_block_is_separable_and_at_most_four_times_as_long(block: bytes) -> None:
    """So that nobody has to look at each, or to encode it, before it is sent."""
    properties = sent(record(raw_properties=block)).properties
    assert parse_properties(encode_properties(properties)) == properties
    assert len(encode_properties(properties)) <= 4 * len(block) + 500


def unpacked(**properties: str) -> Record:
    """Without a block, as `dlq import` takes it, a text may hold what separates properties."""
    return record(raw_properties=None)._replace(properties={"TAGS": "x", **properties})


POP = {"RETRY_TOPIC": "%RETRY%pay_orders"}
PROBLEMS: list[tuple[Record, Target, str | None]] = [
    *[(unpacked(**some), ORDERS, "what separates properties")
      for some in ({"KEYS": "a\x02DELAY\x013"}, {"DELAY\x013": ""}, {"a\x02DELAY": "3"}, {"\x02": ""})],
    (record(origin="orders\x02DELAY\x013"), PAY, "what separates properties"),
    (record(properties={"KEYS": "a\x01b"}), ORDERS, None),
    *[(record(headers={"flag": flag}), ORDERS, "no number of 32 bits")
      for flag in ("abc", "", "9" * 5_000, "2147483648", "\uff12", " 1", "1.0")],
    (record(properties=POP), PAY, "POP"),
    (record(properties={"1ST_POP_TIME": "1"}), PAY, "POP"),
    (record(properties={"RECONSUME_TIME": "16"}), PAY, "in order"),
    (record(properties={"RECONSUME_TIME": "16", "CONSUME_START_TIME": "1"}), PAY, None),
    (record(properties=POP), ORDERS, None),
    (record(properties={"big": "x" * 33_000}), ORDERS, "properties need"),
    (record(flags=BATCH | 1), ORDERS, "batch"),
    (record(flags=1), ORDERS, None),
]  # fmt: skip


@each_row(("letter", "target", "words"), PROBLEMS)
def test_what_must_not_be_sent_says_why(letter: Record, target: Target, words: str | None) -> None:
    problem = previewed(letter, target).problem
    assert problem is None if words is None else words in str(problem)


@each_row("flag", ["0", "-2147483648", "2147483647", 7])
def test_a_flag_goes_along(flag: Any) -> None:
    letter = record(headers={"flag": flag})
    assert (previewed(letter).problem, sent(letter).flag) == (None, int(flag))


def test_only_what_identifies_the_message_goes_along() -> None:
    own = dict.fromkeys(
        (
            "TRAN_MSG", "DELAY", "TIMER_DELAY_SEC", "TIMER_OUT_MS", "REAL_TOPIC", "RETRY_TOPIC",
            "ORIGIN_GROUP", "WAIT", "__BORNHOST", "POP_CK_OFFSET", "E_T", "TRANS_OFFSET",
        ),
        "x",
    )  # fmt: skip
    kept = {
        "UNIQ_KEY": "K", "KEYS": "a b", "TAGS": "t", "__SHARDINGKEY": "s", "user": "1", "INSTANCE_ID": "i",
        "TIMER_user": "2",
    }  # fmt: skip
    message = sent(record(properties={**own, **kept, "dlq_replay_id": "earlier"}))
    assert message.properties == {**kept, **PROVENANCE}
    assert (message.topic, message.reconsume_limit) == ("orders", None)
    assert set(previewed(record(properties={**own, **kept})).stripped) == set(own)


@each_row(
    ("told", "kept"),
    [("1600000000000", "1600000000000"), (1, "1"), ("0", None), ("-1", None), ("9" * 30, None), ("x", None)],
)
def test_what_goes_back_to_its_group_keeps_its_time(told: Any, kept: str | None) -> None:
    letter = record(headers={"bornTimestamp": told})
    assert (sent(letter, PAY).born, sent(letter).born) == (kept, None)


def test_who_waited_for_a_reply_or_is_in_another_group_is_told_of() -> None:
    asked = record(properties={"REPLY_TO_CLIENT": "10.0.0.1@7", "CORRELATION_ID": "c"})
    assert previewed(asked, PAY).warnings == ["its sender waited for a reply, and no longer does"]
    assert any("every group" in warning for warning in previewed(record()).warnings)
    assert not previewed(record(), PAY).warnings


def test_a_letter_without_a_unique_key_is_given_one_to_be_found_by() -> None:
    outgoing = Outgoing(0, record(), ORDERS, PROVENANCE)
    assert message_of(outgoing).properties["UNIQ_KEY"] == unique_key_of(outgoing) == "AB" * 16


FLAGS = [
    (0x8, b"plain", 0), (0x4 | 0x1, b"\x78\x9c..", 0x1), (0x101, b"\x04\x22\x4d\x18..", 0x101),
    (0x201, b"\x28\xb5\x2f\xfd..", 0x201), (0x301 | 0x10, b"\x78\x9c..", 0x301),
    (0x1, b"edited by hand", 0), (None, b"x", 0),
    (0x1, b"x=1&y=2", 0), (0x1, b"x = 1", 0), (0x301, b"x^2", 0), (0x1, "x^2 \xe9".encode(), 0),
    (0x1, "x=\xe9".encode("latin-1"), 0),
    *((0x1, zlib.compress(b'{"a":1}' * 700, level), 0x1) for level in (1, 5, 6, 9)),
]  # fmt: skip


@each_row(("flags", "body", "expected"), FLAGS)
def test_no_flag_but_compression_goes_along_and_that_only_with_a_compressed_body(
    flags: int | None, body: bytes, expected: int
) -> None:
    assert sent(record(flags=flags, body=body)).sys_flag == expected


COMPACTED = {"cleanup.policy": "COMPACTION"}
ATTRIBUTES: list[tuple[dict[str, str] | None, dict[str, str], str, str]] = [
    ({}, {}, "", ""),
    (COMPACTED, {"KEYS": "tea"}, "compacted: an old value would replace a newer one", ""),
    (COMPACTED, {}, "takes no message without KEYS", ""),
    ({"cleanup.policy": "DELETE COMPACTION"}, {"KEYS": "tea"}, "compacted: an old value", ""),
    ({"cleanup.policy": "DELETE", "message.type": "NORMAL"}, {"KEYS": "tea"}, "", ""),
    (None, {}, "", "may not be read"),
    ({"message.type": "FIFO"}, {}, "", "for ordered messages"),
    ({"message.type": "FIFO"}, {"__SHARDINGKEY": "s"}, "", ""),
    ({"message.type": "DELAY"}, {}, "", "without its delay"),
    ({"message.type": "TRANSACTION"}, {}, "", "without one, committed"),
    ({"message.type": "LITE"}, {}, "nobody would read it", ""),
    ({"message.type": "LITE"}, {"__LITE_TOPIC": "l"}, "", ""),
]


@each_row("target", [ORDERS, PAY], ids=str)
@each_row(("attributes", "properties", "risk", "warning"), ATTRIBUTES)
def test_what_a_topic_is_for_decides_whether_a_letter_goes_there_unnamed(
    target: Target, attributes: dict[str, str] | None, properties: dict[str, str], risk: str, warning: str
) -> None:
    found = preview(Outgoing(0, record(properties=properties), target, PROVENANCE), attributes)
    said = [found.problem, *found.unless_named.values()]
    assert any(risk in why for why in said if why) if risk else not any(said)
    told = [text for text in found.warnings if "gets it again" not in text and "sharding key:" not in text]
    assert any(warning in text for text in told) if warning else not told


def test_what_may_not_be_read_of_a_topic_may_be_that_it_is_compacted() -> None:
    letter, name = record(properties={"KEYS": "tea"}), "it is not known whether orders is compacted"
    assert name in preview(Outgoing(0, letter, ORDERS, PROVENANCE), None).unless_named["target"]
    assert not preview(Outgoing(0, letter, PAY, PROVENANCE), None).unless_named


# From Java: "Aa" and "BB" collide, and the last one's hash is Integer.MIN_VALUE.
HASHES = [("", 0), ("a", 97), ("Aa", 2112), ("BB", 2112), ("polygenelubricants", 2147483648)]


@each_row(("key", "magnitude"), HASHES)
def test_queues_are_chosen_by_javas_string_hash(key: str, magnitude: int) -> None:
    assert [queue_by_hash(key, queues) for queues in (1, 4, 1000)] == [magnitude % n for n in (1, 4, 1000)]


CODES = [
    (0, "", "confirmed"),
    (2, "[TIMEOUT_CLEAN_QUEUE]broker busy", "unsent"),
    (14, "service not available now, maybe disk full", "unsent"),
    (10, "flush", "in_doubt"),
    (11, "", "in_doubt"),
    (12, "", "in_doubt"),
    (13, "the message is illegal", "refused"),
    (16, "no", "refused"),
    (17, "no topic", "refused"),
    (1, "org.apache.rocketmq.acl.common.AclException: no", "refused"),
    (1, "java.lang.RuntimeException: message body size exceeded, MessageExtEncoder.encode", "refused"),
    (1, "store failed somehow", "in_doubt"),
    (1, "java.lang.NullPointerException", "in_doubt"),
    (999, "what is that", "in_doubt"),
]


@each_row(("code", "remark", "expected"), CODES)
def test_result_codes_mean_what_the_broker_did(code: int, remark: str, expected: str) -> None:
    assert outcome_of(Frame(code, 1, True, 0, remark, {}, b""))[0] == expected


def test_an_empty_body_that_the_broker_stumbles_over_is_refused() -> None:
    answer = Frame(1, 1, True, 0, "java.lang.NullPointerException", {}, b"")
    assert outcome_of(answer, is_empty=True)[0] == "refused"


@each_row(("code", "expected"), [(0, "confirmed"), (1, "in_doubt"), (16, "refused")])
def test_a_resumed_check_that_ends_in_an_error_without_a_name_may_have_been_stored(
    monkeypatch: pytest.MonkeyPatch, code: int, expected: str
) -> None:
    """A broker says "put message back failed" of all that is not PUT_OK, such as a quorum that is late."""
    answer = Frame(code, 1, True, 0, "Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed.", {}, b"")
    link: Any = SimpleNamespace(call=lambda *_: answer, close=lambda: None)
    cluster: Any = SimpleNamespace(masters=lambda **_: {"broker-a": "h:1"})
    monkeypatch.setattr(_Resume, "_is_there", lambda *_: True)
    half = record("RMQ_SYS_TRANS_HALF_TOPIC", headers={"storeHost": "h:1", "msgId": "0" * 32})
    letter = Outgoing(0, half, Target("resume", "orders"), PROVENANCE)
    assert _Resume(cluster, lambda _: link).send(letter, keep_no_mark).outcome == expected
