"""A session of AMQP 1.0 with a broker that means harm: one line, soon, and little memory."""

import re
import socket
import tracemalloc
from collections.abc import Mapping, Sequence

import pytest
from support.brokers.hostile import Harm, flood, listen, once
from support.brokers.hostile_amqp10 import LETTER as SENDING
from support.brokers.hostile_amqp10 import Taking, amqp10, flow, session
from support.rows import each_row
from support.servers.hostile import Server
from support.waiting import SOON

from dlq.connectors.amqp10.codec import frames, values
from dlq.connectors.amqp10.codec.values import NULL, boolean, sequence, string, ubyte, uint
from dlq.connectors.amqp10.link.session import Outcome, Session
from dlq.connectors.amqp10.link.transactions import Transactions
from dlq.connectors.net.links import LinkLostError
from dlq.core.errors import BrokerError

WORDS = string("\x1b[2J../%n")
TIMEOUT = 0.05
ENDS = (LinkLostError, BrokerError)


def read(opened: Session) -> None:
    """What a pull does: letters are asked for, and settled in a transaction."""
    source = opened.attach(frames.RECEIVER, "q")
    opened.ask(source, 2)
    opened.wait_until(lambda: source.is_answered)
    letters = opened.take()
    transactions = Transactions(opened)
    transactions.outcome_of(transactions.end(transactions.begin()))
    opened.settle(letters[0].number, letters[-1].number, frames.ACCEPTED)


FLOW = [uint(0), uint(9), uint(0), uint(9), uint(0), uint(0), uint(5), NULL, boolean(True)]
DRAINED = frames.frame(frames.FLOW, [*FLOW[:6], uint(0), *FLOW[7:]])
PART, STRAY = frames.transfer(0, 0, b"", True, True), frames.transfer(9, 0, b"", False, True)
OUTCOME = frames.disposition(0, 2**32 - 1, frames.state(frames.ACCEPTED), True)
TINY = frames.frame(frames.OPEN, [NULL, NULL, uint(5)])
ODD = (WORDS, sequence([]), b"\x80" + b"\xff" * 8)
ATTACH = [string("dlq-0"), uint(0), boolean(False), ubyte(0), ubyte(0), NULL, NULL, NULL, NULL, uint(0)]


def attached(*fields: bytes) -> bytes:
    return frames.frame(frames.ATTACH, [*fields, *ATTACH[len(fields) :], NULL])


def with_odd(code: int, usual: list[bytes], odd: Sequence[bytes] = ODD) -> list[bytes]:
    """The frame with each field of each wrong type, and each that is missing."""
    return [
        frames.frame(code, [*usual[:place], wrong, *usual[place + 1 :]])
        for place in range(len(usual))
        for wrong in odd
    ]


TRANSFER = [uint(0), uint(0), values.binary(b"t"), uint(0), boolean(False), boolean(False)]
OUTCOMES = [boolean(True), uint(0), uint(2**32 - 1), boolean(True), frames.state(frames.ACCEPTED)]
ERROR = values.described_value(0x1D, sequence([values.symbol("x"), WORDS]))
LARGE = b"\x80" + (2**40).to_bytes(8, "big")
FRAMES = {
    frames.OPEN: with_odd(frames.OPEN, [string("b"), NULL, uint(65_536), NULL, uint(1000)]),
    frames.BEGIN: with_odd(frames.BEGIN, [NULL, uint(0), uint(9), uint(9)]),
    frames.ATTACH: with_odd(frames.ATTACH, [*ATTACH, uint(9)]),
    frames.FLOW: [
        *with_odd(frames.FLOW, FLOW),
        *with_odd(frames.TRANSFER, TRANSFER, [*ODD, LARGE]),
        *with_odd(frames.DISPOSITION, OUTCOMES),
        *with_odd(frames.CLOSE, [ERROR]),
    ],
}


@pytest.mark.parametrize("code", FRAMES, ids=hex)
def test_a_field_of_another_type_ends_in_a_line(code: int) -> None:
    for frame in FRAMES[code]:
        with Server(amqp10(once(frame + DRAINED), code)) as server, pytest.raises(ENDS):
            read(session(server.address, TIMEOUT))


