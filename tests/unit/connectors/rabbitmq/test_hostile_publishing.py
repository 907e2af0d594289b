"""A RabbitMQ that means harm while letters are sent to it: each letter is answered once, and nobody waits for
ever."""

import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from threading import Event

import pytest
from pika import spec
from support.analyzers.letters import record
from support.brokers.hostile import Harm, amqp, amqp_delivery, flood, once
from support.sending_contract import until_it_ends
from support.servers.hostile import Server
from support.waiting import SOON, UNHURRIED

from dlq.connectors.base import Outgoing, Sent, Target
from dlq.connectors.rabbitmq.amqp091.codec.frames import encode_method
from dlq.connectors.rabbitmq.amqp091.send import RabbitPublisher
from dlq.connectors.rabbitmq.plugin.description import RabbitBroker
from dlq.connectors.sending import WindowedPublisher
from dlq.core.errors import ConnectionLost

LETTERS = 5
Publish = Callable[..., tuple[list[Sent], Exception | None]]


def letters(body: bytes = b"x", names: str = "qqqqq") -> Iterator[Outgoing]:
    """For the queue `q`, or exchanges of other names."""
    for number, name in enumerate(names):
        target = Target("queue", "q") if name == "q" else Target("exchange", name, "k")
        yield Outgoing(number, record(body=body), target, {"dlq_replay_id": f"k{number}"})


@pytest.fixture(autouse=True)
def password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOSTILE", "s3cret")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RabbitPublisher, "silent_seconds", 1.0)


@pytest.fixture
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RabbitPublisher, "heavy_bytes", -1)


def published(harm: Harm, some: Iterator[Outgoing]) -> tuple[list[Sent], Exception | None]:
    with Server(amqp(harm, "Basic.Publish")) as server:
        url = f"amqp://u@{server.address}"
        broker = RabbitBroker("b", "rabbitmq", url, password_env="HOSTILE", timeout=UNHURRIED)
        return until_it_ends(RabbitPublisher(broker, "plan", 100, blocked_seconds=0.5), some)


@pytest.fixture
def publish(monkeypatch: pytest.MonkeyPatch) -> Publish:
    """All letters at once, though they are the first ones to their place."""
    monkeypatch.setattr(RabbitPublisher, "goes_alone", WindowedPublisher.goes_alone)
    return lambda harm, body=b"x": published(harm, letters(body))


def ack(tag: int, multiple: bool = False) -> bytes:
    return encode_method(1, spec.Basic.Ack(tag, multiple))


BLOCKED = encode_method(0, spec.Connection.Blocked("memory"))
UNBLOCKED = encode_method(0, spec.Connection.Unblocked())


def now_and_then(*said: bytes) -> Harm:
    def harm(peer: socket.socket) -> None:
        while True:
            for data in said:
                peer.sendall(data)
                time.sleep(0.2)

    return harm


NO_ANSWER: Mapping[str, tuple[Harm, str]] = {
    "an alarm again and again": (now_and_then(BLOCKED), "blocks publishers for more than"),
    # On a busy machine one of the alarms lasts too long by itself.
    "alarms without end": (now_and_then(BLOCKED, UNBLOCKED), "no answer to|blocks publishers for more than"),
    "confirms for nothing": (now_and_then(ack(99)), "no answer to"),
    "confirms for nothing, without a pause": (flood(b"", ack(99) * 9999), ""),
    "for all": (once(ack(0, multiple=True)), "no answer to"),
    "for 2^63": (once(ack(2**63)), "no answer to"),
}


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("what", NO_ANSWER)
def test_what_answers_no_letter_is_not_waited_for_without_end(what: str, publish: Publish) -> None:
    harm, words = NO_ANSWER[what]
    began = time.monotonic()
    sent, error = publish(harm)
    assert isinstance(error, ConnectionLost)
    assert re.search(words, str(error))
    assert {one.outcome for one in sent} == {"in_doubt"}
    assert len(sent) <= LETTERS
    assert time.monotonic() - began < SOON


@pytest.mark.usefixtures("one_by_one")
def test_an_alarm_that_ends_as_it_begins_is_one_alarm(publish: Publish) -> None:
    """With nothing in flight no silence would end it."""

    def harm(peer: socket.socket) -> None:
        peer.sendall(ack(1) + BLOCKED)
        now_and_then(UNBLOCKED + BLOCKED)(peer)

    sent, error = publish(harm)
    assert "blocks publishers for more than" in str(error)
    assert [(one.number, one.outcome) for one in sent] == [(0, "confirmed")]


ODD: Mapping[str, bytes] = {
    "each twice": b"".join(ack(tag) * 2 for tag in range(1, LETTERS + 1)),
    "all, and all again": ack(LETTERS, multiple=True) * 3,
    "far beyond the last": ack(2**62, multiple=True),
    "nacked behind its ack": ack(LETTERS, multiple=True) + encode_method(1, spec.Basic.Nack(LETTERS, True)),
    "returns of nobody's": amqp_delivery(b"x") + ack(LETTERS, multiple=True),
}


