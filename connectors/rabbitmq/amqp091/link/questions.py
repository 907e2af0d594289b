"""Questions to RabbitMQ and small things, one after the other; a refused one does not end the others."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pika import spec

from dlq.connectors import deadline
from dlq.connectors.local.credentials import log_in
from dlq.connectors.net.links import LinkLostError
from dlq.connectors.rabbitmq.amqp091.codec.confirms import message
from dlq.connectors.rabbitmq.amqp091.link.channel import Link
from dlq.connectors.rabbitmq.link import connecting, connection_lost, parameters, refusal
from dlq.connectors.rabbitmq.plugin.description import RabbitBroker
from dlq.core.errors import DlqError

_MOST_SECONDS = 60.0
"""That an answer may take."""
_NO_PROPERTIES = b"\0\0"
_NOT_TAKEN, _DENIED = 311, 403


class Refused(Exception):
    """The broker's no to one question. `Questions.translate` makes our error of it."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{text} ({code})")
        self.code, self.text = code, text


class Questions:
    """A connection with one channel, which the broker closes over what it refuses: it is opened again then. A
    user, or a connection, may have very few."""

    def __init__(self, broker: RabbitBroker, most_seconds: float = _MOST_SECONDS) -> None:
        """Raise a DlqError that names the broker."""
        self._broker = broker
        self._link = log_in(broker, self._connect)
        self._link.patience = min(self._link.patience, most_seconds)
        self._link.refusal = Refused
        self.version = self._link.server_version

    def _connect(self) -> Link:
        with connecting(self._broker):
            return Link(parameters(self._broker), lambda code, text: refusal(code, text, self._broker))

    @property
    def is_open(self) -> bool:
        """Whether more can be asked."""
        return self._link.channel_closed or not self._link.dead

    def translate(self, error: Refused | LinkLostError) -> DlqError:
        """Return one of our errors; raise it `from error`."""
        if isinstance(error, Refused):
            return refusal(error.code, error.text, self._broker)
        return connection_lost(error, self._broker)

    def ask(self, method: Any) -> Any:
        """Return the answer to a method. Raises Refused, LinkLostError."""
        group, _, name = method.NAME.partition(".")
        return self._on_channel(lambda link: link.call(method, getattr(getattr(spec, group), f"{name}Ok")))

    def queue(self, name: str) -> Any:
        """Return DeclareOk of a queue that is there."""
        return self.ask(spec.Queue.Declare(queue=name, passive=True))

    def exchange(self, name: str) -> None:
        """Ask for an exchange. Raises Refused where there is none."""
        self.ask(spec.Exchange.Declare(exchange=name, type="direct", passive=True))

    def publish(self, exchange: str, key: str = "", block: bytes = _NO_PROPERTIES) -> None:
        """Publish an empty message; the answer to the next question tells what became of it."""
        self._on_channel(lambda link: link.write(message(exchange, key, block, b"", link.frame_max)))

    def publish_surely(self, exchange: str, key: str, block: bytes) -> None:
        """Publish like `publish`; Refused where the broker has not taken and routed it."""
        self.ask(spec.Confirm.Select())
        self.publish(exchange, key, block)
        answers = spec.Basic.Ack, spec.Basic.Nack, spec.Basic.Return
        if not isinstance(answer := self._on_channel(lambda link: link.answer(answers)), spec.Basic.Ack):
            raise Refused(_NOT_TAKEN, f"{answer.NAME} instead of an ack")

    def _on_channel(self, step: Callable[[Link], Any]) -> Any:
        deadline.check("RabbitMQ")
        if self._link.channel_closed:
            self._link.open_channel()
        return step(self._link)

    def is_let(self, step: Callable[["Questions"], object], refused: tuple[int, ...] = (_DENIED,)) -> bool:
        """Return whether the broker lets the user do this: any answer but these codes. Nothing stays."""
        try:
            step(self)
        except Refused as no:
            return no.code not in refused
        self._link.close_channel()
        return True

    def close(self) -> None:
        """Close in order; never raises."""
        self._link.dead = not self.is_open
        self._link.close()


@contextmanager
def questions(broker: RabbitBroker, most_seconds: float = _MOST_SECONDS) -> Iterator[Questions]:
    """A connection for some questions, closed after them. Raises a DlqError that names the broker."""
    asking = Questions(broker, most_seconds)
    try:
        yield asking
    except (Refused, LinkLostError) as error:
        raise asking.translate(error) from error
    finally:
        asking.close()
