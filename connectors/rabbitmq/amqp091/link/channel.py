"""A blocking AMQP 0-9-1 connection with one channel: pika's methods over our own wire.

The socket is read only when it is asked to, so a slow disk slows the broker down (TCP does that) instead of
filling memory, and nothing is ever rejected behind the caller's back: pika's own cancel and close reject what
they have buffered, which burns a quorum queue's delivery limit.
"""

import contextlib
import math
import socket
from collections.abc import Callable, Sequence
from typing import Any

import pika
from pika import spec
from pika.exceptions import AMQPError

from dlq.connectors import wire
from dlq.connectors.net.links import ConsumerEndedError, LinkLostError
from dlq.connectors.rabbitmq.amqp091.codec.frames import (
    HEARTBEAT,
    MAX_FRAME,
    Delivery,
    FrameReader,
    encode_method,
)
from dlq.connectors.wire import Peer, Wire
from dlq.core.errors import ConnectionLost
from dlq.core.runtime.patience import WHOLE_ANSWER

_CHANNEL, _NOT_FOUND = 1, 404
_OF_ALARMS = (spec.Connection.Blocked, spec.Connection.Unblocked)
_ALARM = "an alarm of the broker's ({}) blocks publishers; free memory or disk there"
_CAPABILITIES = {
    "authentication_failure_close": True,
    "basic.nack": True,
    "connection.blocked": True,
    "consumer_cancel_notify": True,
    "publisher_confirms": True,
}