@pytest.mark.parametrize("odd", ODD)
def test_a_letter_is_answered_once_however_often_it_is_confirmed(odd: str, publish: Publish) -> None:
    published = count(1)

    def harm(peer: socket.socket) -> None:
        if next(published) == LETTERS:
            peer.sendall(ODD[odd])

    sent, error = publish(harm)
    assert error is None
    assert sorted((one.number, one.outcome) for one in sent) == [(n, "confirmed") for n in range(LETTERS)]


def closed(code: int, connection: bool) -> bytes:
    method = spec.Connection.Close if connection else spec.Channel.Close
    return encode_method(int(not connection), method(code, "it says why", 60, 40))


@pytest.mark.usefixtures("one_by_one")
@pytest.mark.parametrize(("code", "connection", "outcome"), [
    (501, True, "refused"), (502, True, "refused"), (505, True, "refused"), (406, False, "refused"),
    (541, False, "in_doubt"),
])  # fmt: skip
def test_what_ends_its_channel_or_connection_alone_is_refused_where_nothing_of_it_was_routed(
    code: int, connection: bool, outcome: str, publish: Publish
) -> None:
    sent, error = publish(lambda peer: peer.sendall(closed(code, connection)))
    assert error is None
    assert [(*one,) for one in sent] == [(n, outcome, "it says why") for n in range(LETTERS)]


@pytest.mark.usefixtures("one_by_one")
def test_what_comes_behind_the_end_of_a_connection_is_not_heard(
    publish: Publish, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of very many ends in a row led to a connection of its own."""
    made, connected = count(), RabbitPublisher._connect
    monkeypatch.setattr(RabbitPublisher, "_connect", lambda *of: (next(made), connected(*of))[1])
    sent, error = publish(lambda peer: peer.sendall(closed(501, True) * 30))
    assert (len(sent), error, next(made)) == (LETTERS, None, 1 + LETTERS)


@pytest.mark.parametrize(("code", "heavy"), [(541, -1), (320, -1), (403, -1), (530, -1), (501, 2**30)])
def test_what_may_have_been_routed_when_the_connection_ends_is_in_doubt(
    code: int, heavy: int, publish: Publish, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker says no reason that proves it, or does not say which letter it means."""
    monkeypatch.setattr(RabbitPublisher, "heavy_bytes", heavy)
    sent, error = publish(once(closed(code, True)))
    assert "it says why" in str(error)
    assert {one.outcome for one in sent} == {"in_doubt"}


def test_a_confirm_of_what_was_not_written_yet_is_none(
    publish: Publish, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker reads nothing of what is sent, and confirms all of it as soon as all is in the outbox."""
    monkeypatch.setattr("dlq.connectors.rabbitmq.amqp091.send.UNSENT_BYTES", 2**30)
    monkeypatch.setattr(RabbitPublisher, "heavy_bytes", 2**30)
    put, is_put = RabbitPublisher.put, Event()

    def put_and_say(publisher: RabbitPublisher, letter: Outgoing) -> None:
        put(publisher, letter)
        if letter.number == LETTERS - 1:
            publisher.silent_seconds = 1.0
            publisher.hear()
            is_put.set()

    def harm(peer: socket.socket) -> None:
        is_put.wait(SOON)
        now_and_then(ack(LETTERS, multiple=True))(peer)

    monkeypatch.setattr(RabbitPublisher, "put", put_and_say)
    sent, error = publish(harm, bytes(2**24))
    assert isinstance(error, ConnectionLost)
    assert {one.outcome for one in sent if one.number >= LETTERS - 2} == {"in_doubt"}


GONE = "NOT_FOUND - no exchange 'x' in vhost '/'"
NO_EXCHANGE = encode_method(1, spec.Channel.Close(404, GONE, 60, 40))


def published_to(names: str, harm: Callable[[socket.socket, int], None]) -> dict[int, str]:
    """`harm` hears how many letters have come."""
    came = count(1)
    sent, error = published(lambda peer: harm(peer, next(came)), letters(names=names))
    assert error is None
    return {one.number: one.outcome for one in sent}


def test_an_exchange_that_is_deleted_meanwhile_was_there_for_letters_before() -> None:
    """The broker had taken those before the last one, and had not confirmed them yet."""

    def harm(peer: socket.socket, came: int) -> None:
        if came <= 2:  # the first one to each
            peer.sendall(ack(came))
        if came in (7, 8):  # the last of the first time, and the one that goes again, alone
            peer.sendall(NO_EXCHANGE)
        if came == 9:
            peer.sendall(ack(1))

    sent = published_to("xyxxyxy", harm)
    settled = {0: "confirmed", 1: "confirmed", 5: "refused", 6: "confirmed"}
    assert sent == settled | dict.fromkeys((2, 3, 4), "in_doubt")


def test_the_first_letter_to_an_exchange_goes_alone_and_is_all_that_is_refused() -> None:
    def harm(peer: socket.socket, came: int) -> None:
        peer.sendall(ack(1) if came == 1 else NO_EXCHANGE)

    assert published_to("yxxx", harm) == {0: "confirmed", 1: "refused", 2: "unsent", 3: "unsent"}
