"""A cluster of Kafka that means harm: answers that cannot be true, settings that are none, a log that never
ends."""

import struct
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import chain, repeat
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message
from support.brokers import hostile_kafka as broker
from support.brokers.hostile_kafka import Answer, kafka, many, settings, text
from support.rows import each_row
from support.servers.hostile import Server
from support.waiting import PATIENCE, UNHURRIED

from dlq.connectors.base import SendRequest, Target
from dlq.connectors.kafka.link.connection import Access
from dlq.connectors.kafka.look.cluster import Place, Topic, number_in
from dlq.connectors.kafka.look.doctor import _warnings, time_left
from dlq.connectors.kafka.look.limits import taken_by
from dlq.connectors.kafka.plugin.connector import KafkaConnector
from dlq.connectors.kafka.plugin.description import KafkaBroker, KafkaSource
from dlq.connectors.kafka.prove.wholeness import is_compacted_between
from dlq.connectors.kafka.read.snapshot import look
from dlq.core.errors import AccessDenied, BrokerError

ODD = ("", "much", "1e9", "9" * 5000, "١٢", "0x10", "-", " 1", "1_000")
NAMES = (
    "retention.ms", "max.message.bytes", "message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms",
)  # fmt: skip


@each_row("odd", ODD)
def test_a_setting_that_is_no_number_is_not_known(odd: str) -> None:
    known = dict.fromkeys(NAMES, odd)
    cluster: Any = SimpleNamespace(
        topic=lambda name: Topic(name, "id", 1), configuration=lambda _: known, longest_request=None
    )
    assert taken_by(cluster, "t") == (1, (-1, -1, -1, False), None, None, None)
    assert time_left(known, [1]) is None
    assert list(_warnings("t", known, None)) == []
    assert number_in({"a": "-1"}, "a") == -1


@each_row(("settings", "seconds"), [
    ({}, float("inf")), ({"retention.bytes": "-1"}, float("inf")), ({"retention.bytes": "0"}, None),
    ({"retention.bytes": "9", "cleanup.policy": "compact"}, float("inf")),
])  # fmt: skip
def test_letters_that_leave_by_the_size_of_their_topic_do_not_stay_for_ever(
    settings: dict[str, str], seconds: float | None
) -> None:
    assert time_left({"retention.ms": "-1", **settings}, [1]) == seconds


def test_a_log_that_shows_its_beginning_for_ever_is_not_followed() -> None:
    """Whatever is asked for, offset 0 is there, whole."""
    with Server(kafka({broker.FETCH: broker.fetched(broker.batch(0, [], last=0, count=1))})) as server:
        cluster: Any = SimpleNamespace(leader=lambda _: server.place, access=Access(PATIENCE))
        with pytest.raises(ValueError, match="nothing came from offset 1"):
            is_compacted_between(cluster, Place("t", 0), 0, 9)


def connected(server: Server) -> KafkaConnector:
    return KafkaConnector(KafkaBroker(name="b", kind="kafka", url=f"kafka://{server.address}", timeout="1s"))


