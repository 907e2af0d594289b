"""The questions about one Kafka cluster on which others build: of its topics, logs, settings and groups.

`dlq[kafka]` brings the client library.
"""

import re
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import cached_property, partial
from typing import Any, NamedTuple, TypeVar

from dlq.connectors import deadline
from dlq.core.errors import AccessDenied, BrokerError, ConfigError, NoLeader, NotFound
from dlq.core.runtime import patience

try:
    from confluent_kafka import (
        ConsumerGroupTopicPartitions,
        IsolationLevel,
        KafkaError,
        KafkaException,
        TopicCollection,
        TopicPartition,
    )
    from confluent_kafka.admin import AclOperation, AdminClient, ConfigResource, OffsetSpec, ResourceType

    from dlq.connectors.kafka.link.clients import Clients
except ImportError as error:
    raise ConfigError(f"a Kafka broker needs its client: pip install 'dlq[kafka]' ({error.name})") from error

_T = TypeVar("_T")
_AGAIN = (
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._TRANSPORT,
)
"""What a cluster says for a moment after it has started or made a topic; the library asks again for none."""
_OUTDATED = (KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH, KafkaError._NOENT)
"""What is said where the library remembers leaders of before: it asks these until it is told of others."""
_LONGEST = "socket.request.max.bytes"
_WHOLE = re.compile(r"-?[0-9]{1,19}")
_ODD = (RuntimeError, ValueError, TypeError, LookupError, AttributeError)
"""What the library's Python part fails with where an answer is about something else than the question."""
_ENDS = OffsetSpec.earliest(), OffsetSpec.latest()
_UNTOLD = KafkaError(KafkaError._TRANSPORT, "it names no offset")
"""The library's answer about an end then is below zero, without an error; so is one of a busy broker."""


def number_in(settings: Mapping[str, str], name: str) -> int | None:
    """Return a setting that is a number; None where it is not told, or is none."""
    told = settings.get(name) or ""
    return int(told) if _WHOLE.fullmatch(told) else None


class Place(NamedTuple):
    """One partition."""

    topic: str
    partition: int

    def __str__(self) -> str:
        """Return the partition as Kafka prints it: orders-0."""
        return f"{self.topic}-{self.partition}"


class Topic(NamedTuple):
    """A topic as its cluster knows it; `id` tells it from another one of the same name, before or after."""

    name: str
    id: str
    partitions: int
    is_readable: bool = True


class Log(NamedTuple):
    """The offsets of a partition: [start, end), of which what lies at `stable` or after it waits for a
    transaction to end."""

    place: Place
    start: int
    stable: int
    end: int
    epoch: int = -1
    """Of the leader that wrote the last record; -1 is not known."""


class _Told(NamedTuple):
    """What a leader says of one offset."""

    offset: int
    epoch: int


_pending: list[tuple[AdminClient, Sequence[Future[Any]]]] = []
_pending_lock = threading.Lock()


def _keep(admin: AdminClient, futures: Sequence[Future[Any]]) -> None:
    """Keep a client until its questions are answered, and let go of others that have their answers.

    Answers come in a thread of the client's own, where Python may look for garbage; and a client of which
    nobody waits for the answers is garbage. One that is freed in its own thread aborts the process
    (librdkafka's rd_kafka_destroy_app).
    """
    with _pending_lock:
        answered = [one for one in _pending if all(future.done() for future in one[1])]
        _pending[:] = [one for one in _pending if one not in answered]
        _pending.append((admin, futures))


