"""Whether the values of a configuration mean something; each error names its place."""

import re
from collections.abc import Callable, Iterable, Mapping
from ipaddress import ip_network
from typing import Any

from dlq.core import keys
from dlq.core.brokers import plugin_of
from dlq.core.causes import ADVICE, CAUSES
from dlq.core.errors import ConfigError, UsageError
from dlq.core.settings import (
    AUTO,
    EVIDENCE_KINDS,
    OWNER_WORDS,
    RETAIN_STATES,
    Broker,
    Consumer,
    Evidence,
    Profile,
    Serve,
    Settings,
    Source,
)
from dlq.core.text import quote_value
from dlq.core.values import masks, units, urls
from dlq.core.values.suggestions import suggest

_MODES = ("copy", "drain")
_NAMED_BY = ("queue", "topic", "group", "transactions")
_REDIS = ("redis", "rediss")
_DATABASES = ("postgresql", "postgres", "mysql", "mariadb", "sqlite")
_EVIDENCE_SCHEMES: Mapping[str, tuple[str, ...]] = {
    "rocketmq-dedup": (*_REDIS, *_DATABASES),
    "shine-mq": _REDIS,
}
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")
_AGENT = re.compile(r"[A-Za-z0-9._-]{1,40}")
_HEADER = re.compile(r"[A-Za-z0-9-]{1,100}")
USER_HEADER = "x-forwarded-user"
"""By which a proxy says to the page who asks."""
_TABLE = re.compile(r"([A-Za-z_]\w*\.)?[A-Za-z_]\w*")


def check(settings: Settings) -> None:
    """Raise ConfigError for the first value that means nothing."""
    if not settings.archive.strip():
        raise ConfigError("archive is empty; name a folder, or s3://bucket/path")
    _check_urls(settings)
    for broker in settings.brokers.values():
        _check_broker(f"brokers.{broker.name}", broker)
    for source in settings.sources.values():
        _check_source(f"sources.{source.name}", source, settings)
    for store in settings.evidence.values():
        _check_store(f"evidence.{store.name}", store)
    for consumer in settings.consumers.values():
        _check_consumer(f"consumers.{consumer.name}", consumer)
    for rule in settings.rules:
        _one_of(f"rules.{rule.name}.cause", rule.cause, CAUSES)
        _one_of(f"rules.{rule.name}.advice", rule.advice, ADVICE)
    masks.check(settings.mask)
    for profile in settings.profiles.values():
        _check_profile(f"profiles.{profile.name}", profile)
    for state in settings.retain.states:
        _one_of("retain.states", state, RETAIN_STATES)
    _sound("retain.max_size", units.size, settings.retain.max_size)
    _sound("retain.max_age", units.seconds_ahead, settings.retain.max_age)
    _sound("ledger.lease", units.seconds_to_last, settings.ledger.lease)
    _sound("replay.ramp_wait", units.seconds_ahead, settings.replay.ramp_wait)
    _sound("replay.approval_time", units.seconds_to_last, settings.replay.approval_time)
    _at_least("retain.analyses", settings.retain.analyses, 1)
    _at_least("replay.max_laps", settings.replay.max_laps, 1)
    _at_least("replay.window", settings.replay.window, 1)
    _at_least("analysis.spark_from", settings.analysis.spark_from, 0)
    _check_serve(settings.serve)


def _check_broker(place: str, broker: Broker) -> None:
    _sound(f"{place}.timeout", units.wait_seconds, broker.timeout)
    if isinstance(broker.witness, str) and broker.witness != AUTO:
        raise ConfigError(
            f"{place}.witness must be true, false or {AUTO!r}, not {quote_value(broker.witness)}"
        )
    plugin_of(broker.kind).check(place, broker)


def _check_serve(serve: Serve) -> None:
    for host in serve.hosts:
        if not _HOST.fullmatch(host):
            raise ConfigError(f"serve.hosts: {quote_value(host)} is no host name; write it like dlq.example")
    for address in serve.proxies:
        try:
            ip_network(address)
        except ValueError as error:
            raise ConfigError(
                f"serve.proxies: {quote_value(address)} is no address or network; "
                "write it like 10.0.0.7 or 10.0.0.0/24"
            ) from error
    for name in serve.agents:
        if not _AGENT.fullmatch(name):
            raise ConfigError(
                f"serve.agents: {quote_value(name)} is no name of an agent; write up to 40 letters, digits, "
                "'.', '_' and '-'"
            )
    header = serve.groups_header
    if header is not None and (not _HEADER.fullmatch(header) or header.lower() == USER_HEADER):
        raise ConfigError(
            f"serve.groups_header: {quote_value(header)} is no header of groups; write it like "
            "X-Forwarded-Groups"
        )


