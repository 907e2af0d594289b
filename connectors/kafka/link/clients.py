"""The clients of one Kafka cluster: how each is made, and what its connections met with, in words."""

import logging
import math
import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property, partial
from threading import Thread
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from dlq.connectors.kafka.link.connection import Access, Link, brokers_named_by
from dlq.connectors.kafka.plugin.description import TLS, KafkaBroker
from dlq.connectors.local.credentials import blanks, forget, log_in, password
from dlq.connectors.net.protocols import foreign, of_length
from dlq.connectors.net.tls import client_context
from dlq.core import errors
from dlq.core.runtime import patience
from dlq.core.values.hosts import host_of, why_not
from dlq.core.values.units import seconds

_T = TypeVar("_T")
_READER = "dlq"
"""A consumer must name a group, also where it joins none and leaves nothing behind."""
_FETCH_PAUSE = 10
"""Milliseconds until the library looks again whether its queue has room. By default it waits for a second, in
which a pull has long emptied it."""
_DENIED = (
    KafkaError._AUTHENTICATION,
    KafkaError._SSL,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
)
_NOT_THERE = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError.TOPIC_EXCEPTION,
)
_NO_LEADER = (KafkaError.LEADER_NOT_AVAILABLE, KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError._NOENT)
_NO_ANSWER = (
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError.REQUEST_TIMED_OUT,
)


_SILENT = logging.getLogger(f"{__name__}.library")
"""It would write to standard error what `noted` is told of anyway."""
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False
_LONGEST_REQUEST = 300_000
"""Milliseconds; librdkafka takes no more, and asks again."""
_LARGEST_ANSWER = 1_000_000_000
"""Bytes; a record may be as large as its topic lets it. Another protocol's answer reads as more."""
_NO_KAFKA = re.compile(r"(\S+:\d+)/(\w+): .*?Invalid response size (\d+)")
"""What the library says of an answer that is none of Kafka's; its size is the answer's first four bytes."""
_AT = re.compile(r"(?:\w+://)?(\S+:\d+)/\d+: ")
"""Which broker the library speaks of, where the cluster has named it: by a number, not as `bootstrap`."""
_WHEN = re.compile(r" \(after \d+ms in state .*|: broker certificate could not be verified.*")
"""What the library adds of its own state, and of its own settings."""
_UNVERIFIED = re.compile(r"(?:\w+://)?\[?([^\s/\]]+)\]?:(\d{1,5})/\w+: .*certificate verify failed")
"""What it says of a certificate that it does not take: of whom, and not why."""


def _translate(
    error: KafkaError, where: str, first: KafkaError | None, hint: Callable[[KafkaError], str]
) -> errors.BrokerError:
    """Return an error of the library in words; `first` is what its connections met with, which says more, and
    `hint` says what to do about it."""
    code, cause = error.code(), first if first is not None and error.code() in _NO_ANSWER else error
    said = f"{where}: {_words(cause)}"
    if cause.code() in _DENIED:
        return errors.AccessDenied(f"{said}; {hint(cause)}")
    if code in _NO_LEADER:
        return errors.NoLeader(f"{said}; is the broker that holds it running?")
    if code in _NOT_THERE:
        return errors.NotFound(f"{said}; check the topic's name")
    if code in _NO_ANSWER:
        return errors.Unreachable(f"{said}; {hint(cause)}")
    return errors.BrokerError(said)


def _words(error: KafkaError) -> str:
    said = _WHEN.sub("", " ".join(str(error.str()).split()))
    if found := _NO_KAFKA.search(said):
        address, node, length = found.groups()
        named_by = "url" if node == "bootstrap" else "the cluster (advertised.listeners)"
        if other := foreign(address, of_length(int(length)), "Kafka", named_by):
            return f"{error.name()}: {other}"
    return f"{error.name()}: {said[:200]}"


