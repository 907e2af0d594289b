"""Reading partitions, without a broker: what comes is taken once, and nothing is given up too early."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message
from support.rows import each_row
from support.waiting import PATIENCE

from dlq.connectors.base import Gap, ReadRequest
from dlq.connectors.kafka.look.cluster import Cluster, Log, Place, Topic
from dlq.connectors.kafka.plugin.description import KafkaBroker, KafkaSource
from dlq.connectors.kafka.prove.search import find_between
from dlq.connectors.kafka.read.partitions import KafkaReading
from dlq.connectors.kafka.read.snapshot import plan_of
from dlq.core.errors import BrokerError, NotFound

DEAD, FIRST, SECOND = Topic("dead", "4nLo", 2), Place("dead", 0), Place("dead", 1)


class Partitions:
    """A cluster and its consumer: from where it is asked to read, and what comes."""

    id, name = "cluster", "shop"

    def __init__(self, *batches: Sequence[Message]) -> None:
        self._batches, self.starts = deque(batches), list[tuple[int, ...]]()
        self.shown = {"dead": DEAD}

    def consumer(self, *_: object) -> "Partitions":
        return self

    def close(self) -> None:
        """No connection is held."""

    def assign(self, places: Sequence[Any]) -> None:
        self.starts.append(tuple(place.offset for place in places))

    def incremental_unassign(self, _places: object) -> None:
        """A partition is done with."""

    def fetch(self, _consumer: object, _most: int) -> Sequence[Message]:
        return self._batches.popleft()

    def find_topic(self, name: str) -> Topic | None:
        return self.shown.get(name)

    def topic(self, name: str) -> Topic:
        return self.shown[name]

    def topics(self, names: Iterable[str]) -> dict[str, Topic]:
        return {name: self.shown[name] for name in names if name in self.shown}

    def logs(self, _topics: object) -> list[Log]:
        return [Log(FIRST, 2, 3, 3), Log(SECOND, 0, 3, 3)]

    def is_silent(self, _since: float) -> bool:
        return not self._batches[0]

    def trouble(self, error: KafkaError, where: str) -> BrokerError:
        return NotFound(f"{where}: {error.name()}")

    def leader(self, place: Place) -> Any:
        raise BrokerError(f"nobody leads {place}, so the client library's headers are taken")


def message(place: Place, offset: int) -> Message:
    return Message(*place, offset, None, b"%d" % offset, None, None, (1, 1))


def test_what_comes_with_the_news_that_retention_was_faster_is_taken_once() -> None:
    """All partitions are read anew from there, and so are those whose letters came in the same batch."""
    gone = Message(*FIRST, error=KafkaError(KafkaError._AUTO_OFFSET_RESET))
    second = [message(SECOND, offset) for offset in range(3)]
    cluster: Any = Partitions([gone, *second[:2]], second[:1], [second[1], message(FIRST, 2), second[2]])
    plan = plan_of("cluster", [DEAD], [Log(FIRST, 0, 3, 3), Log(SECOND, 0, 3, 3)], {})
    request = ReadRequest(KafkaSource("s", "shop", topic="dead"), "drain", "p")
    reading = KafkaReading(cluster, request, plan, {}, {"dead": "4nLo"}, None)
    batches = [*reading.batches()]
    found = [(one.queue_id, one.offset) for batch in batches for one in batch.records]
    assert found == [(1, 0), (1, 1), (0, 2), (1, 2)]
    assert [gap for batch in batches for gap in batch.gaps] == [
        Gap("dead-0", 0, 2, "dead@cluster/4nLo:0", is_counted=True)
    ]
    assert (cluster.starts, reading.snapshot, batches[-1].position) == ([(0, 0), (2, 0)], 6, 4)


def test_what_a_limit_has_no_room_for_is_left_to_the_next_pull() -> None:
    """Behind it come the ends of partitions, by which all before them would be known."""
    end = Message(*FIRST, offset=3, error=KafkaError(KafkaError._PARTITION_EOF))
    cluster: Any = Partitions([message(FIRST, 0), message(FIRST, 1), end])
    plan = plan_of("cluster", [DEAD], [Log(FIRST, 0, 3, 3)], {})
    request = ReadRequest(KafkaSource("s", "shop", topic="dead"), "drain", "p", limit=1)
    reading = KafkaReading(cluster, request, plan, {}, {"dead": "4nLo"}, None)
    [batch] = reading.batches()
    assert [one.offset for one in batch.records] == [0]
    assert batch.checkpoint == {"dead@cluster/4nLo:0": 1}
    assert (cluster.starts, reading.snapshot) == ([(0,), (1,)], 3), "what is read goes on from there"


NOT_THERE = Message(*FIRST, error=KafkaError(KafkaError.TOPIC_EXCEPTION))


@pytest.mark.parametrize("last", [[NOT_THERE], []])
def test_a_topic_that_is_not_shown_any_more_is_not_gone(last: list[Message]) -> None:
    """A broker that has just started may know none: the next pull goes on where this one ended."""
    cluster: Any = Partitions([message(FIRST, 0)], last, [])
    plan = plan_of("cluster", [DEAD], [Log(FIRST, 0, 3, 3), Log(SECOND, 0, 3, 3)], {})
    request = ReadRequest(KafkaSource("s", "shop", topic="dead"), "drain", "p")
    reading = KafkaReading(cluster, request, plan, {}, {"dead": "4nLo"}, None)
    found, cluster.shown = [next(batches := reading.batches())], {}
    with pytest.raises(NotFound, match="dead is not shown any more"):
        found += batches
    reached = {key: at for batch in found for key, at in batch.checkpoint.items()}
    assert (reached, [gap for batch in found for gap in batch.gaps]) == ({"dead@cluster/4nLo:0": 1}, [])


def test_what_a_new_leader_shows_for_a_moment_is_not_the_end_of_a_search() -> None:
    early = Message(*FIRST, offset=1, error=KafkaError(KafkaError._PARTITION_EOF))
    late = Message(*FIRST, 2, None, b"", [("dlq_replay_id", b"mine")])
    of_no_partition = Message("", 0, error=KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))
    cluster: Any = Partitions([of_no_partition, message(FIRST, 0), early], [message(FIRST, 1), late])
    assert find_between(cluster, {FIRST: (0, 3)}, {b"mine"}, committed=True) == {b"mine"}


@each_row(("answers", "found"), [([True], True), ([False, False, True], True), ([False] * 99, False)])
def test_a_topic_is_not_there_where_it_is_not_for_a_while(
    monkeypatch: pytest.MonkeyPatch, answers: list[bool], found: bool
) -> None:
    """A broker that has just started may know none: what was not read of it would be given up for ever."""
    told: Iterator[bool] = iter(answers)

    def tell(_cluster: Cluster, name: str) -> Topic:
        if next(told):
            return DEAD
        raise NotFound(name)

    monkeypatch.setattr(Cluster, "topic", tell)
    monkeypatch.setattr("dlq.core.runtime.patience.REPLY", PATIENCE if found else 0.3)
    cluster = Cluster(KafkaBroker("shop", "kafka", "kafka://127.0.0.1:1", timeout="1s"))
    assert cluster.find_topic("dead") == (DEAD if found else None)
