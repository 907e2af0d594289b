"""Brokers of AMQP 1.0 that take letters in transactions, and answer one kind of frame as they like."""

import socket
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from support.analyzers.letters import record
from support.brokers.hostile import Harm

from dlq.connectors.amqp10.codec import frames, message
from dlq.connectors.amqp10.codec.values import (
    NULL,
    binary,
    boolean,
    described_value,
    sequence,
    string,
    ubyte,
    uint,
    ushort,
)
from dlq.connectors.amqp10.link.session import Login, Session
from dlq.connectors.base import Outgoing, Target
from dlq.core.errors import BrokerError

DECLARE, COMMIT, LETTER = "declare", "commit", "letter"
_MUCH = 2**31 - 1
_COORDINATOR = 0x30
Odd = Callable[[socket.socket, frames.Frame], bytes]
"""What is said instead of the usual answer."""


class Taking:
    """Behaves as a `Server` asks. `odd`: by what is answered, a performative or a kind of transfer;
    `sessions`, `letters` and `commits` are counted."""

    def __init__(self, odd: Mapping[int | str, Odd]) -> None:
        self._odd = odd
        self.sessions = self.letters = self.commits = 0

    def __call__(self, peer: socket.socket) -> None:
        """One connection."""
        self.sessions += 1
        reader, coordinators = frames.FrameReader(), set[Any]()
        peer.sendall(frames.SASL_HEADER)
        while data := peer.recv(2**16):
            for frame in reader.feed(data):
                if frame.code == frames.SASL_INIT:
                    reader.expect(frames.AMQP_HEADER)
                if frame.code == frames.ATTACH and is_coordinator(frame):
                    coordinators.add(frame.field(1))
                what = _kind_of(frame, coordinators)
                self.letters += what == LETTER
                self.commits += what == COMMIT
                odd = self._odd.get(what) or self._odd.get(frame.code)
                peer.sendall(odd(peer, frame) if odd else usual(what, frame))


def amqp10(
    harm: Harm, when: int, told: Mapping[int | str, bytes] = MappingProxyType({})
) -> Callable[[socket.socket], None]:
    """`harm` comes instead of the answer to the frame `when` (`frames.OPEN` and so on), or at once (0).
    `told`: answers other than the usual ones."""

    def behave(peer: socket.socket) -> None:
        if when == 0:
            peer.recv(2**16)
            return harm(peer)
        return Taking({**others, when: lambda peer, _frame: harm(peer) or b""})(peer)

    others: dict[int | str, Odd] = {code: lambda _peer, _frame, it=said: it for code, said in told.items()}
    return behave


def _kind_of(frame: frames.Frame, coordinators: set[Any]) -> int | str:
    if frame.code != frames.TRANSFER:
        return frame.code
    if frame.field(0) not in coordinators:
        return LETTER
    return DECLARE if frame.payload == frames.declare() else COMMIT


def is_coordinator(attach: frames.Frame) -> bool:
    """Whether a link leads to where transactions are begun."""
    target = attach.field(6)
    return isinstance(target, tuple) and target[0] == _COORDINATOR


def usual(what: int | str, frame: frames.Frame) -> bytes:
    """What an honest one answers."""
    simple = {
        frames.SASL_INIT: frames.frame(frames.SASL_OUTCOME, [ubyte(0)], kind=1) + frames.AMQP_HEADER,
        frames.OPEN: frames.frame(frames.OPEN, [string("b"), NULL, uint(frames.MAX_FRAME)]),
        frames.BEGIN: frames.frame(frames.BEGIN, [ushort(0), uint(0), uint(_MUCH), uint(_MUCH)]),
        frames.CLOSE: frames.farewell(frames.CLOSE),
        frames.DETACH: frames.detach(0),
    }
    if frame.code == frames.ATTACH:  # credit is for who sends
        return attached(frame) + (b"" if frame.field(2) else flow(frame.field(1), 0, 1000))
    if what == DECLARE:
        return became(frame, described_value(frames.DECLARED, sequence([binary(b"t")])))
    if frame.code == frames.TRANSFER and frame.field(1) is not None:
        return became(frame, frames.state(frames.ACCEPTED))
    return simple.get(frame.code, b"")


def attached(asked: frames.Frame) -> bytes:
    """The other end of a link, without credit."""
    fields = [string(asked.field(0)), uint(asked.field(1)), boolean(not asked.field(2)), ubyte(0), ubyte(0)]
    return frames.frame(frames.ATTACH, [*fields, *[NULL] * 4, uint(0)])


def flow(handle: int, delivery_count: int, credit: int, incoming: int = 0, window: int = _MUCH) -> bytes:
    """Credit for a link, counted from what the broker has seen of it."""
    session = [uint(incoming), uint(window), uint(0), uint(_MUCH)]
    return frames.frame(frames.FLOW, [*session, uint(handle), uint(delivery_count), uint(credit)])


def became(sent: frames.Frame, state: bytes) -> bytes:
    """The outcome of a transfer."""
    return frames.disposition(sent.field(1), sent.field(1), state, settled=True)


def letter(number: int, body: bytes = b"x") -> Outgoing:
    """A letter that came by AMQP 1.0, on its way back."""
    whole = described_value(message.PROPERTIES, sequence([string(f"m{number}")]))
    block, body, _ = message.split(whole + described_value(message.DATA, binary(body)))
    columns = {"record_id": f"{number:032}", "raw_properties": block, "body": body, "body_size": len(body)}
    return Outgoing(number, record(**columns), Target("queue", "q"), {"dlq_replay_id": f"k{number}"})


def session(address: str, patience: float, timeout: float | None = None) -> Session:
    """A connection of ours to such a broker, at host:port."""
    host, port = address.split(":")
    login = Login("u", "p", "h", 60, {}, patience, timeout or patience / 5)
    connected = socket.create_connection((host, int(port)), 5)
    return Session(connected, login, lambda condition, said: BrokerError(f"{condition} {said}"))
