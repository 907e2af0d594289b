"""A blocking AMQP 0-9-1 connection with one channel, for reading: pika's methods over our own loop.

The loop reads the socket only when it is asked to, so a slow disk slows the broker down (TCP does
that) instead of filling memory, and nothing is ever rejected behind the caller's back: pika's own
cancel and close reject what they have buffered, which burns a quorum queue's delivery limit.
"""

import contextlib
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any

import pika
from pika import spec

from dlq.connectors.net import outbound
from dlq.connectors.net.links import ConsumerEndedError, LinkLostError, is_pause
from dlq.connectors.rabbitmq.amqp091.codec.frames import (
    HEARTBEAT,
    MAX_FRAME,
    Delivery,
    FrameError,
    FrameReader,
    encode_method,
)
from dlq.core.errors import ConnectionLost, DlqError

_PATIENCE = 6
"""Time-outs that an answer may take."""
_RECEIVE_BYTES = 256 * 1024
_CHANNEL = 1
_CAPABILITIES = {
    "authentication_failure_close": True,
    "basic.nack": True,
    "connection.blocked": True,
    "consumer_cancel_notify": True,
    "publisher_confirms": True,
}


class Link:
    """One connection and its one channel. `refusal` makes our error of a reply code and text.

    Every method may raise what `refusal` gives, or LinkLostError; the link is `dead` then.
    """

    def __init__(
        self, choices: Sequence[pika.ConnectionParameters], refusal: Callable[[int, str], DlqError]
    ) -> None:
        """Connect to the first of `choices` that lets us; raises OSError or LinkLostError when none does.

        A node that hangs, or that is being stopped, may still take a connection: then the next one is tried.
        """
        self._refusal = refusal
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
        self._frames = FrameReader()
        self._inbox: list[bytes] = []
        self._last_sent = time.monotonic()
        self.dead = self.was_lost = False
        self.server_version = ""
        self.frame_max = MAX_FRAME
        self.heartbeat = float(choice.heartbeat)
        self._patience = _PATIENCE * float(choice.socket_timeout)
        self.choice = choice
        self._socket = _one_connected(choice)
        try:
            self._shake_hands(choice)
        except BaseException:
            self._socket.close()
            raise

    def _shake_hands(self, parameters: pika.ConnectionParameters) -> None:
        self._send(b"AMQP\0\0\x09\x01")
        patience = parameters.stack_timeout
        start = self._answer(spec.Connection.Start, patience)
        self.server_version = str((start.server_properties or {}).get("version", ""))
        mechanism, response = parameters.credentials.response_for(start)
        properties = {**(parameters.client_properties or {}), "capabilities": _CAPABILITIES}
        self._send(encode_method(0, spec.Connection.StartOk(properties, mechanism, response, "en_US")))
        tune = self._answer(spec.Connection.Tune, patience)
        self.frame_max = min(tune.frame_max or MAX_FRAME, MAX_FRAME)
        self._send(
            encode_method(0, spec.Connection.TuneOk(tune.channel_max, self.frame_max, int(self.heartbeat)))
        )
        self._send(encode_method(0, spec.Connection.Open(parameters.virtual_host, insist=True)))
        self._answer(spec.Connection.OpenOk, patience)
        self.open_channel()

    def open_channel(self) -> None:
        """Open the channel (again, after an error of the broker's closed it)."""
        self._send(encode_method(_CHANNEL, spec.Channel.Open()))
        self._answer(spec.Channel.OpenOk)
        self.dead = False

    def call(self, method: Any, answer: Any) -> Any:
        """Send a method and wait for its `answer`; deliveries that come before it are kept."""
        self.send(method)
        return self._answer(answer)

    def send(self, method: Any) -> None:
        """Send a method that has no answer."""
        self._send(encode_method(_CHANNEL, method))

    def take_deliveries(self, most: int) -> list[Delivery]:
        """Up to `most` deliveries that have come, in order."""
        return self._frames.take(most)

    @property
    def unfinished_bytes(self) -> int:
        """Bytes of a delivery that has not come wholly."""
        return self._frames.unfinished_bytes

    def receive(self, seconds: float) -> bool:
        """Read the socket once, waiting at most `seconds`; whether anything came but heartbeats."""
        if time.monotonic() - self._last_sent > self.heartbeat / 2:
            self._send(HEARTBEAT)
        try:
            self._wait_at_most(max(seconds, 0.001))
            # One step for the interpreter: Ctrl-C comes before bytes are taken or after they are kept.
            self._inbox.extend(map(self._socket.recv, (_RECEIVE_BYTES,)))
        except OSError as error:
            if is_pause(error):
                return False
            self.dead = True
            raise LinkLostError(str(error)) from error
        self._take_in()
        self._heed()
        return self._frames.has_progressed()

    def _wait_at_most(self, seconds: float) -> None:
        """Only where it changes: each system call gives the interpreter away to the thread that writes."""
        if self._socket.gettimeout() != seconds:
            self._socket.settimeout(seconds)

    def _take_in(self) -> None:
        """Cut what has come into frames. What ends this early leaves half a frame: the link is dead."""
        try:
            while self._inbox:
                data = self._inbox.pop(0)
                if not data:
                    raise LinkLostError("the broker closed the connection without a word")
                self._frames.feed(data)
        except FrameError as error:
            self.dead = True
            hint = "" if self.server_version else "; is this the AMQP port?"
            raise LinkLostError(f"{error}{hint}") from error
        except BaseException:
            self.dead = True
            raise

    def _heed(self) -> None:
        """Methods that end the channel or the connection come unasked."""
        for channel, method in self._frames.methods:
            if isinstance(method, spec.Connection.Close | spec.Channel.Close):
                self.dead = True
                self._frames.methods.clear()
                of_channel = isinstance(method, spec.Channel.Close)
                with contextlib.suppress(LinkLostError):
                    self._send(
                        encode_method(channel, (spec.Channel if of_channel else spec.Connection).CloseOk())
                    )
                raise self._refusal(method.reply_code, str(method.reply_text))
            if isinstance(method, spec.Basic.Cancel):
                raise ConsumerEndedError(
                    "the broker cancelled the consumer: the queue was deleted or has moved"
                )

    def _answer(self, wanted: Any, patience: float | None = None) -> Any:
        seconds = patience or self._patience
        deadline = time.monotonic() + seconds
        while True:
            for index, (_, method) in enumerate(self._frames.methods):
                if isinstance(method, wanted):
                    del self._frames.methods[: index + 1]
                    return method
            if time.monotonic() > deadline:
                self.dead = True
                raise LinkLostError(f"no answer within {seconds:g} s")
            self.receive(1.0)

    def _send(self, data: bytes) -> None:
        try:
            self._wait_at_most(self._patience)
            self._socket.sendall(data)
        except OSError as error:
            self.dead = True
            raise LinkLostError(str(error)) from error
        except BaseException:
            self.dead = True
            raise
        self._last_sent = time.monotonic()

    def close(self) -> None:
        """Close channel and connection; never raises."""
        self.was_lost = self.dead
        if not self.dead:
            with contextlib.suppress(LinkLostError, DlqError):
                self.call(spec.Channel.Close(200, "done", 0, 0), spec.Channel.CloseOk)
                self._send(encode_method(0, spec.Connection.Close(200, "done", 0, 0)))
                self._answer(spec.Connection.CloseOk)
        self.dead = True
        outbound.close(self._socket)


def connect_first(
    choices: Sequence[pika.ConnectionParameters],
) -> tuple[socket.socket, pika.ConnectionParameters]:
    """A socket to the first of `choices` that lets us, and which that is. Raises OSError."""
    for parameters in choices:
        try:
            return _one_connected(parameters), parameters
        except OSError:
            if parameters is choices[-1]:
                raise
    raise ValueError("no host to connect to")


def _one_connected(parameters: pika.ConnectionParameters) -> socket.socket:
    plain = socket.create_connection((parameters.host, parameters.port), parameters.socket_timeout)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (parameters.tcp_options or {}).items():
        if hasattr(socket, option):
            plain.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    if parameters.ssl_options is None:
        return plain
    options = parameters.ssl_options
    try:
        wrapped: socket.socket = options.context.wrap_socket(plain, server_hostname=options.server_hostname)
    except BaseException:
        plain.close()
        raise
    return wrapped
