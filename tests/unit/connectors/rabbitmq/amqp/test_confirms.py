from hypothesis import given
from hypothesis import strategies as st
from pika import frame, spec

from dlq.connectors.rabbitmq.amqp091.codec.confirms import Confirms, Open, message
from dlq.connectors.rabbitmq.amqp091.codec.edits import EMPTY, edit

ID = "dlq_replay_id"


def in_flight(count: int) -> Confirms:
    confirms = Confirms()
    for number in range(1, count + 1):
        confirms.add(Open(number, f"id-{number}", "shop"))
    return confirms


def returned_content(number: int) -> bytes:
    return edit(EMPTY, set_headers={"tenant": 1, ID: f"id-{number}"})


def numbers(answered: list[tuple[Open, bool]]) -> list[int]:
    return [entry.number for entry, _ in answered]


def test_a_multiple_answer_is_for_all_that_are_open_up_to_its_tag() -> None:
    confirms = in_flight(5)
    assert numbers(confirms.take_answer(2, False)) == [2]
    assert numbers(confirms.take_answer(3, True)) == [1, 3]
    assert numbers(confirms.take_answer(5, True)) == [4, 5]
    assert len(confirms) == 0


def test_a_return_belongs_to_its_own_letter_even_when_another_is_answered_first() -> None:
    confirms = in_flight(3)
    confirms.take_return(returned_content(2), ID)
    assert confirms.take_answer(1, False)[0][1] is False
    assert confirms.take_answer(3, True) == [
        (Open(2, "id-2", "shop"), True),
        (Open(3, "id-3", "shop"), False),
    ]


@given(
    st.integers(1, 30), st.lists(st.tuples(st.integers(1, 30), st.booleans())), st.sets(st.integers(1, 30))
)
def test_every_letter_is_answered_exactly_once(
    count: int, answers: list[tuple[int, bool]], returned: set[int]
) -> None:
    confirms = in_flight(count)
    for number in returned:
        confirms.take_return(returned_content(number), ID)
    seen = [pair for tag, multiple in answers for pair in confirms.take_answer(tag, multiple)]
    assert all(was_returned == (entry.number in returned) for entry, was_returned in seen)
    rest = [entry.number for entry in confirms.give_up()]
    assert sorted(numbers(seen) + rest) == list(range(1, count + 1))


@given(st.binary(max_size=300), st.integers(1, 100))
def test_the_frames_are_those_that_pika_makes(body: bytes, room: int) -> None:
    block = returned_content(1)
    publish = spec.Basic.Publish(exchange="käse", routing_key="order.created", mandatory=True)
    properties = spec.BasicProperties()
    properties.encode = lambda: [block]
    expected = frame.Method(1, publish).marshal() + frame.Header(1, len(body), properties).marshal()
    for at in range(0, len(body), room):
        expected += frame.Body(1, body[at : at + room]).marshal()
    assert message("käse", "order.created", block, body, room + 8) == expected
