"""What of Artemis' letters is acknowledged: bytes, and what is known to be a text."""

from typing import Any

import pytest

from dlq.connectors.activemq.read.lossy import ArtemisClasses, lossy_on_artemis
from dlq.connectors.activemq.stomp.codec import Frame


class Management:
    """Tells classes, or nothing; counts the questions."""

    def __init__(self, told: dict[int, Any] | None) -> None:
        self.told, self.asked = told, 0

    def delivered_classes(self, _queue: str) -> dict[int, Any] | None:
        self.asked += 1
        return None if self.told is None else dict(self.told)


def letter(number: int, body: bytes, *headers: str) -> Frame:
    return Frame(b"MESSAGE", "\n".join([f"message-id:7,{number}", *headers]).encode(), body)


def left(management: Management, *letters: Frame) -> list[bool]:
    told: Any = management
    class_of = ArtemisClasses(told, "DLQ")
    return [lossy_on_artemis(each, class_of) is not None for each in letters]


def test_the_class_decides_and_not_what_the_body_looks_like() -> None:
    told = Management({1: 3, 2: 3, 3: 6, 4: 0, 5: 4})
    bodies = [b"", b"\x1b[0m", "䉁䑃".encode(), b"", b""]
    letters = [letter(number, body) for number, body in enumerate(bodies, 1)]
    assert (left(told, *letters), told.asked) == ([False, False, True, True, False], 1)


def test_a_letter_that_management_does_not_list_stays() -> None:
    assert left(Management({}), letter(1, b"text")) == [True]


def test_without_the_right_to_manage_nothing_empty_or_odd_is_taken_and_it_is_asked_once() -> None:
    denied = Management(None)
    letters = [letter(1, b""), letter(2, b"\0"), letter(3, b"text")]
    assert (left(denied, *letters), denied.asked) == ([True, True, False], 1)


@pytest.mark.parametrize(("encoding", "declared", "stays"), [
    ("5", "5", False), ("7", "2", True), ("8", "4", True), ("2", "1", True), ("5", None, False),
    ("3", None, True),
])  # fmt: skip
def test_an_amqp_message_says_itself_what_it_is(encoding: str, declared: str | None, stays: bool) -> None:
    own = [f"JMS_AMQP_ORIGINAL_ENCODING:{encoding}"]
    own += [f"JMS_AMQP_MA_x-opt-jms-msg-type:{declared}"] if declared else []
    assert left(Management({}), letter(1, b"body", *own)) == [stays]