_PORT = 9092
_PERHAPS = (
    "it was named only after the client library had begun, which goes there by itself: what it was given "
    "(the password with PLAIN) may be known there"
)
_RENEWING = 2.0
"""Seconds: two of the library's longest pauses before it connects again."""
_LOGIN = (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED)
_HINTS: Mapping[int, str] = {
    KafkaError._AUTHENTICATION: "look at user, password and mechanism",
    KafkaError.SASL_AUTHENTICATION_FAILED: "look at user, password and mechanism",
    KafkaError._BAD_MSG: "nothing was asked of it",
    KafkaError._SSL: "look at ca_file, and at verify_host",
    KafkaError._RESOLVE: "look at the host names of url",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "the user lacks a right on it, or there is none of that name",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "the user lacks the right to write",
}


def _hint(error: KafkaError) -> str:
    return _HINTS.get(
        error.code(),
        "it may want TLS (kafka+ssl://) or a user, or have no room for more connections (max.connections, "
        "max.connections.per.ip)",
    )


class Clients:
    """Makes clients of the library for one configured broker. Each connects lazily."""

    def __init__(self, broker: KafkaBroker) -> None:
        """Make the settings of a client. Raises ConfigError."""
        self.name = broker.name
        self.timeout = seconds(broker.timeout)
        self._broker = broker
        self._bootstrap = [one.strip() for one in _settings(broker)["bootstrap.servers"].split(",")]
        self._named = [*map(host_of, self._bootstrap)]
        self._hosts = broker.hosts
        self._first: KafkaError | None = None
        self._renewed = -math.inf
        self._throttled = self._quiet_until = 0.0

    def note_throttling(self, event: Any) -> None:
        """Note that a broker has made a client of ours wait (`ThrottleEvent`), by a quota."""
        if event.throttle_time > 0:
            self._throttled = event.throttle_time
            self._quiet_until = time.monotonic() + event.throttle_time

    def made_to_wait(self, remedy: str) -> str:
        """Say in words that a broker made a client wait; empty where none did."""
        if not self._throttled:
            return ""
        return f"; a quota of the cluster made this client wait, last for {self._throttled:.1f} s: {remedy}"

    def is_silent(self, since: float) -> bool:
        """Return whether nothing came for as long as `timeout`, beside what a quota makes us wait; `since` is
        of the monotonic clock."""
        return time.monotonic() - max(since, self._quiet_until) > self.timeout

    def note_error(self, error: KafkaError) -> None:
        """Note an error that connections meet with; the first that says why counts. A certificate that the
        library does not take it calls at times _SSL, at times _TRANSPORT, with the same text (seen on busy
        cores)."""
        if error.code() != KafkaError._ALL_BROKERS_DOWN and self._first is None:
            said = str(error.str())
            self._first = KafkaError(KafkaError._SSL, said) if _UNVERIFIED.search(said) else error

    def trouble(self, error: KafkaError, where: str = "") -> errors.BrokerError:
        """Return the library's error, in words."""
        self._admin.poll(0)  # which hands out what its connections met with
        return _translate(error, where or self.name, self._first, self._hint)

    def _hint(self, error: KafkaError) -> str:
        """Return what to do about an error."""
        if error.code() in _LOGIN:
            return f"{_HINTS[error.code()]}{blanks(self._broker)}"
        if why := self._why_unverified(str(error.str())):
            return f"{why}; {_hint(error)}"
        found = _AT.match(str(error.str()))
        if found and error.code() in _NO_ANSWER and found[1] not in self._bootstrap:
            return (
                f"the cluster names {found[1]} (advertised.listeners): it has to be reachable from here by "
                "that name"
            )
        return _hint(error)

    def _why_unverified(self, said: str) -> str:
        """Return what is wrong with a broker's certificate; it is asked for again, without a password."""
        found = _UNVERIFIED.search(said) if self._broker.url.startswith(f"{TLS}://") else None
        if found is None or self.why_not_allowed(found[1], int(found[2])):
            return ""
        try:
            Link(found[1], int(found[2]), self.access._replace(mechanism=None)).close()
        except errors.ConnectionLost as error:
            return str(getattr(error.__cause__, "verify_message", ""))
        except (ValueError, OverflowError):  # no name that a host has, no port
            return ""
        return ""

    def silence(self) -> errors.ConnectionLost:
        """Return the error that nothing came for as long as `timeout`."""
        why = f": {_words(self._first)}" if self._first is not None else ""
        made_wait = self.made_to_wait("raise consumer_byte_rate, or timeout")
        return errors.ConnectionLost(f"{self.name} gave nothing within {self.timeout:g} s{why}{made_wait}")

    @property
    def denial(self) -> errors.BrokerError | None:
        """What a broker has refused a login or a right over, in words; None where none has."""
        first = self._first
        return self.trouble(first) if first is not None and first.code() in _DENIED else None

    @cached_property
    def _admin(self) -> AdminClient:
        return self._make_client(AdminClient, {})

    def consumer(self, more: Mapping[str, Any], committed: bool = True) -> Consumer:
        """Return what reads assigned partitions. It joins no group, commits nothing, and never jumps."""
        return self._make_client(Consumer, {
            "group.id": _READER,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "enable.partition.eof": True,
            "allow.auto.create.topics": False,
            "fetch.queue.backoff.ms": _FETCH_PAUSE,
            "receive.message.max.bytes": _LARGEST_ANSWER,
            "throttle_cb": self.note_throttling,
            **more,
        })  # fmt: skip

    def fetch(self, consumer: Consumer, most: int) -> list[Any]:
        """Return up to so many messages and events; none where none came for a moment. Raises BrokerError."""
        try:
            return consumer.consume(most, patience.FETCH)
        except KafkaException as error:
            raise self.trouble(error.args[0]) from error

    def producer(self, more: Mapping[str, Any]) -> Producer:
        """Return what sends."""
        return self._make_client(Producer, {"allow.auto.create.topics": False, **more})

    def _make_client(self, client: Callable[[dict[str, Any]], _T], more: Mapping[str, Any]) -> _T:
        if self._hosts:
            self._look_ahead()
        settings = _settings(self._broker)

        def heed(error: KafkaError) -> None:
            if error.code() not in _LOGIN or not self._gives_another_login(made, settings):
                self.note_error(error)

        try:
            made: Any = client({**settings, **more, "error_cb": heed, "logger": _SILENT})
        except KafkaException as error:
            said = _words(error.args[0])
            raise errors.ConfigError(f"brokers.{self.name}: {said}; check its files and its url") from error
        if self._hosts:
            self._check_hosts(made)
        return made  # type: ignore[no-any-return]

    def _gives_another_login(self, client: Any, settings: dict[str, Any]) -> bool:
        """Return whether the password is another one than in `settings`, which the client was given: it logs
        in with that from now on. One that lives long finds a token run out when it connects again, and may be
        told so of several connections."""
        if time.monotonic() - self._renewed < _RENEWING:
            return True
        forget(self._broker)
        with suppress(errors.ConfigError):
            before, now = settings.get("sasl.password"), password(self._broker)
            if now not in (None, before):
                settings["sasl.password"], self._renewed = now, time.monotonic()
                # Beside the client's own callback, in which it would crash the library (2.16.1).
                Thread(target=client.set_sasl_credentials, args=(self._broker.user, now), daemon=True).start()
                return True
        return False

    def why_not_allowed(
        self, host: str, port: int, so_far: str = "dlq sent nothing there by a connection of its own"
    ) -> str | None:
        """Return why a broker's address may not be connected to, by the `hosts` of the configuration."""
        return why_not(f"{host}:{port}", self._named, self._hosts, self.name, so_far)

    @property
    def beyond_hosts(self) -> str | None:
        """How the password may come to an address that `hosts` keeps out: the library follows each answer
        about the cluster, and has no callback before it connects (2.16)."""
        broker = self._broker
        if not (self._hosts and broker.mechanism == "PLAIN" and broker.user) or broker.url.startswith(TLS):
            return None
        return (
            f"brokers.{self.name}.hosts is looked at before a client starts: the client library goes to an "
            f"address that the cluster names later, and shows it the password; write {TLS}://, or a SCRAM "
            "mechanism"
        )

    def _named_by(self, server: str) -> list[tuple[str, int]]:
        host, port = host_of(server), server.rpartition(":")[2]
        return brokers_named_by(host, int(port) if port.isdecimal() else _PORT, self.access)

    def _look_ahead(self) -> None:
        """Ask each server of the url that answers by a connection of our own, as the library goes to every
        address that a broker names, and gives it the password. Raises AccessDenied, BrokerError."""
        lost: Exception | None = None
        heard = False
        for server in self._bootstrap:
            try:
                named = log_in(self._broker, partial(self._named_by, server))
            except (errors.ConnectionLost, ValueError, OverflowError) as error:  # no host's name, no port
                lost = error
                continue
            heard = True
            for address in named:
                if refused := self.why_not_allowed(*address, "nothing was sent there"):
                    raise errors.AccessDenied(refused)
        if lost is not None and not heard:
            raise errors.Unreachable(
                f"{lost}; it is asked which brokers it names, as brokers.{self.name}.hosts wants"
            )

    @property
    def access(self) -> Access:
        """How connections of our own are made at the moment."""
        broker, secret = self._broker, password(self._broker)
        is_tls = broker.url.startswith(f"{TLS}://")
        return Access(
            self.timeout,
            partial(client_context, broker, broker.verify_host) if is_tls else None,
            None if secret is None else broker.mechanism,
            broker.user or "",
            secret or "",
        )

    def _check_hosts(self, client: Any) -> None:
        """Whoever answers may name others later, and the library goes there. Raises AccessDenied,
        BrokerError."""
        try:
            self.check_named(client.list_topics(timeout=self.timeout))
        except KafkaException as error:
            raise _translate(error.args[0], self.name, self._first, self._hint) from error

    def check_named(self, told: Any) -> None:
        """Check that `hosts` lets in all brokers of the library's metadata. Raises AccessDenied."""
        for broker in told.brokers.values():
            if refused := self.why_not_allowed(broker.host, broker.port, _PERHAPS):
                raise errors.AccessDenied(refused)


