"""Dead letters of Kafka that tests send back."""

from collections.abc import Mapping
from typing import Any

from support.archives import letter
from support.brokers.kafka.fixtures import KafkaPlace
from support.sending_contract import new_plan, provenance, said

from dlq.connectors.base import Outgoing, Search, SendRequest, Target
from dlq.connectors.kafka.link import fetch
from dlq.connectors.kafka.link.connection import Link
from dlq.connectors.kafka.look.cluster import Cluster, Place
from dlq.connectors.kafka.plugin.connector import KafkaConnector
from dlq.connectors.kafka.records.raw import Headers, RawRecord, encode
from dlq.core.clock import now
from dlq.core.record import Record


def dead(number: int, key: bytes | None = None, headers: Headers = (), **fields: Any) -> Record:
    """A letter as the connector reads it; `fields` of its record."""
    block = encode(RawRecord(key, headers))
    return letter(number, broker_kind="kafka", raw_properties=block, body=b"x", body_size=1, **fields)


def outgoing(number: int, topic: str, plan: str, record: Record | None = None) -> Outgoing:
    """It on its way to a topic."""
    found = record if record is not None else dead(number)
    return Outgoing(number, found, Target("topic", topic), provenance(number, plan))


def headers_by_our_own_connection(cluster: Cluster, topic: str) -> Mapping[int, object]:
    """Offset -> headers of the records of a topic, as we read what the client library cannot say."""
    link = Link(*cluster.leader(Place(topic, 0)), cluster.access)
    answer = link.ask(fetch.API, fetch.VERSION, fetch.request(topic, 0, 0, 2**20))
    link.close()
    return fetch.headers_in(answer)


def search_of(place: KafkaPlace, topic: str) -> Search:
    """For a letter that may go to a topic from now on."""
    plan, since = new_plan(), now()
    return Search(plan, [outgoing(0, topic, plan)], since, place.connector.bounds([Target("topic", topic)]))


def is_in_doubt(place: KafkaPlace, search: Search, why: str) -> bool:
    """Whether nobody knows what became of the letter, for this reason."""
    found = place.connector.find(search)
    return found.shown == {0: "unknown"} and any(why in doubt for doubt in found.doubts)


def sent(connector: KafkaConnector, letters: list[Outgoing]) -> dict[int, str]:
    """Number -> what became of it; there is no error."""
    publisher = connector.publisher(SendRequest("plan", 1000))
    answers, error = said(publisher, iter(letters))
    publisher.close()
    assert error is None
    return {answer.number: answer.outcome for answer in answers}