ENDLESS: Mapping[str, tuple[int, Harm, str]] = {
    "no word at all": (0, listen, "no answer within"),
    "no word to ATTACH": (frames.ATTACH, listen, "no answer within"),
    "flows": (frames.FLOW, flood(b"", frames.flow(0, 0) * 999), "no answer within"),
    "a letter without an end": (frames.FLOW, flood(b"", PART * 999), "more than it was|no answer"),
    "outcomes": (frames.FLOW, flood(b"", OUTCOME * 999), "more than it was|no answer"),
    "links": (frames.FLOW, flood(b"", attached() * 999), "more than it was"),
    "letters of no link": (frames.FLOW, flood(b"", STRAY), "more than it was"),
    "another protocol": (0, once(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "speaks HTTP"),
    "frames of no size": (frames.OPEN, once(TINY + frames.begin_session(1)), "frames of 5 bytes"),
    "another link": (frames.ATTACH, once(attached(string("dlq-7"))), "another link"),
}


@each_row("harm", ENDLESS)
def test_what_never_ends_is_ended(harm: str) -> None:
    when, behaviour, words = ENDLESS[harm]
    patience = TIMEOUT if "no answer" in words else SOON
    with Server(amqp10(behaviour, when)) as server, pytest.raises(ENDS) as raised:
        read(session(server.address, patience))
    assert re.search(words, str(raised.value))


CREDIT = {frames.ATTACH: attached() + frames.frame(frames.FLOW, [*FLOW[:6], uint(9)])}
ACCEPTED = frames.state(frames.ACCEPTED)
ROWS = b"".join(
    frames.disposition(1 + row * 2**16, (row + 1) * 2**16, ACCEPTED, True) for row in range(2**12)
)


def test_outcomes_of_what_was_never_sent_take_no_memory() -> None:
    with Server(amqp10(flood(b"", ROWS), frames.TRANSFER, CREDIT)) as server:
        opened = session(server.address, SOON)
        transactions = Transactions(opened)
        opened.patience = 1.0
        tracemalloc.start()
        with pytest.raises(LinkLostError, match="no answer"):
            transactions.begin()
        assert tracemalloc.get_traced_memory()[1] < 2**25
        tracemalloc.stop()


def test_outcomes_that_run_backwards_or_come_twice_answer_nothing_twice() -> None:
    told = frames.disposition(7, 6, ACCEPTED, True) + frames.disposition(0, 0, ACCEPTED, True) * 3
    with Server(amqp10(once(told), frames.TRANSFER, CREDIT)) as server:
        opened = session(server.address, SOON)
        link = opened.attach(frames.SENDER, "q")
        opened.wait_until(lambda: link.credit > 0)
        sent, outcomes = opened.send(link, b"x"), list[Outcome]()
        opened.wait_until(lambda: bool(outcomes.extend(opened.outcomes()) or outcomes))
        opened.turn(TIMEOUT)
        assert [one.number for one in [*outcomes, *opened.outcomes()]] == [sent]


LESS: Mapping[str, tuple[bytes, tuple[int, int]]] = {
    "credit": (flow(0, 0, 1), (0, 2**31 - 1 - 3)),
    "window": (flow(0, 3, 9, window=2), (9, 0)),
    "more than ever": (flow(0, 3, 2**32 - 1, 3, 2**32 - 1), (2**32 - 1, 2**32 - 1)),
    "letters that were never sent": (flow(0, 9, 5, 9, 5), (0, 0)),
}


@each_row("told", LESS)
def test_less_room_than_what_is_on_its_way_is_none(told: str) -> None:
    said, left = LESS[told]
    sent: list[frames.Frame] = []

    def third(_peer: socket.socket, frame: frames.Frame) -> bytes:
        sent.append(frame)
        return said if len(sent) == 3 else b""

    with Server(Taking({SENDING: third})) as server:
        opened = session(server.address, SOON)
        link = opened.attach(frames.SENDER, "q")
        opened.wait_until(lambda: link.credit > 0)
        for _ in range(3):
            opened.send(link, b"x")
        opened.wait_until(lambda: (link.credit, opened.window) == left)
        opened.cut()
