"""The private queues of a rehearsal: one that the consumer under test reads, and one for what dies in it.

The second is named, and declared, as MassTransit does with a queue's errors, which then land there, too.
"""

from typing import Any

from pika import spec

from dlq.connectors.base import Private, Target
from dlq.connectors.rabbitmq.amqp091.link.questions import questions
from dlq.connectors.rabbitmq.plugin.description import RabbitBroker
from dlq.core.errors import name_rights

_DENIED = (
    "a rehearsal makes, fills, reads and deletes dlq.rehearsal.*; grant configure, write and read on dlq.*"
)
_POINT = (
    'Spring: @RabbitListener(queues = "{0}"), with default-requeue-rejected=false: else it never stops',
    'MassTransit: ReceiveEndpoint("{0}", e => {{ e.ConfigureConsumeTopology = false;',
    '    e.SetQueueArgument("x-dead-letter-exchange", "");',
    '    e.SetQueueArgument("x-dead-letter-routing-key", "{1}");',
    "    e.ConfigureConsumer<YourConsumer>(context); }})",
    'Java: channel.basicConsume("{0}", false, consumer); refuse with channel.basicReject(tag, false)',
    'Go: channel.Consume("{0}", "", false, false, false, false, nil); refuse with d.Nack(false, false)',
)


class RabbitPrivate(Private):
    """See `Private`."""

    def __init__(self, broker: RabbitBroker, name: str) -> None:
        dead = f"{name}_error"
        point = [line.format(name, dead) for line in _POINT]
        super().__init__(Target("queue", name), {"queue": name}, {"queue": dead}, point)
        self._broker, self._name, self._dead = broker, name, dead

    def make(self) -> None:
        """Declare both queues; what dies in the one lands in the other."""
        to_dead: dict[str, Any] = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": self._dead}
        with name_rights(_DENIED), questions(self._broker) as asking:
            asking.ask(spec.Queue.Declare(queue=self._dead, durable=True))
            asking.ask(spec.Queue.Declare(queue=self._name, durable=True, arguments=to_dead))

    def remove(self) -> None:
        """Delete both, and the exchanges that MassTransit makes beside them; the broker takes that for done
        where there are none."""
        with name_rights(_DENIED), questions(self._broker) as asking:
            for name in (self._name, self._dead):
                asking.ask(spec.Queue.Delete(queue=name))
                asking.ask(spec.Exchange.Delete(exchange=name))
