"""A blocking connection of AMQP 1.0 with one session: links, credit, letters and what became of them.

It reads the socket only when it is asked to.
"""

import math
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from dlq.connectors.amqp10.codec import frames
from dlq.connectors.amqp10.codec.frames import Frame, FrameReader
from dlq.connectors.amqp10.codec.values import NULL
from dlq.connectors.net import outbound
from dlq.connectors.net.links import FrameError, LinkLostError
from dlq.connectors.wire import Peer, Wire, check_kept
from dlq.core.errors import DlqError
from dlq.core.runtime.patience import WHOLE_ANSWER

_BEAT_SECONDS = 30.0
_LEAST_FRAME = 512
"""Octets that every side takes (part 2, section 2.3.1)."""
MOST_LINKS = 255
_MAX_MESSAGE = 512 * 2**20
"""RabbitMQ's own hard limit, and ours."""
_MOST_KEPT = _MAX_MESSAGE + 2**28
_MOST_ANSWERS = 1000
_UNREADABLE = (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError)
"""What fields of other types than AMQP's lead to."""
_MOST_SAID = 1000
"""Characters of a reason."""
_TRANSFER_OVERHEAD = 128
_NAME = "dlq-{}"
_WRAP, _ULONG = 2**32, 2**64 - 1
"""Numbers of deliveries and transfers begin anew behind it (RFC 1982)."""
_ERROR_AT = {frames.DETACH: 2, frames.END: 0, frames.CLOSE: 0}
"""Performative -> which of its fields is an error."""
_Refusal = Callable[[str, str], DlqError]
"""(AMQP's name of an error, its text) -> our error."""


class Login(NamedTuple):
    """Who connects. `host` is what OPEN names, `patience` how many seconds each answer may take until a
    session is open, `timeout` what is configured, `unopened` what it may mean that an OPEN is not answered;
    the broker's lists show the `properties`. The setting `named_by` names the `address`."""

    user: str
    password: str
    host: str
    heartbeat: int
    properties: Mapping[str, str]
    patience: float
    timeout: float
    unopened: str = ""
    address: str = "the broker"
    named_by: str = "the configuration"


class Delivery(NamedTuple):
    """A letter as it came. `number` is what its outcome names."""

    number: int
    message: bytes


class Outcome(NamedTuple):
    """What became of a letter that we sent, or of our outcome of one that we got, by its `number`. `fields`
    are those of the outcome, without types; `of_sent`: it is about what we sent; `condition` and `detail` are
    AMQP's name of the error that it holds, and its text."""

    number: int
    code: int
    detail: str
    fields: Sequence[Any] = ()
    of_sent: bool = True
    condition: str = ""


class Link:
    """One link by our handle. `credit` is how many letters may still go over it; `most_bytes` what a letter
    may have."""

    def __init__(self, handle: int, delivery_count: int, most_bytes: int) -> None:
        self.handle, self.delivery_count, self.most_bytes = handle, delivery_count, most_bytes
        self.credit = 0
        self.drained = False
        """The broker has answered our credit: nothing more comes of it."""
        self.asked = self.arrived = 0
        """Letters of the last credit. Where all have arrived, Artemis answers nothing else."""

    @property
    def is_answered(self) -> bool:
        """Nothing more comes of the last credit."""
        return self.drained or self.arrived >= self.asked


