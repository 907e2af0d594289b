"""Whether targets are there, and whether their letters are consumed.

A declare tells at once how many letters are ready, and nothing of those that consumers hold. The management
API counts acknowledgements, up to one interval of its statistics late.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

import pika
from pika.exceptions import ChannelClosedByBroker

from dlq.connectors.base import Consumption, Gauge, Target, gauge_of
from dlq.connectors.rabbitmq import consumers
from dlq.connectors.rabbitmq.connection import open_connection
from dlq.connectors.rabbitmq.description import RabbitBroker
from dlq.connectors.rabbitmq.management import Management, ManagementError, mapping
from dlq.connectors.rabbitmq.republishing import address_of
from dlq.core.errors import NotFound
from dlq.core.text import for_terminal

_NOT_FOUND = 404
_INTERVAL = 5.0
"""Seconds between statistics where nothing else is configured (collect_statistics_interval)."""
_DONE = ("ack", "deliver_no_ack", "get_no_ack")


def consumption(broker: RabbitBroker, targets: Sequence[Target]) -> Mapping[Target, Sequence[Consumption]]:
    """See `Connector.consumption`. An exchange's queues are known from the management API alone."""
    reached = receivers(broker, targets)
    names = {name for queues in reached.values() for name in queues}
    acknowledged = _acknowledged(told(broker, names)[0])
    with open_connection(broker) as connection:
        known = {one.receiver: one for one in _declared(connection, names, acknowledged)}
    found = {target: [known[name] for name in queues if name in known] for target, queues in reached.items()}
    return {target: queues for target, queues in found.items() if queues}


def gauge(broker: RabbitBroker, names: Sequence[str]) -> Gauge:
    """How many letters these queues have. Raises NotFound when one is not there."""
    shown, trouble = told(broker, names)
    with open_connection(broker) as connection:
        found = list(_declared(connection, names, _acknowledged(shown)))
    if len(found) < len(names):
        gone = sorted(set(names) - {one.receiver for one in found})
        raise NotFound(for_terminal(f"{broker.name}: there is no queue {', '.join(gone)}"))
    filled = [shown.get(one.receiver, {}).get("head_message_timestamp") for one in found if one.waiting]
    oldest = [moment * 1_000_000 for moment in filled if isinstance(moment, int)]
    known = oldest if len(oldest) == len(filled) else []
    return gauge_of(found, known)._replace(note=trouble)


def missing(broker: RabbitBroker, targets: Sequence[Target]) -> Mapping[Target, str]:
    """See `Connector.missing`. The default exchange is always there."""
    found: dict[Target, str] = {}
    with open_connection(broker) as connection:
        for target in targets:
            exchange, queue = address_of(target)
            channel = connection.channel()
            try:
                if exchange:
                    channel.exchange_declare(exchange, passive=True)
                else:
                    channel.queue_declare(queue, passive=True)
                channel.close()
            except ChannelClosedByBroker as refused:
                if refused.reply_code == _NOT_FOUND:
                    what = f"exchange {exchange}" if exchange else f"queue {queue}"
                    found[target] = for_terminal(f"there is no {what}")
    return found


def receivers(broker: RabbitBroker, targets: Sequence[Target]) -> Mapping[Target, Sequence[str]]:
    """The queues that each target reaches; of an exchange only where the management API shows it."""
    queues = {target: [target.name] for target in targets if target.kind == "queue"}
    exchanges = [target for target in targets if target.kind != "queue"]
    try:
        return {**queues, **(consumers.consumers_of(broker, exchanges) if exchanges else {})}
    except ManagementError:
        return queues


def _declared(
    connection: pika.BlockingConnection, names: Iterable[str], acknowledged: Mapping[str, int]
) -> Iterator[Consumption]:
    """A queue that is not there closes its channel, so each has one of its own."""
    for name in names:
        channel = connection.channel()
        try:
            found = channel.queue_declare(name, passive=True).method
        except ChannelClosedByBroker:
            continue
        channel.close()
        known = acknowledged.get(name)
        age = 0.0 if known is None else _INTERVAL
        yield Consumption(name, found.message_count, found.consumer_count, known, age)


def told(broker: RabbitBroker, names: Iterable[str]) -> tuple[Mapping[str, Mapping[str, Any]], str]:
    """The queues as the management API shows them; none, and why, where it does not answer."""
    if not broker.management_url:
        return {}, ""
    with closing(Management(broker)) as management:
        try:
            return {name: management.get("queues", management.vhost, name) or {} for name in names}, ""
        except ManagementError as error:
            return {}, str(error)


def _acknowledged(told: Mapping[str, Mapping[str, Any]]) -> Mapping[str, int]:
    """By queue; those of which the management API counts nothing are absent."""
    counts = {
        name: mapping(queue.get("message_stats")) for name, queue in told.items() if "messages" in queue
    }
    return {name: sum(int(count.get(done, 0)) for done in _DONE) for name, count in counts.items()}
