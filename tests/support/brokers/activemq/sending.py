"""Letters on their way back into a real ActiveMQ."""

from support.brokers.activemq.broker import ActiveMq
from support.brokers.activemq.fixtures import Place, settings_of

from dlq.connectors.activemq.plugin.connector import ActiveMQConnector
from dlq.connectors.base import Checkpoint, Outgoing, SendRequest, Sent, Target
from dlq.core.record import Record


def outgoing(records: list[Record], target: Target) -> list[Outgoing]:
    """Letters as replay gives them."""
    return [
        Outgoing(
            n, record, target, {"dlq_replay_id": f"{target.name}-{n}", "dlq_replay_of": record.record_id}
        )
        for n, record in enumerate(records)
    ]


def published(place: Place, plan: str, letters: list[Outgoing]) -> list[Sent]:
    """The answers of a run."""
    return run_of(place, plan, letters)[0]


def sent_back(place: Place, records: list[Record], target: Target, plan: str = "") -> list[Outgoing]:
    """Letters that went to a target, each of them confirmed."""
    letters = outgoing(records, target)
    assert {sent.outcome for sent in published(place, plan or place.queue, letters)} == {"confirmed"}
    return letters


def run_of(place: Place, plan: str, letters: list[Outgoing]) -> tuple[list[Sent], Checkpoint]:
    """The answers of a run, and its anchor."""
    publisher = place.connector.publisher(SendRequest(plan, 1000))
    try:
        return list(publisher.publish(iter(letters))), publisher.anchor
    finally:
        publisher.close()


def place_on(broker: ActiveMq) -> Place:
    settings = settings_of(broker)
    return Place(broker, settings, ActiveMQConnector(settings), "letters")