class Session(Wire):
    """One connection. `refusal` makes our error of AMQP's; every method may raise it, or LinkLostError, and
    the session is `dead` then."""

    def __init__(self, connected: socket.socket, login: Login, refusal: _Refusal) -> None:
        """Open a session over a socket, which is closed where that fails."""
        patience = WHOLE_ANSWER * login.timeout
        super().__init__(connected, Peer(login.address, "AMQP", login.named_by, patience, math.inf, patience))
        self.heartbeat = _BEAT_SECONDS, frames.HEARTBEAT
        self._refusal, self._reader = refusal, FrameReader()
        self._deliveries: list[Delivery] = []
        self._outcomes: list[Outcome] = []
        self._awaited: dict[bool, set[int]] = {True: set(), False: set()}
        """Numbers whose outcomes the broker has not told, of what we sent (True) and of what we got."""
        self._parts: list[bytes] = []
        self._size = 0
        """Bytes of what came of the letter that is not whole."""
        self._kept = 0
        self._links: dict[int, Link] = {}
        """By the broker's handles."""
        self._answers: list[Frame] = []
        self._next_incoming = self._next_outgoing = self.window = 0
        self._next_delivery = self._next_handle = self._receiving = 0
        try:
            self._shake_hands(login)
        except BaseException:
            self.cut()
            raise

    def _shake_hands(self, login: Login) -> None:
        patience = login.patience
        self.write(frames.SASL_HEADER + frames.sasl_plain(login.user, login.password))
        if self._answer(frames.SASL_OUTCOME, patience).field(0) != 0:
            raise self._refusal("amqp:unauthorized-access", "the user or the password is refused")
        opening = frames.open_connection(login.host, login.heartbeat * 1000, login.properties)
        self.write(frames.AMQP_HEADER + opening + frames.begin_session(MOST_LINKS))
        try:
            opened = self._answer(frames.OPEN, patience)
        except LinkLostError as error:
            why = f": {login.unopened}" if login.unopened else ""
            raise LinkLostError(f"{error}{why}") from error
        begun = self._answer(frames.BEGIN, patience)
        try:
            silent = opened.number(4, int(4000 * _BEAT_SECONDS)) / 4000
            self.frame_max = min(opened.number(2, frames.MAX_FRAME), frames.MAX_FRAME)
            self._next_incoming, self.window = begun.number(1), begun.number(2)
        except FrameError as error:
            raise self.end(error) from error
        self.heartbeat = silent, frames.HEARTBEAT
        if self.frame_max < _LEAST_FRAME:
            raise self.end(f"it takes frames of {self.frame_max} bytes, fewer than AMQP's {_LEAST_FRAME}")

    def attach(self, role: bool, address: str, *wanted: bytes) -> Link:
        """Return a link to receive from, or send to, an address; `wanted`: see `frames.terminus`."""
        return self.attach_to(role, frames.terminus(role, address, *wanted))

    def attach_to(self, role: bool, there: bytes) -> Link:
        """Return a link to receive from, or send to, what is there (`frames.terminus`,
        `frames.COORDINATOR`)."""
        handle, self._next_handle = self._next_handle, self._next_handle + 1
        self.write(frames.attach(_NAME.format(handle), handle, role, there))
        self._answer(frames.ATTACH)
        found = next((link for link in self._links.values() if link.handle == handle), None)
        if found is None:
            raise self.end("it attached another link than it was asked for")
        return found

    def detach(self, link: Link) -> None:
        """End a link; what it has received and not settled goes back."""
        self._links = {theirs: one for theirs, one in self._links.items() if one is not link}
        self.write(frames.detach(link.handle))
        self._answer(frames.DETACH)

    def ask(self, link: Link, letters: int) -> None:
        """Let so many letters come, as far as there are; `link.drained` says that they have."""
        link.drained, link.asked, link.arrived = False, letters, 0
        wanted = frames.credit(link.handle, link.delivery_count, letters)
        self.write(frames.flow(self._next_incoming, self._next_outgoing, wanted))

    def take(self) -> list[Delivery]:
        """Return the letters that have come, in order."""
        taken, self._deliveries, self._kept = self._deliveries, [], sum(map(len, self._parts))
        return taken

    def settle(self, first: int, last: int, outcome: int) -> None:
        """Say what became of letters; the broker's answer is among the `outcomes`."""
        self._awaited[False].update(range(first, last + 1))
        self.write(frames.disposition(first, last, frames.state(outcome), settled=False))

    def await_answers(self) -> None:
        """Wait until the broker has answered all that was settled."""
        self.wait_until(lambda: not self._awaited[False])
        self._outcomes.clear()

    def settle_unanswered(self, first: int, last: int, state: bytes) -> None:
        """Say what became of letters, perhaps in a transaction; the broker does not answer it."""
        self.write(frames.disposition(first, last, state, settled=True))

    def outcomes(self) -> list[Outcome]:
        """Return what has been answered since the last time."""
        taken, self._outcomes = self._outcomes, []
        return taken

    def wait_for_window(self) -> None:
        """Wait until the broker takes another frame."""
        self.wait_until(lambda: self.window > 0)

    def send(self, link: Link, message: bytes, state: bytes = NULL) -> int:
        """Send a letter over a link that has credit; the number that its outcome will name. `state`: the
        transaction that it belongs to."""
        number, self._next_delivery = self._next_delivery, (self._next_delivery + 1) % _WRAP
        self._awaited[True].add(number)
        size = self.frame_max - _TRANSFER_OVERHEAD
        until = outbound.latest(self.patience, len(message))
        for at in range(0, max(len(message), 1), size):
            self.wait_until(lambda: self.window > 0, until=until)
            part, more = message[at : at + size], at + size < len(message)
            self.write(frames.transfer(link.handle, number, part, more, at == 0, state), until)
            self._next_outgoing, self.window = (self._next_outgoing + 1) % _WRAP, self.window - 1
        link.credit -= 1
        link.delivery_count = (link.delivery_count + 1) % _WRAP
        return number

    turn = Wire.read

    def feed(self, data: bytes) -> None:
        """Heed what the broker says."""
        try:
            for frame in self._reader.feed(data):
                self._handle_frame(frame)
        except FrameError:
            raise
        except _UNREADABLE as error:
            raise FrameError(f"a frame that cannot be read ({type(error).__name__})") from error
        check_kept(len(self._answers), _MOST_ANSWERS)

    def _handle_frame(self, frame: Frame) -> None:
        if frame.code in _HEEDED:
            _HEEDED[frame.code](self, frame)
        elif frame.code in _ERROR_AT and (error := frame.field(_ERROR_AT[frame.code])):
            self.dead = True
            raise self._refusal(*_read_error(error))
        elif frame.code:
            self._answers.append(frame)

    def _on_attach(self, frame: Frame) -> None:
        """Note an attach; its credit may come right behind it."""
        ours = int(str(frame.field(0)).removeprefix(_NAME.format("")))
        most = frame.number(10, most=_ULONG) or _MAX_MESSAGE
        self._links[frame.number(1)] = Link(ours, frame.number(9), most)
        self._answers.append(frame)

    def _on_transfer(self, frame: Frame) -> None:
        self._next_incoming = (self._next_incoming + 1) % _WRAP
        link = self._links.get(frame.field(0))
        self._kept += len(frame.payload) + _TRANSFER_OVERHEAD
        self._size += len(frame.payload)
        if link is None or self._kept > _MOST_KEPT or self._size > _MAX_MESSAGE:
            raise FrameError("the broker sends more than it was asked for")
        if link.arrived >= link.asked:
            raise FrameError("the broker sends more letters than it was asked for")
        if not self._parts:
            self._receiving = frame.number(1)
        self._parts.append(frame.payload)
        if not frame.field(5, False):
            parts, self._parts, self._size = self._parts, [], 0
            link.arrived, link.delivery_count = link.arrived + 1, (link.delivery_count + 1) % _WRAP
            self._deliveries.append(Delivery(self._receiving, b"".join(parts)))

    def _on_flow(self, frame: Frame) -> None:
        self.window = _room_left(frame.number(1), frame.number(0), self._next_outgoing)
        link = self._links.get(frame.field(4, -1))
        if link is None:
            return
        link.drained = bool(frame.field(8, False))
        if link.drained:
            link.delivery_count = frame.number(5)
        else:
            link.credit = _room_left(frame.number(6), frame.number(5), link.delivery_count)

    def _on_disposition(self, frame: Frame) -> None:
        """Note a disposition. Of numbers that nobody has sent, or that are answered, it tells nothing."""
        first, state = frame.number(1), frame.field(4)
        code, fields = state if isinstance(state, tuple) else (0, [])
        if code == frames.TRANSACTIONAL and len(fields) > 1 and isinstance(fields[1], tuple):
            code, fields = fields[1]
        condition, detail = _read_error(fields[0] if fields else None)
        of_sent = frame.field(0) is frames.RECEIVER
        awaited = self._awaited[of_sent]
        answered = _select_range(awaited, first, (frame.number(2, first) - first) % _WRAP + 1)
        awaited.difference_update(answered)
        self._outcomes += [Outcome(n, code, detail, fields, of_sent, condition) for n in answered]

    def _answer(self, code: int, patience: float | None = None) -> Frame:
        """Return the next frame with this code; letters and outcomes that come before it are kept."""
        self.wait_until(lambda: any(frame.code == code for frame in self._answers), patience=patience)
        found = next(frame for frame in self._answers if frame.code == code)
        self._answers.remove(found)
        return found

    def say_goodbye(self) -> None:
        """Send CLOSE, which the broker answers."""
        self.write(frames.farewell(frames.CLOSE))
        self._answer(frames.CLOSE)


def _room_left(room: int, first: int, ours: int) -> int:
    """Return what is left of a room for so many, which was given when the broker had `first` of ours. It may
    be made smaller than what is on its way."""
    return max(0, room - (ours - first) % _WRAP)


def _select_range(awaited: set[int], first: int, length: int) -> list[int]:
    """Return which of these numbers lie in a row of so many, however long it is said to be; in order."""
    if length > len(awaited):
        return sorted(number for number in awaited if (number - first) % _WRAP < length)
    row = ((first + place) % _WRAP for place in range(length))
    return [number for number in row if number in awaited]


def _read_error(error: object) -> tuple[str, str]:
    """Return AMQP's name of an error, and its text."""
    fields = error[1] if isinstance(error, tuple) else []
    known = [str(field or "")[:_MOST_SAID] for field in fields[:2]] if isinstance(fields, list) else []
    condition, text, *_ = [*known, "", ""]
    return condition, text


_HEEDED: Mapping[int, Callable[[Session, Frame], None]] = {
    frames.ATTACH: Session._on_attach,
    frames.TRANSFER: Session._on_transfer,
    frames.FLOW: Session._on_flow,
    frames.DISPOSITION: Session._on_disposition,
}
