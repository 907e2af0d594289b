"""What a replay is called: the same name wherever it would be the same thing done twice."""

from support.archives import letter
from support.rows import each_row

from dlq.connectors.base import Target
from dlq.core.record import Record
from dlq.replay.plans.letters import lap_of, replay_key, transaction_of

PUBLISH, RESUME = Target("topic", "payments"), Target("resume", "payments")
HALF, DISCARDED = "RMQ_SYS_TRANS_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"


def message(number: int = 1, queue: str = HALF, unique: str = "7F01", **values: object) -> Record:
    known = {"broker_kind": "rocketmq", "dead_letter_queue": queue, "message_id": unique}
    return letter(number, **{**known, "properties": {"UNIQ_KEY": unique}, **values})


def key(record: Record, target: Target = PUBLISH, by_business_key: bool = False) -> str:
    return replay_key(record, target, by_business_key, lap_of(record), transaction_of(record))


@each_row("other", [
    message(2), message(2, DISCARDED), message(2, properties={}),
    message(2, headers={"dlq_replay_lap": "3"}), message(2, key="order-17"),
])  # fmt: skip
@each_row("target", [PUBLISH, RESUME])
def test_resuming_and_publishing_a_transaction_have_one_key(other: Record, target: Target) -> None:
    assert key(other, target) == key(message())
    assert key(other, target, by_business_key=True) == key(message())


def test_what_is_not_the_same_has_two_keys() -> None:
    assert key(message(unique="7F01")) != key(message(unique="7F02"))
    nameless = {"message_id": None, "properties": {}}
    assert key(message(1, **nameless)) != key(message(2, **nameless)), "half messages without a key"
    assert key(message(1, "%DLQ%pay")) != key(message(2, "%DLQ%pay")), "letters of a group"
    for other in (letter(2), letter(1, headers={"dlq_replay_lap": "1"})):
        assert key(other) != key(letter(1))
    assert key(letter(1), PUBLISH) != key(letter(1), RESUME)
    assert key(letter(1)) != key(letter(1, broker="another"))
