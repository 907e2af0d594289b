"""What the broker left on a message of AMQP 1.0, and what its sender only calls so."""

from support.rows import each_row

from dlq.connectors.activemq.records.amqp10 import edit_headers, headers_of, message_to_send, stripped_names
from dlq.connectors.amqp10.codec import message
from dlq.connectors.amqp10.codec.values import as_text, described_value, mapping, string, symbol
from dlq.core.record import Record

ANNOTATIONS, PROPERTIES, DATA = 0x72, 0x74, b"\x00\x53\x75\xa0\x01x"
NAMES = [
    "_AMQ_ORIG_ADDRESS", "_AMQ_ORIG_QUEUE", "_AMQ_ORIG_MESSAGE_ID", "_AMQ_ORIG_ROUTING_TYPE",
    "_AMQ_ACTUAL_EXPIRY",
]  # fmt: skip


def block(annotations: dict[str, str], properties: dict[str, str]) -> bytes:
    told = mapping([symbol(name) + string(text) for name, text in annotations.items()])
    own = mapping([string(name) + string(text) for name, text in properties.items()])
    return message.split(described_value(ANNOTATIONS, told) + described_value(PROPERTIES, own) + DATA)[0]


def shown(annotations: dict[str, str], properties: dict[str, str]) -> dict[str, str]:
    return headers_of(message.parts(block(annotations, properties)))


@each_row("name", NAMES)
def test_what_a_sender_calls_as_the_broker_does_is_no_word_of_the_broker(name: str) -> None:
    for headers in (shown({}, {name: "payments"}), shown({name: "payments"}, {})):
        assert name not in headers
        assert headers[f"property {name}"] == "payments"


def test_the_broker_s_word_wins() -> None:
    headers = shown({"x-opt-ORIG-ADDRESS": "orders"}, {"_AMQ_ORIG_ADDRESS": "payments", "a": "1"})
    assert headers == {"_AMQ_ORIG_ADDRESS": "orders", "a": "1"}


def test_a_sender_s_property_is_edited_by_the_name_that_is_shown() -> None:
    before = block({"x-opt-ORIG-QUEUE": "orders"}, {"_AMQ_ORIG_ADDRESS": "payments"})
    after = edit_headers(before, lambda name: name == "property _AMQ_ORIG_ADDRESS", {})
    assert headers_of(message.parts(after)) == {"_AMQ_ORIG_QUEUE": "orders"}


def test_a_count_of_retries_does_not_go_back_with_what_died() -> None:
    died = block({"x-opt-ORIG-ADDRESS": "orders"}, {"retryCount": "3", "tenant": "7"})
    record = Record("r", "s", "b", "artemis", "dead", raw_properties=died, body=b"\x01x")
    sent, *_ = message.split(message_to_send(record, {}, keep_headers=False))
    assert headers_of(message.parts(sent)) == {"tenant": "7"}
    assert stripped_names(record, keep_headers=False) == ["x-opt-ORIG-ADDRESS", "retryCount"]


def test_marks_go_as_properties_of_the_application_and_are_read_from_annotations_too() -> None:
    marked = block({"dlq_replay_lap": "1", "mine": "a"}, {"dlq_replay_id": "b"})
    assert headers_of(message.parts(marked)).items() >= {("dlq_replay_lap", "1"), ("dlq_replay_id", "b")}
    record = Record("r", "s", "b", "artemis", "dead", raw_properties=marked, body=b"\x01x")
    sent, *_ = message.split(message_to_send(record, {"dlq_replay_lap": "2"}, keep_headers=False))
    parts = message.parts(sent)
    assert [(as_text(key), as_text(value)) for key, value in parts.annotations] == [("mine", "a")]
    assert [(as_text(key), as_text(value)) for key, value in parts.application] == [("dlq_replay_lap", "2")]