SOURCE = KafkaSource(name="s", broker="b", topic="t")
ASK: Mapping[str, Callable[[KafkaConnector], object]] = {
    "gauge": lambda kafka: kafka.gauge(SOURCE),
    "inspect": lambda kafka: kafka.inspect(SOURCE),
    "discover": lambda kafka: kafka.discover(),
    "consumers": lambda kafka: kafka.consumers([TARGET]),
    "consumption": lambda kafka: kafka.consumption([TARGET]),
    "missing": lambda kafka: kafka.missing_targets([TARGET]),
    "bounds": lambda kafka: kafka.bounds([TARGET]),
}
TARGET = Target("topic", "t")
_ERROR = 4 + 4 + 3 + 4 + 4
"""Where one about the first partition of t stands in what is told of its offsets."""
NO_OFFSET = many(text("t") + many(struct.pack(">ihqqi", 7, 0, 0, 0, 0)))
MOST = 2**63 - 1
HOSTILE = "\x1b[2J" * 99
LIES: Mapping[str, Mapping[int, Answer]] = {
    "an end below zero": {broker.LIST_OFFSETS: broker.offsets(0, -1)},
    "a beginning below zero": {broker.LIST_OFFSETS: broker.offsets(-5, 5)},
    "a beginning behind the end": {broker.LIST_OFFSETS: broker.offsets(9, 5)},
    "an end of 2^63": {broker.LIST_OFFSETS: broker.offsets(0, MOST)},
    "times beyond the calendar": {broker.LIST_OFFSETS: broker.offsets(time=MOST)},
    "times before the calendar": {broker.LIST_OFFSETS: broker.offsets(time=-MOST)},
    "offsets of another partition": {broker.LIST_OFFSETS: lambda *_: bytes(4) + NO_OFFSET},
    "no offsets": {broker.LIST_OFFSETS: lambda *_: bytes(4) + many()},
    "2^31 offsets": {broker.LIST_OFFSETS: lambda *_: bytes(4) + b"\x7f\xff\xff\xff"},
    "nothing of the topic": {broker.METADATA: broker.told(topics=[])},
    "another topic": {broker.METADATA: broker.told(topics=["u"])},
    "a topic twice": {broker.METADATA: broker.told(topics=["t", "t"])},
    "topics that steer": {broker.METADATA: broker.told(topics=["t", f"{HOSTILE}.dlq", "x" * 30_000])},
    "settings that are null": {broker.DESCRIBE_CONFIGS: settings(cleanup_policy=None, retention_ms=None)},
    "settings that are none": {
        broker.DESCRIBE_CONFIGS: settings(cleanup_policy=HOSTILE, retention_ms="9" * 5000)
    },
    "no settings": {broker.DESCRIBE_CONFIGS: lambda *_: bytes(4) + many()},
    "groups that steer": {broker.LIST_GROUPS: broker.groups("", HOSTILE, "x" * 30_000)},
    "a group a thousand times": {broker.LIST_GROUPS: broker.groups(*["g"] * 1000)},
    "commits of 2^63": {broker.OFFSET_FETCH: broker.committed(MOST)},
    "commits below zero": {broker.OFFSET_FETCH: broker.committed(-5)},
    "no commits": {broker.OFFSET_FETCH: lambda *_: bytes(4) + many() + b"\0\0"},
}


@pytest.mark.parametrize("lie", LIES)
def test_a_cluster_that_lies_is_an_error_of_ours_or_believed(lie: str) -> None:
    with Server(kafka(LIES[lie])) as server:
        cluster = connected(server)
        for ask in ASK.values():
            with suppress(BrokerError):
                ask(cluster)


@pytest.mark.parametrize("lie", [*LIES][:3])
def test_ends_that_cannot_be_true_are_no_letters_that_are_lost(lie: str) -> None:
    """Its library asks again for as long as it may; on a busy machine it has asked for nothing by then."""
    with (
        Server(kafka(LIES[lie])) as server,
        pytest.raises(BrokerError, match=r"^t-0: |waiting for controller"),
    ):
        look(connected(server).cluster, "t")


def test_a_leader_that_has_just_been_elected_and_knows_no_end_yet_is_asked_again() -> None:
    errors = [KafkaError.OFFSET_NOT_AVAILABLE]

    def answer(place: tuple[str, int], asked: bytes) -> bytes:
        told = broker.offsets()(place, asked)
        return told[:_ERROR] + struct.pack(">h", errors.pop()) + told[_ERROR + 2 :] if errors else told

    with Server(kafka({broker.LIST_OFFSETS: answer})) as server:
        unhurried = KafkaBroker(name="b", kind="kafka", url=f"kafka://{server.address}", timeout=UNHURRIED)
        [log] = look(KafkaConnector(unhurried).cluster, "t")[1]
    assert (log.start, log.end, errors) == (0, 5, [])


@each_row(("code", "seconds", "outcome"), [
    (KafkaError.TOPIC_AUTHORIZATION_FAILED, 0.1, "refused"),
    # The library sends again by itself where an answer was lost: what is refused then may have been stored.
    (KafkaError.TOPIC_AUTHORIZATION_FAILED, 0.3, "in_doubt"),
    (KafkaError.MSG_SIZE_TOO_LARGE, 0.1, "once more"),
    (KafkaError._INVALID_DIFFERENT_RECORD, 0.1, "once more"),
    (KafkaError.MSG_SIZE_TOO_LARGE, 0.3, "in_doubt"),
    (KafkaError._MSG_TIMED_OUT, 0.9, "in_doubt"),
    # After half a minute without the topic: an earlier request may have been stored, and its answer lost.
    (KafkaError._UNKNOWN_PARTITION, 0.1, "in_doubt"),
    (KafkaError._UNKNOWN_TOPIC, 0.1, "in_doubt"),
])  # fmt: skip
def test_what_may_have_been_sent_before_is_not_refused(code: int, seconds: float, outcome: str) -> None:
    with Server(kafka({})) as server:
        publisher = connected(server).publisher(SendRequest("plan", 1))
        publisher._note_answer(1, 0, KafkaError(code), Message(latency=seconds))
        publisher.close()
    assert [getattr(answer, "outcome", "once more") for answer in publisher.answers] == [outcome]


