"""What of Artemis' letters is acknowledged: bytes, and what is known to be a text; what selects one alone."""

from typing import Any, NamedTuple

from support.rows import each_row

from dlq.connectors.activemq.read.isolated import identify_messages
from dlq.connectors.activemq.read.lossy import ArtemisClasses, lossy_on_artemis, lossy_on_classic
from dlq.connectors.activemq.stomp.codec import Frame


class Management(NamedTuple):
    """Tells classes, or nothing; keeps the questions."""

    told: dict[int, Any] | None
    asked: list[str]

    def delivered_classes(self, queue: str) -> dict[int, Any] | None:
        self.asked.append(queue)
        return None if self.told is None else dict(self.told)


def letter(number: int, body: bytes, *headers: str) -> Frame:
    return Frame(b"MESSAGE", "\n".join([f"message-id:7,{number}", *headers]).encode(), body)


def left(told: dict[int, Any] | None, *letters: Frame) -> tuple[list[bool], int]:
    """Which of them stay, and how often classes were asked for."""
    management: Any = Management(told, [])
    class_of = ArtemisClasses(management, "DLQ")
    return [lossy_on_artemis(each, class_of) is not None for each in letters], len(management.asked)


def test_the_class_decides_and_not_what_the_body_looks_like_and_what_is_not_listed_stays() -> None:
    bodies = [b"", b"\x1b[0m", "䉁䑃".encode(), b"", b""]
    letters = [letter(number, body) for number, body in enumerate(bodies, 1)]
    assert left({1: 3, 2: 3, 3: 6, 4: 0, 5: 4}, *letters) == ([False, False, True, True, False], 1)
    assert left({}, letter(1, b"text"))[0] == [True]


def test_without_the_right_to_manage_nothing_empty_or_odd_is_taken_and_it_is_asked_once() -> None:
    assert left(None, letter(1, b""), letter(2, b"\0"), letter(3, b"text")) == ([True, True, False], 1)


@each_row(("line", "stays"), [
    ("token:[B@57d9c8ca", True), ("correlation-id:[B@7", True), ("token:see [B@57d9c8ca", False),
    ("token:[B@57d9c8ca!", False), ("_AMQ_DUPL_ID:[B@57d9c8ca", False), ("__HDR_DROPPABLE:[B@7", False),
])  # fmt: skip
def test_an_address_in_the_place_of_bytes_keeps_a_letter_unless_the_broker_wrote_it(
    line: str, stays: bool
) -> None:
    assert left({1: 3}, letter(1, b"text", line))[0] == [stays]


@each_row(("encoding", "declared", "stays"), [
    ("5", "5", False), ("7", "2", True), ("8", "4", True), ("2", "1", True), ("5", None, False),
    ("3", None, True),
])  # fmt: skip
def test_an_amqp_message_says_itself_what_it_is(encoding: str, declared: str | None, stays: bool) -> None:
    own = [f"JMS_AMQP_ORIGINAL_ENCODING:{encoding}"]
    own += [f"JMS_AMQP_MA_x-opt-jms-msg-type:{declared}"] if declared else []
    assert left({}, letter(1, b"body", *own)) == ([stays], 0)


def test_a_dead_letter_has_a_number_of_its_own_and_any_other_its_producers_id() -> None:
    messages = [
        {"messageID": 7, "_AMQ_ORIG_MESSAGE_ID": 3, "userID": "ID:a"},
        {"messageID": 8, "userID": "ID:it's"},
        {"messageID": 9, "_AMQ_ORIG_MESSAGE_ID": 3, "_AMQ_ORIG_QUEUE": "it's"},
    ]
    assert [(one.core_id, one.name, one.selector) for one in identify_messages(messages)] == [
        (7, "3", "_AMQ_AD IS NOT NULL AND _AMQ_ORIG_MESSAGE_ID = 3"),
        (8, "ID:it's", "_AMQ_AD IS NOT NULL AND AMQUserID = 'ID:it''s'"),
        (9, "3", "_AMQ_AD IS NOT NULL AND _AMQ_ORIG_MESSAGE_ID = 3 AND _AMQ_ORIG_QUEUE = 'it''s'"),
    ]


def test_what_several_have_selects_none_of_them_alone() -> None:
    messages = [{"messageID": 7, "userID": "ID:a"}, {"messageID": 8, "userID": "ID:a"}, {"messageID": 9}]
    assert [one.selector for one in identify_messages(messages)] == [None, None, None]
    assert identify_messages(messages)[2].name == "message 9"


@each_row("line", ["content-length:0", "content-length:7", "x-content-length:0"])
@each_row(("shown", "include_empty", "stays"), [
    (None, False, None), (None, True, False), ({"Text": ""}, False, False), ({"BodyLength": 0}, False, False),
    ({"ContentMap": {}}, True, True), ({}, True, True),
])  # fmt: skip
def test_an_empty_body_is_on_classic_what_its_class_says_and_else_its_length(
    shown: dict[str, Any] | None, include_empty: bool, stays: bool | None, line: str
) -> None:
    why = lossy_on_classic(letter(1, b"", line), include_empty, lambda _frame: shown)
    assert (why is not None) is (line != "content-length:0" if stays is None else stays)
