"""Letters on their way back into a real RocketMQ."""

from collections.abc import Iterable, Sequence
from contextlib import suppress

from support.brokers.rocketmq.broker import RocketMQ
from support.brokers.rocketmq.driver import Driver, unique_key

from dlq.connectors.base import Checkpoint, Outgoing, Presence, Proof, Search, SendRequest, Sent, Target
from dlq.connectors.rocketmq.link.remoting import RequestCode
from dlq.connectors.rocketmq.plugin.connector import RocketConnector
from dlq.core.clock import now
from dlq.core.errors import Unreachable
from dlq.core.record import Record


def outgoing(records: Iterable[Record], target: Target, since: int = 0) -> list[Outgoing]:
    """Letters as replay gives them; other replay ids with another `since`."""
    return [
        Outgoing(
            i,
            record,
            target,
            {"dlq_replay_id": f"{since + i:032x}", "dlq_replay_lap": "1", "dlq_replay_of": record.record_id},
        )
        for i, record in enumerate(records)
    ]


def published(connector: RocketConnector, letters: Iterable[Outgoing], window: int = 64) -> list[Sent]:
    """What is answered, in the order of the letters."""
    publisher = connector.publisher(SendRequest("plan", window))
    try:
        return sorted(publisher.publish(iter(letters)))
    finally:
        publisher.close()


def sent_back(connector: RocketConnector, record: Record, to: str) -> Outgoing:
    """A letter that went where `to` says, and was confirmed."""
    target = connector.target_of(record, to)
    assert target is not None
    [letter] = outgoing([record], target, now())
    [sent] = published(connector, [letter])
    assert sent.outcome == "confirmed", sent.detail
    return letter


def found(
    connector: RocketConnector, letters: Sequence[Outgoing], before: Checkpoint, since: int | None = None
) -> Proof:
    """What is found of letters by what was noted before."""
    return connector.find(Search("plan", letters, now() if since is None else since, before))


def shown(connector: RocketConnector, letters: Sequence[Outgoing], before: Checkpoint) -> list[Presence]:
    """The same of each, in their order."""
    proof = found(connector, letters, before).shown
    return [proof[letter.number] for letter in letters]


def is_master(connector: RocketConnector) -> bool:
    """Whether a leader is known."""
    with suppress(Unreachable):
        return bool(connector.cluster.masters(refresh=True))
    return False


def sent_on(cluster: RocketMQ, topic: str) -> bool:
    """Whether a broker takes one more message of somebody else's."""
    driver = Driver(cluster.addresses["broker-a"])
    fields = driver.send_fields(topic, {"UNIQ_KEY": unique_key()})
    is_sent = driver.link.call(RequestCode.SEND_V2, fields, b"other").code == 0
    driver.close()
    return is_sent