class Link(Wire):
    """One connection and its one channel. `refusal` makes our error of a reply code and text.

    Every method may raise what `refusal` gives, or LinkLostError; the link is `dead` then.
    """

    unsaid = "; check that this is the AMQP port"

    def __init__(
        self, choices: Sequence[pika.ConnectionParameters], refusal: Callable[[int, str], Exception]
    ) -> None:
        """Connect to the first of `choices` that lets us; raises OSError or LinkLostError when none does.

        A node that hangs, or that is being stopped, may still take a connection: then the next one is tried.
        """
        self.refusal = refusal
        for choice in choices:
            try:
                self._connect(choice)
            except (OSError, LinkLostError, ConnectionLost):
                if choice is choices[-1]:
                    raise
            else:
                return
        raise ValueError("no host to connect to")

    def _connect(self, choice: pika.ConnectionParameters) -> None:
        patience = WHOLE_ANSWER * float(choice.socket_timeout)
        address = f"{choice.host}:{choice.port}"
        super().__init__(connect(choice), Peer(address, "AMQP", "its url", patience, math.inf, patience))
        self._frames = FrameReader()
        self.was_lost = self.channel_closed = False
        self.server_version = ""
        self.frame_max = MAX_FRAME
        self.heartbeat = choice.heartbeat / 2, HEARTBEAT
        self.choice = choice
        try:
            self._shake_hands(choice)
        except BaseException:
            self.cut()
            raise

    def _shake_hands(self, parameters: pika.ConnectionParameters) -> None:
        self.write(b"AMQP\0\0\x09\x01")
        patience = parameters.stack_timeout
        start = self.answer(spec.Connection.Start, patience)
        self.server_version = str((start.server_properties or {}).get("version", ""))
        mechanism, response = parameters.credentials.response_for(start)
        if mechanism is None:
            raise self.end("it takes no password: is PLAIN among auth_mechanisms of the node?")
        properties = {**(parameters.client_properties or {}), "capabilities": _CAPABILITIES}
        self.write(encode_method(0, spec.Connection.StartOk(properties, mechanism, response, "en_US")))
        tune = self.answer(spec.Connection.Tune, patience)
        self.frame_max = min(tune.frame_max or MAX_FRAME, MAX_FRAME)
        agreed = spec.Connection.TuneOk(tune.channel_max, self.frame_max, int(parameters.heartbeat))
        self.write(encode_method(0, agreed))
        self.write(encode_method(0, spec.Connection.Open(parameters.virtual_host, insist=True)))
        self.answer(spec.Connection.OpenOk, patience)
        self.open_channel()

    def open_channel(self) -> None:
        """Open the channel (again, after an error of the broker's closed it)."""
        self.dead = self.channel_closed = False
        self.call(spec.Channel.Open(), spec.Channel.OpenOk)

    def close_channel(self) -> None:
        """Close it: what was consumed and is not acknowledged goes back."""
        self.call(spec.Channel.Close(200, "done", 0, 0), spec.Channel.CloseOk)
        self.channel_closed = True

    def call(self, method: Any, answer: Any) -> Any:
        """Send a method and wait for its `answer`; deliveries that come before it are kept."""
        self.send(method)
        return self.answer(answer)

    def find_queue(self, name: str) -> spec.Queue.DeclareOk:
        """Return how many letters and consumers a queue has that is there."""
        return self.call(spec.Queue.Declare(queue=name, passive=True), spec.Queue.DeclareOk)

    def send(self, method: Any) -> None:
        """Send a method that has no answer. A name that RabbitMQ cannot have is one of nothing."""
        try:
            frame = encode_method(_CHANNEL, method)
        except (AMQPError, UnicodeError) as error:
            raise self.refusal(_NOT_FOUND, "a name is text of at most 255 bytes in UTF-8") from error
        self.write(frame)

    def take_deliveries(self, most: int) -> list[Delivery]:
        """Take up to `most` deliveries that have come, in order."""
        return self._frames.take(most)

    @property
    def untaken(self) -> int:
        """Deliveries that have come and are not taken."""
        return len(self._frames.deliveries)

    @property
    def unfinished_bytes(self) -> int:
        """Bytes of a delivery that has not come wholly."""
        return self._frames.unfinished_bytes

    def receive(self, seconds: float) -> bool:
        """Read the socket once, waiting at most `seconds`, or not where deliveries are to be taken; whether
        anything came but heartbeats."""
        return self.read(0 if self.untaken else seconds) and self._frames.has_progressed()

    def feed(self, data: bytes) -> None:
        """Feed deliveries and methods."""
        self._frames.feed(data)

    def read(self, wait: float) -> bool:
        """See `Wire`. Methods that end the channel or the connection come unasked."""
        came = super().read(wait)
        if came:
            self._handle_close()
        return came

    def _handle_close(self) -> None:
        is_ended = any(isinstance(method, spec.Basic.Cancel) for _, method in self._frames.methods)
        for channel, method in self._frames.methods:
            if isinstance(method, spec.Connection.Close | spec.Channel.Close):
                self._frames.methods.clear()
                of_channel = isinstance(method, spec.Channel.Close)
                with contextlib.suppress(LinkLostError):
                    closed = (spec.Channel if of_channel else spec.Connection).CloseOk()
                    self.write(encode_method(channel, closed))
                self.dead, self.channel_closed = True, of_channel
                if not is_ended:
                    raise self.refusal(method.reply_code, str(method.reply_text))
        if is_ended:
            raise ConsumerEndedError("the broker cancelled the consumer: the queue was deleted or has moved")

    def answer(self, wanted: Any, patience: float | None = None) -> Any:
        """Return the next method of this type, or of these; what comes before it is forgotten. A connection
        that has published is not answered during an alarm."""

        def place() -> int:
            methods = enumerate(self._frames.methods)
            return next((n for n, (_, method) in methods if isinstance(method, wanted)), -1)

        self.wait_until(lambda: place() >= 0 or self._alarm() is not None, patience=patience)
        if (index := place()) < 0:
            raise LinkLostError(_ALARM.format(self._alarm()))
        _, method = self._frames.methods[index]
        del self._frames.methods[: index + 1]
        return method

    def _alarm(self) -> str | None:
        """Return the reason of an alarm for which the broker does not read this connection."""
        told = [method for _, method in self._frames.methods if isinstance(method, _OF_ALARMS)]
        return str(told[-1].reason) if told and isinstance(told[-1], spec.Connection.Blocked) else None

    def say_goodbye(self) -> None:
        """Close channel and connection."""
        if not self.channel_closed:
            self.close_channel()
        self.write(encode_method(0, spec.Connection.Close(200, "done", 0, 0)))
        self.answer(spec.Connection.CloseOk)

    def close(self) -> None:
        """Close channel and connection; never raises."""
        self.was_lost = self.dead
        super().close()


def connect_first(
    choices: Sequence[pika.ConnectionParameters],
) -> tuple[socket.socket, pika.ConnectionParameters]:
    """Return a socket to the first of `choices` that lets us, and which that is. Raises OSError."""
    for choice in choices:
        try:
            return connect(choice), choice
        except OSError:
            if choice is choices[-1]:
                raise
    raise ValueError("no host to connect to")


def connect(choice: pika.ConnectionParameters) -> socket.socket:
    """Connect to one host. Raises OSError."""
    context = choice.ssl_options.context if choice.ssl_options else None
    return wire.connect(choice.host, choice.port, choice.socket_timeout, context)
