"""An Artemis that means harm while letters go back by AMQP 1.0, or one that takes nothing by any protocol."""

import socket
import time
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain, repeat
from typing import Any

import pytest
from support.brokers.hostile import openwire, stomp
from support.brokers.hostile_amqp10 import (
    COMMIT,
    DECLARE,
    LETTER,
    Odd,
    Taking,
    attached,
    became,
    letter,
    usual,
)
from support.rows import each_row
from support.sending_contract import until_it_ends
from support.servers.hostile import Server
from support.waiting import SOON, UNHURRIED

from dlq.connectors.activemq.amqp import send
from dlq.connectors.activemq.amqp.link import opened_at
from dlq.connectors.activemq.amqp.send import Amqp10Sender
from dlq.connectors.activemq.link.sockets import Unanswered
from dlq.connectors.activemq.openwire.send import OpenWireSender
from dlq.connectors.activemq.plugin.description import ActiveMQBroker
from dlq.connectors.activemq.send import Sender, StompSender
from dlq.connectors.activemq.stomp import link
from dlq.connectors.activemq.stomp.send import TransactionPublisher
from dlq.connectors.amqp10.codec import frames
from dlq.connectors.amqp10.codec.values import (
    NULL,
    binary,
    boolean,
    described_value,
    sequence,
    string,
    symbol,
    uint,
)
from dlq.connectors.amqp10.link.session import Session
from dlq.connectors.base import SendRequest, Sent
from dlq.core.errors import ConnectionLost
from dlq.core.runtime import patience

TIMEOUT = 0.5
"""For who does nothing."""
LETTERS = 5


class Unanchored(Amqp10Sender):
    """Leaves no anchor, which would be looked for by STOMP."""

    def begin_run(self, plan: str, anchor: str) -> None:
        pass


def by_amqp(address: str) -> Sender:
    url = f"amqp://{address}"
    return Unanchored(ActiveMQBroker("b", "activemq", "stomp://127.0.0.1:1", amqp_url=url, timeout=UNHURRIED))


def hasten(wire: Any, seconds: float) -> None:
    """Wait no longer from now on, when it is connected."""
    wire.timeout = wire.patience = seconds
    wire.peer = wire.peer._replace(timeout=seconds, patience=seconds)