class Cluster(Clients):
    """The cluster of one configured broker, to be asked."""

    def ask_admin(self, ask: Callable[[AdminClient], Mapping[Any, Any]], where: str = "") -> dict[Any, Any]:
        """Return the answers to questions of the admin client, asked again while a leader is not known yet.

        Raises BrokerError for the first that fails.
        """
        for _ in patience.tries(self.timeout):
            try:
                return {key: self._answer(future) for key, future in self._ask(ask).items()}
            except KafkaException as error:
                failed: KafkaError = error.args[0]
                if failed.code() not in (*_AGAIN, *_OUTDATED):
                    break
            if failed.code() in _OUTDATED:
                self.names()  # which tells the library who leads now
        raise self.trouble(failed, where)

    def _ask(self, ask: Callable[[AdminClient], Mapping[Any, Any]]) -> Mapping[Any, Any]:
        """Questions of the admin client, by what they are about."""
        deadline.check(self.name)
        futures = ask(self._admin)
        _keep(self._admin, [*futures.values()])
        return futures

    def _answer(self, future: Future[_T]) -> _T:
        """Return what a question comes to; who is refused need not wait for the library, which tries again.
        Raises KafkaException, BrokerError."""
        for _ in patience.tries(self.timeout + 1, 0.0):
            try:
                return future.result(patience.PAUSE)
            except TimeoutError:
                self._admin.poll(0)
            except _ODD as error:
                raise BrokerError(f"{self.name} answers something that was not asked") from error
            if (denial := self.denial) is not None:
                raise denial
        raise self.silence()

    @cached_property
    def id(self) -> str:
        """What the cluster calls itself."""
        return str(self._described.cluster_id)

    @cached_property
    def _described(self) -> Any:
        ask = lambda admin: {  # noqa: E731
            "": admin.describe_cluster(include_authorized_operations=True, request_timeout=self.timeout)
        }
        return self.ask_admin(ask)[""]

    @property
    def nodes(self) -> list[str]:
        """Addresses of its brokers."""
        return sorted(f"{node.host}:{node.port}" for node in self._described.nodes)

    @cached_property
    def ports(self) -> frozenset[int]:
        """Where its brokers listen."""
        return frozenset(node.port for node in self._described.nodes)

    @cached_property
    def longest_request(self) -> int | None:
        """Bytes that every broker takes at once; None where the user may not read it."""
        found = [self.configuration(str(node.id), ResourceType.BROKER) for node in self._described.nodes]
        told = [number_in(known or {}, _LONGEST) for known in found]
        known = [number for number in told if number is not None]
        return min(known) if known and len(known) == len(found) else None

    @property
    def may_see_groups(self) -> bool:
        """Whether the user sees every group: without the right on the cluster a list of groups is shorter, or
        empty, and says nothing of it."""
        return AclOperation.DESCRIBE in (self._described.authorized_operations or ())

    def names(self) -> list[str]:
        """Topics that the user may see, without Kafka's own."""
        deadline.check(self.name)
        try:
            found = self._admin.list_topics(timeout=self.timeout)
        except KafkaException as error:
            raise self.trouble(error.args[0]) from error
        self.check_named(found)
        return sorted(name for name in found.topics if not name.startswith("__"))

    def topics(self, names: Iterable[str]) -> dict[str, Topic]:
        """Return those of these topics that are there. Asking creates none (`list_topics` of a name does)."""
        found: dict[str, Topic] = {}
        for name in dict.fromkeys(names):
            try:
                found[name] = self.topic(name)
            except NotFound:
                continue
        return found

    def topic(self, name: str) -> Topic:
        """Describe a topic. Raises NotFound."""
        told = self._describe(name, f"topic {name} on {self.name}")
        may = told.authorized_operations
        return Topic(name, str(told.topic_id), len(told.partitions), not may or AclOperation.READ in may)

    def find_topic(self, name: str) -> Topic | None:
        """Describe a topic; None where it is not there. A broker that has just started may know none."""
        for _ in patience.tries(patience.REPLY):
            with suppress(NotFound):
                return self.topic(name)
        return None

    def leader(self, place: Place) -> tuple[str, int]:
        """Host and port of the broker that serves a partition. Raises BrokerError."""
        told = self._describe(place.topic, str(place))
        leader = next((one.leader for one in told.partitions if one.id == place.partition), None)
        if leader is None or not leader.host:
            raise NoLeader(f"{place} has no leader; is the broker that holds it running?")
        if refused := self.why_not_allowed(leader.host, leader.port):
            raise AccessDenied(refused)
        return str(leader.host), int(leader.port)

    def _describe(self, topic: str, where: str) -> Any:
        """Return what the library says of a topic. Raises BrokerError, that of `where`."""
        futures = self._ask(
            lambda admin: admin.describe_topics(
                TopicCollection([topic]), include_authorized_operations=True, request_timeout=self.timeout
            )
        )
        try:
            return self._answer(futures[topic])
        except KafkaException as error:
            raise self.trouble(error.args[0], where) from error

    def logs(self, topics: Iterable[Topic]) -> list[Log]:
        """Return what each partition of these topics holds. Raises BrokerError."""
        logs, untold = self.logs_and_untold(topics)
        for why in untold.values():
            raise why
        return logs

    def logs_and_untold(self, topics: Iterable[Topic]) -> tuple[list[Log], dict[Place, BrokerError]]:
        """Return what each partition holds, and the partitions of which nobody tells that, and why."""
        places = [Place(topic.name, number) for topic in topics for number in range(topic.partitions)]
        untold: dict[Place, BrokerError] = {}
        starts, ends, stable = (
            self._told_offsets([place for place in places if place not in untold], which, level, untold)
            for which, level in (
                (OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED),
                (OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED),
                (OffsetSpec.latest(), IsolationLevel.READ_COMMITTED),
            )
        )
        told = [place for place in places if place not in untold]
        for place in [one for one in told if starts[one].offset > ends[one].offset]:
            said = f"it begins at {starts[place].offset} and ends at {ends[place].offset}"
            untold[place] = BrokerError(f"{place}: {self.name} says that {said}: that cannot be true")
            told.remove(place)
        return [
            Log(place, starts[place].offset, min(stable[place].offset, end.offset), end.offset, end.epoch)
            for place, end in ((place, ends[place]) for place in told)
        ], untold

    def _offsets(self, places: Sequence[Place], which: OffsetSpec) -> dict[Place, int]:
        """Ask for offsets of partitions. Raises BrokerError."""
        untold: dict[Place, BrokerError] = {}
        found = self._told_offsets(places, which, IsolationLevel.READ_UNCOMMITTED, untold)
        for why in untold.values():
            raise why
        return {place: told.offset for place, told in found.items()}

    def _told_offsets(
        self,
        places: Sequence[Place],
        which: OffsetSpec,
        level: IsolationLevel,
        untold: dict[Place, BrokerError],
    ) -> dict[Place, _Told]:
        """Asked again while a leader is not known yet; what is not told in time is added to `untold`."""
        found: dict[Place, _Told] = {}
        again = dict.fromkeys(places, _UNTOLD)
        for _ in patience.tries(self.timeout) if places else ():
            failed = self._ask_offsets([*again], which, level, found)
            again = {place: e for place, e in failed.items() if e.code() in (*_AGAIN, *_OUTDATED)}
            untold |= {p: self.trouble(e, str(p)) for p, e in failed.items() if p not in again}
            if not again:
                break
            if any(error.code() in _OUTDATED for error in again.values()):
                self.names()  # which tells the library who leads now
        untold |= {p: self.trouble(e, str(p)) for p, e in again.items()}
        return found

    def _ask_offsets(
        self, places: Sequence[Place], which: OffsetSpec, level: IsolationLevel, found: dict[Place, _Told]
    ) -> dict[Place, KafkaError]:
        """Add to `found` what is told; returns the errors of the others."""
        wanted = {TopicPartition(*place): which for place in places}
        asked = self._ask(
            lambda admin: admin.list_offsets(wanted, isolation_level=level, request_timeout=self.timeout)
        )
        failed: dict[Place, KafkaError] = {}
        for at, future in asked.items():
            place = Place(at.topic, at.partition)
            try:
                told = self._answer(future)
            except KafkaException as error:
                failed[place] = error.args[0]
                continue
            if told.offset < 0 and which in _ENDS:
                failed[place] = _UNTOLD
                continue
            found[place] = _Told(told.offset, -1 if told.leader_epoch is None else told.leader_epoch)
        return failed

    def offsets_since(self, places: Sequence[Place], moment: int) -> dict[Place, int]:
        """Return the first offset of each partition at or after a time in milliseconds; the end where there
        is none."""
        ends = self._offsets(places, OffsetSpec.latest())
        found = self._offsets(places, OffsetSpec.for_timestamp(moment))
        return {place: ends[place] if found[place] < 0 else found[place] for place in places}

    def oldest(self, logs: Sequence[Log]) -> dict[Place, int]:
        """Return the time of the oldest record of each partition, in milliseconds; partitions that do not
        tell are absent."""
        wanted = {TopicPartition(*log.place): OffsetSpec.for_timestamp(0) for log in logs}
        if not wanted:
            return {}
        found = self.ask_admin(lambda admin: admin.list_offsets(wanted, request_timeout=self.timeout))
        return {
            Place(at.topic, at.partition): told.timestamp for at, told in found.items() if told.offset >= 0
        }

    def broker_configuration(self) -> Mapping[str, str] | None:
        """Return the settings of the first broker, which are mostly those of all."""
        nodes = self._described.nodes
        return self.configuration(str(nodes[0].id), ResourceType.BROKER) if nodes else None

    def configurations(
        self, names: Sequence[str], kind: ResourceType = ResourceType.TOPIC
    ) -> dict[str, Mapping[str, str] | None]:
        """Return the settings of many topics or groups, asked together. Raises BrokerError."""
        resources = [ConfigResource(kind, name) for name in names]
        found: dict[str, Mapping[str, str] | None] = dict.fromkeys(names)
        asked = self._ask(
            lambda admin: admin.describe_configs(resources, request_timeout=self.timeout) if resources else {}
        )
        for resource, future in asked.items():
            try:
                found[resource.name] = _values_of(self._answer(future))
            except KafkaException as error:
                refused = self.trouble(error.args[0], resource.name)
                if not isinstance(refused, AccessDenied | NotFound):
                    raise refused from error
        return found

    def configuration(self, name: str, kind: ResourceType = ResourceType.TOPIC) -> Mapping[str, str] | None:
        """Return the settings of a topic, group or broker; None: they may not be read (DESCRIBE_CONFIGS)."""
        resource = ConfigResource(kind, name)
        try:
            [found] = self.ask_admin(
                lambda admin: admin.describe_configs([resource], request_timeout=self.timeout), name
            ).values()
        except (AccessDenied, NotFound):
            return None
        return _values_of(found)

    def groups(self) -> list[str]:
        """Consumer groups that the user may see. The library asks about none whose name is empty. Raises
        BrokerError, also where a broker does not tell its own."""
        ask = lambda admin: {"": admin.list_consumer_groups(request_timeout=self.timeout)}  # noqa: E731
        told = self.ask_admin(ask)[""]
        for failed in told.errors:
            raise self.trouble(failed)
        return sorted({group.group_id for group in told.valid} - {""})

    def other_groups(self) -> list[str]:
        """Share groups, and groups of protocols that nobody can ask about; what they read is not told. Raises
        BrokerError."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # its successor lists no share group
                told = self._admin.list_groups(timeout=self.timeout)
        except KafkaException as error:
            raise self.trouble(error.args[0]) from error
        return sorted({str(group.id) for group in told} - {*self.groups(), ""})

    def committed_offsets(self, groups: Sequence[str], topic: Topic) -> dict[str, dict[int, int]]:
        """Group -> partition -> the offset that it has committed for this topic."""
        found: dict[str, dict[int, int]] = {}
        places = [TopicPartition(topic.name, number) for number in range(topic.partitions)]
        for group in groups:
            wanted = [ConsumerGroupTopicPartitions(group, places)]
            [told] = self.ask_admin(partial(_group_offsets, wanted=wanted, timeout=self.timeout)).values()
            offsets = {at.partition: at.offset for at in told.topic_partitions if at.offset >= 0}
            if offsets:
                found[group] = offsets
        return found

    def members(self, groups: Sequence[str]) -> dict[str, dict[str, int]]:
        """Group -> topic -> members that read it now."""
        found: dict[str, dict[str, int]] = {}
        told = self.ask_admin(
            lambda admin: admin.describe_consumer_groups(list(groups), request_timeout=self.timeout)
        ) if groups else {}  # fmt: skip
        for group, description in told.items():
            found[group] = Counter(
                topic
                for member in description.members
                for topic in {at.topic for at in member.assignment.topic_partitions}
            )
        return found


def _values_of(entries: Mapping[str, Any]) -> dict[str, str]:
    """Setting -> its value, where the cluster says one."""
    return {one.name: one.value for one in entries.values() if one.value is not None}


def _group_offsets(admin: AdminClient, wanted: list[Any], timeout: float) -> Mapping[Any, Any]:
    found: Mapping[Any, Any] = admin.list_consumer_group_offsets(wanted, request_timeout=timeout)
    return found