def _check_urls(settings: Settings) -> None:
    urls.check("archive", settings.archive)
    urls.check("ledger.url", settings.ledger.url)
    for broker in settings.brokers.values():
        for name, url in broker.urls().items():
            urls.check(f"brokers.{broker.name}.{name}", url)
    for store in settings.evidence.values():
        urls.check(f"evidence.{store.name}.url", store.url)
    for profile in settings.profiles.values():
        check_collector(f"profiles.{profile.name}.metrics_otlp", profile.metrics_otlp)


def check_collector(place: str, url: str | None) -> None:
    """Raise ConfigError for what is no address of a collector of metrics."""
    urls.check(place, url, "a header by the variable OTEL_EXPORTER_OTLP_HEADERS")


def _one_of(place: str, value: str | None, known: Iterable[str]) -> None:
    if value is not None and value not in known:
        if not (listed := ", ".join(known)):
            raise ConfigError(f"{place} = {quote_value(value)} is not configured; add it")
        raise ConfigError(
            f"{place} = {quote_value(value)} is unknown{suggest(value, known)}; known are {listed}"
        )


def _sound(place: str, reader: Callable[[Any], object], value: object) -> None:
    """Check that `reader` understands the value, where there is one."""
    try:
        if value is not None:
            reader(value)
    except UsageError as error:
        raise ConfigError(f"{place}: {error}") from error


def _at_least(place: str, value: int | None, least: int) -> None:
    if value is not None and value < least:
        raise ConfigError(f"{place} = {value} is too small; give {least} or more")


def _check_profile(place: str, profile: Profile) -> None:
    _one_of(f"{place}.mode", profile.mode, _MODES)
    _at_least(f"{place}.limit", profile.limit, 1)
    _sound(f"{place}.max_time", units.seconds_to_last, profile.max_time)
    _sound(f"{place}.alarm_timeout", units.wait_seconds, profile.alarm_timeout)


def _check_consumer(place: str, consumer: Consumer) -> None:
    _one_of(f"{place}.replay", consumer.replay, OWNER_WORDS)
    _sound(f"{place}.holds_for", units.seconds_to_last, consumer.holds_for)
    _sound(f"{place}.verify_timeout", units.wait_seconds, consumer.verify_timeout)
    if not consumer.sources:
        raise ConfigError(f"{place}.sources is empty; name the sources whose letters it has consumed")


def _check_source(place: str, source: Source, settings: Settings) -> None:
    _one_of(f"{place}.broker", source.broker, settings.brokers)
    _one_of(f"{place}.mode", source.mode, _MODES)
    _one_of(f"{place}.coverage", source.coverage or "required", ("required",))
    _one_of(f"{place}.superseded", source.superseded, ("check_first", "never"))
    _sound(f"{place}.key", keys.key_reader, source.key)
    _sound(f"{place}.version", keys.key_reader, source.version)
    broker = settings.brokers[source.broker]
    kind = plugin_of(broker.kind)
    named = [name for name in dict.fromkeys((*kind.named_by, *_NAMED_BY)) if getattr(source, name)]
    if len(named) != 1 or named[0] not in kind.named_by:
        wanted = " or ".join(kind.named_by)
        raise ConfigError(f"[{place}] on a {broker.kind} broker needs exactly one of: {wanted}")
    kind.check_source(place, source, broker)


def _check_store(place: str, store: Evidence) -> None:
    _one_of(f"{place}.kind", store.kind, EVIDENCE_KINDS)
    scheme, separator, _ = store.url.partition("://")
    if not separator:
        raise ConfigError(f"{place}.url is no URL; write it like redis://host:6379/0")
    _one_of(f"the scheme of {place}.url", scheme, _EVIDENCE_SCHEMES[store.kind])
    wrong = "table" if scheme in _REDIS else "prefix"
    if getattr(store, wrong) is not None:
        raise ConfigError(f"{place}.{wrong} means nothing to a {scheme} store; leave it out")
    if store.table is not None and not _TABLE.fullmatch(store.table):
        raise ConfigError(
            f"{place}.table = {quote_value(store.table)} is no table; write it like t_rocketmq_dedup"
        )
    if not store.sources:
        raise ConfigError(f"{place}.sources is empty; name sources, or leave it out for all")
    _sound(f"{place}.window", units.seconds_to_last, store.window)