def _settings(broker: KafkaBroker) -> dict[str, Any]:
    """Return what every client of the cluster is given."""
    scheme, _, servers = broker.url.partition("://")
    if scheme not in ("kafka", TLS) or not servers.strip("/"):
        raise errors.ConfigError(
            f"brokers.{broker.name}.url = {broker.url!r}: write it like kafka://b1:9092,b2:9092"
        )
    secret = password(broker)
    protocol = {("kafka", False): "PLAINTEXT", ("kafka", True): "SASL_PLAINTEXT", (TLS, False): "SSL"}.get(
        (scheme, secret is not None), "SASL_SSL"
    )
    timeout = max(1000, int(seconds(broker.timeout) * 1000))
    settings: dict[str, Any] = {
        "bootstrap.servers": servers.strip("/"),
        "client.id": _READER,
        "security.protocol": protocol,
        "socket.timeout.ms": min(timeout, _LONGEST_REQUEST),
        "socket.connection.setup.timeout.ms": timeout,
        "reconnect.backoff.max.ms": 1000,
        "log_level": 0,
    }
    if secret is not None:
        settings |= {
            "sasl.mechanism": broker.mechanism,
            "sasl.username": broker.user,
            "sasl.password": secret,
        }
    files = {
        "ssl.ca.location": broker.ca_file,
        "ssl.certificate.location": broker.cert_file,
        "ssl.key.location": broker.key_file,
    }
    settings |= {name: value for name, value in files.items() if value is not None}
    if scheme == TLS and not broker.verify_host:
        settings["ssl.endpoint.identification.algorithm"] = "none"
    return settings