def in_haste(address: str) -> Sender:
    opened: list[tuple[Session, str]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(send, "opened_at", lambda broker: opened.append(opened_at(broker)) or opened[0])
        sender = by_amqp(address)
    hasten(opened[0][0], patience.WHOLE_ANSWER * TIMEOUT)
    return sender


def published(
    odd: Mapping[int | str, Odd], make: Callable[[str], Sender] = by_amqp, body: bytes = b"x"
) -> tuple[Taking, list[Sent], Exception | None]:
    """The broker, what became of some letters, and what ended the sending, soon."""
    with Server(broker := Taking(odd)) as server:
        began = time.monotonic()
        publisher = TransactionPublisher(lambda: make(server.address), SendRequest("p"))
        sent, error = until_it_ends(publisher, iter([letter(n, body) for n in range(LETTERS)]))
        assert time.monotonic() - began < SOON
    return broker, sent, error


def silent(_peer: socket.socket, _frame: frames.Frame) -> bytes:
    return b""


def sleep(*_: object) -> Any:
    """Hear nothing more."""
    time.sleep(60)
    return b""


def without_credit(_peer: socket.socket, frame: frames.Frame) -> bytes:
    """For letters; transactions go on."""
    is_letters = frame.field(6)[0] != 0x30
    return attached(frame) if is_letters else usual(frames.ATTACH, frame)


def slow(_peer: socket.socket, frame: frames.Frame) -> bytes:
    """An answer to each letter, within the time that one may take."""
    time.sleep(3 * TIMEOUT)
    return usual(LETTER, frame)


def error(condition: str) -> bytes:
    return described_value(0x1D, sequence([symbol(condition), string("no")]))


def rejected_for(condition: str) -> bytes:
    return described_value(frames.REJECTED, sequence([error(condition)]))


def saying(state: bytes) -> Odd:
    return lambda _peer, frame: became(frame, state)


LEFT: Mapping[str, tuple[int | str, Odd, bytes]] = {
    "letters are never settled": (LETTER, silent, b"x"),
    "commits are never settled": (COMMIT, silent, b"x"),
    "nothing is taken": (LETTER, sleep, bytes(2**24)),
    "no credit": (frames.ATTACH, without_credit, b"x"),
    "no transaction has an id": (DECLARE, saying(described_value(frames.DECLARED, sequence([]))), b"x"),
    "no transaction is begun": (DECLARE, saying(rejected_for("amqp:resource-limit-exceeded")), b"x"),
    "transactions are never answered": (DECLARE, silent, b"x"),
    "letters are settled one by one": (LETTER, slow, b"x"),
}


@pytest.mark.parametrize("harm", LEFT)
def test_who_does_nothing_is_left_and_no_letter_goes_alone(harm: str) -> None:
    what, odd, body = LEFT[harm]
    broker, sent, error = published({what: odd}, in_haste, body)
    assert isinstance(error, ConnectionLost)
    assert {one.outcome for one in sent} == (set() if what == DECLARE else {"in_doubt"})
    assert broker.sessions == 1


WAYS: Mapping[str, tuple[Callable[[ActiveMQBroker], Any], str, Any]] = {
    "stomp": (StompSender, "stomp", stomp(sleep, "BEGIN")),
    "openwire": (OpenWireSender, "tcp", openwire(sleep, 7)),
}


def test_who_is_silent_by_stomp_longer_than_its_heart_may_be_is_no_connection_that_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Server(stomp(sleep, "BEGIN")) as server:
        sender = StompSender(ActiveMQBroker("b", "activemq", f"stomp://{server.address}", timeout=UNHURRIED))
        monkeypatch.setattr(link, "_SILENCE", 0.5)
        sender.send(sender.begin("1"))
        with pytest.raises(Unanswered, match="nothing was heard"):
            sender.wait_for(sender.new_receipt())
        sender.close()


@pytest.mark.parametrize("way", WAYS)
def test_a_socket_that_takes_nothing_more_is_no_connection_that_ended(way: str) -> None:
    make, scheme, behave = WAYS[way]
    with Server(behave) as server:
        sender = make(ActiveMQBroker("b", "activemq", f"{scheme}://{server.address}", timeout=UNHURRIED))
        hasten(sender, TIMEOUT)
        with pytest.raises(Unanswered, match="takes nothing"):
            sender.send(sender.begin("1") + bytes(2**25))
        sender.close()


ODD_STATES = {
    "received": described_value(0x23, sequence([])),
    "none": NULL,
    "released": frames.state(frames.RELEASED),
    "modified": frames.state(frames.MODIFIED),
    "declared": described_value(frames.DECLARED, sequence([binary(b"u")])),
    "unknown": described_value(0x99, sequence([])),
    "rejected, nothing said": frames.state(frames.REJECTED),
    "rejected, by some exception": rejected_for("failed"),
    "rejected, not the user's": rejected_for("amqp:unauthorized-access"),
    "rolled back, and no rejection": described_value(0x99, sequence([error("amqp:transaction:rollback")])),
}


@each_row("state", ODD_STATES)
def test_a_commit_that_is_neither_accepted_nor_rejected_is_in_doubt_and_goes_once(state: str) -> None:
    broker, sent, error = published({COMMIT: saying(ODD_STATES[state])})
    assert "which says nothing" in str(error)
    assert {one.outcome for one in sent} == {"in_doubt"}
    assert (broker.commits, broker.sessions) == (1, 1)


@each_row("condition", ["amqp:transaction:rollback", "amqp:transaction:timeout"])
def test_a_commit_that_is_rolled_back_has_its_letters_tried_alone(condition: str) -> None:
    states = chain([rejected_for(condition)], repeat(frames.state(frames.ACCEPTED)))
    _, sent, error = published({COMMIT: lambda _peer, frame: became(frame, next(states))})
    assert error is None
    assert [one.outcome for one in sent] == ["confirmed"] * LETTERS


ENDED = {
    "close": frames.frame(frames.CLOSE, [error("amqp:connection:forced")]),
    "end": frames.frame(frames.END, [error("amqp:internal-error")]),
    "detach": frames.frame(frames.DETACH, [uint(0), boolean(True), error("amqp:resource-limit-exceeded")]),
}


@pytest.mark.parametrize("how", ENDED)
def test_a_commit_behind_which_the_broker_ends_its_side_with_an_error_is_in_doubt_and_goes_once(
    how: str,
) -> None:
    broker, sent, error = published({COMMIT: lambda _peer, _frame: ENDED[how]})
    assert isinstance(error, ConnectionLost)
    assert [one.outcome for one in sent] == ["in_doubt"] * LETTERS
    assert (broker.commits, broker.sessions) == (1, 1)


@each_row(
    "how, ends",
    [
        ("close", [LETTER] * 3),
        *[(how, ends) for how in ENDED for ends in ([DECLARE] * 3, [LETTER, LETTER, *[DECLARE] * 3])],
    ],
)
def test_a_broker_that_ends_its_connections_has_refused_no_letter_that_is_not_sent(
    how: str, ends: Sequence[str]
) -> None:
    """All go together, then once more, then the first of them alone; each connection ends at something."""
    peers = list[socket.socket]()

    def ending(what: str, peer: socket.socket, frame: frames.Frame) -> bytes:
        peers.extend([] if peer in peers else [peer])
        is_over = ends[len(peers) - 1 :][:1] == [what]
        return ENDED["close" if what == LETTER else how] if is_over else usual(what, frame)

    _, sent, error = published({what: partial(ending, what) for what in (LETTER, DECLARE)})
    assert error is None
    assert [one.outcome for one in sent] == ["confirmed"] * LETTERS


@pytest.mark.parametrize("more", [True, False])
def test_letters_that_come_while_letters_are_sent_take_no_memory(more: bool) -> None:
    def flooding(peer: socket.socket, frame: frames.Frame) -> bytes:
        while True:
            peer.sendall(frames.transfer(frame.field(0), 0, bytes(100_000), more, True))

    tracemalloc.start()
    _, sent, _ = published({LETTER: flooding})
    assert tracemalloc.get_traced_memory()[1] < 2**25
    tracemalloc.stop()
    assert {one.outcome for one in sent} == {"refused"}


def test_connections_that_go_on_ending_are_no_letter_s_doing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "ENDLESS", 1.0)

    def ending(_peer: socket.socket, _frame: frames.Frame) -> bytes:
        time.sleep(2 * TIMEOUT)
        raise ConnectionResetError

    _, sent, error = published({LETTER: ending})
    assert isinstance(error, ConnectionLost)
    assert len({one.number for one in sent}) == len(sent) == LETTERS