def test_groups_that_a_broker_does_not_tell_are_not_none() -> None:
    """As one says for a while after its start: nobody would be named who reads a target, or waited for."""
    untold: Answer = lambda *_: bytes(4) + struct.pack(">h", KafkaError.COORDINATOR_NOT_AVAILABLE) + many()  # noqa: E731
    with Server(kafka({broker.LIST_GROUPS: untold})) as server:
        cluster = connected(server)
        for asked in (cluster.consumers, cluster.consumption):
            with pytest.raises(BrokerError, match="COORDINATOR_NOT_AVAILABLE"):
                asked([TARGET])
        assert any("share groups go is not known" in one for one in cluster.inspect(SOURCE).warnings)


def names(first: str, *others: str) -> Answer:
    """An answer to METADATA, one after the other: which host:port it names; "" is its own."""
    asked_for = chain([first, *others], repeat([first, *others][-1]))

    def answer(address: tuple[str, int], asked: bytes) -> bytes:
        host, _, port = (next(asked_for) or f"{address[0]}:{address[1]}").rpartition(":")
        if asked == bytes(5):  # a connection of our own, by version 4
            return bytes(4) + many(struct.pack(">i", 1) + text(host) + struct.pack(">ih", int(port), -1))
        return broker.told()((host, int(port)), asked)

    return answer


CONFINED = {"hosts": ("*.example",), "user": "dlq", "password_env": "SECRET", "mechanism": "PLAIN"}
Naming = Callable[..., AbstractContextManager[tuple[KafkaConnector, Server]]]


@pytest.fixture
def naming(monkeypatch: pytest.MonkeyPatch) -> Naming:
    """A cluster that names, behind others, an address that `hosts` keeps out; both take any password."""
    monkeypatch.setitem(broker.VERSIONS, 17, (0, 1))
    monkeypatch.setitem(broker.VERSIONS, 36, (0, 0))
    monkeypatch.setenv("SECRET", "s3cret")
    login = {17: lambda *_: bytes(2) + many(text("PLAIN")), 36: lambda *_: struct.pack(">hhi", 0, -1, 0)}

    @contextmanager
    def behind(*others: str) -> Iterator[tuple[KafkaConnector, Server]]:
        with Server(kafka(login), "127.0.0.2") as kept_out:
            answers = {**login, broker.METADATA: names(*others, kept_out.address)}
            with Server(kafka(answers)) as server:
                url = f"kafka://{server.address}"
                yield KafkaConnector(KafkaBroker("b", "kafka", url, timeout=UNHURRIED, **CONFINED)), kept_out

    return behind


@pytest.mark.parametrize("ask", ASK)
def test_an_address_that_hosts_keeps_out_gets_no_byte_and_no_connection(naming: Naming, ask: str) -> None:
    with naming() as (cluster, kept_out):
        for _ in range(3):
            with pytest.raises(AccessDenied, match=r"names 127\.0\.0\.2:\d+, .*nothing was sent there"):
                ASK[ask](cluster)
        time.sleep(0.5)  # in which the client library would have gone there
        assert kept_out.connections == 0


@each_row("before", [1, 2], ids=["to the library first", "to the library later"])
def test_of_an_address_that_is_named_later_nobody_says_that_it_got_nothing(
    naming: Naming, before: int
) -> None:
    with naming(*[""] * before) as (connector, _):
        with pytest.raises(AccessDenied, match=r"127\.0\.0\.2.*may be known there") as caught:
            [connector.cluster.names() for _ in range(9)]
        assert "nothing was sent" not in str(caught.value)


@each_row(("changes", "is_known"), [
    ({}, True), ({"hosts": ()}, False), ({"url": "kafka+ssl://b1.example:9093"}, False),
    ({"mechanism": "SCRAM-SHA-512"}, False), ({"user": None, "password_env": None}, False),
])  # fmt: skip
def test_hosts_keeps_the_password_from_all_but_those_that_are_named_later_without_tls_to_a_plain_login(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], is_known: bool
) -> None:
    monkeypatch.setenv("SECRET", "s3cret")
    known = KafkaBroker("b", "kafka", **{"url": "kafka://b1.example:9092", **CONFINED, **changes})
    assert (KafkaConnector(known).cluster.beyond_hosts is not None) == is_known
