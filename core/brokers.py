"""The brokers: what each kind brings, told by its package in one description.

Nothing else knows them by name.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any, Literal, Protocol

from dlq.core.settings import Broker, Source

REGISTRY: Mapping[str, str] = {
    "rabbitmq": "dlq.connectors.rabbitmq.plugin.description:RABBITMQ",
    "activemq": "dlq.connectors.activemq.plugin.description:CLASSIC",
    "artemis": "dlq.connectors.activemq.plugin.description:ARTEMIS",
    "rocketmq": "dlq.connectors.rocketmq.plugin.description:ROCKETMQ",
    "kafka": "dlq.connectors.kafka.plugin.description:KAFKA",
    "memory": "dlq.connectors.memory:MEMORY",
}
"""`kind` of a broker in the configuration, and `broker_kind` of its records -> its description. A package is
imported when its kind is asked for, and a new broker is a line here."""

NAMES: Mapping[str, str] = {
    "rabbitmq": "RabbitMQ",
    "activemq": "ActiveMQ",
    "artemis": "Artemis",
    "rocketmq": "RocketMQ",
    "kafka": "Kafka",
}
"""What people call those of them that are brokers."""


def all_named() -> str:
    """Return the brokers in a sentence."""
    *first, last = NAMES.values()
    return f"{', '.join(first)} and {last}"


_NO_NAME = re.compile(r"(?!)")


def _return_none(*_: Any) -> None:
    return None


class Holder(Protocol):
    """What has a password, in one of three places."""

    @property
    def password_file(self) -> str | None:
        """A path."""

    @property
    def password_command(self) -> tuple[str, ...] | None:
        """A command and its arguments."""

    @property
    def password_env(self) -> str | None:
        """A variable of the environment."""


def password_in_the_clear(holder: Holder) -> str | None:
    """Return what is exposed without TLS where there is a password."""
    has_one = any((holder.password_file, holder.password_command, holder.password_env))
    return "the password goes to {host} without TLS" if has_one else None


@dataclass(frozen=True, kw_only=True)
class Plugin:
    """One kind of broker. A function that needs more than `dlq.core` is named, like "package.module:name",
    and loaded by `resolve` when it is called for."""

    connector: str
    """Names the class that keeps `dlq.connectors.base.Connector`; it is called with the broker's settings."""

    settings: type[Broker] = Broker
    """What its table in the configuration may hold."""
    source: type[Source] = Source
    """What the table of a source of it may hold."""
    named_by: tuple[str, ...] = ("queue",)
    """Keys of a source, of which exactly one says where the dead letters lie."""
    check: Callable[[str, Any], None] = _return_none
    """(place, broker): raises ConfigError for settings that do not fit together."""
    check_source: Callable[[str, Any, Any], None] = _return_none
    """(place, source, broker): the same of a source."""
    means: Callable[[str, str], bool] = str.__eq__
    """(`queue` of a source, a queue's name): whether the source reads that queue."""

    schemes: tuple[str, ...] = ()
    """Of URLs that mean this kind in `dlq init --url`."""
    api: str | None = None
    """The setting that `dlq init --api` fills."""
    api_of: Callable[[str], str | None] = _return_none
    """(url): where that API listens by default."""
    by_tls: Mapping[str, str] = field(default_factory=dict)
    """Scheme without TLS -> what to write for it."""
    in_the_clear: Callable[[Any], str | None] = password_in_the_clear
    """(broker): what is exposed on the way to `{host}` without TLS, in words; None: nothing."""

    names_others: bool = False
    """Its peers name other addresses, to which its secret goes, too; `hosts` of its settings limits them."""

    rules: str = ""
    """The module of its cause rules, with a `RULES`."""
    duplicates: Literal["anywhere", "in_its_queue"] = "anywhere"
    """Among which letters of a broker duplicates are looked for: all, or those of one dead-letter queue."""
    words: Mapping[str, str] = field(default_factory=dict)
    """Cause -> what its people say instead of the cause's name."""
    line: str = ""
    """Names the function (document, headers, properties) -> columns, for a line of JSONL from no export."""
    prints: Mapping[str, str] = field(default_factory=dict)
    """What prints its messages -> names the function: text -> `connectors.jsonl.console_formats.Printed`;
    the choices of `dlq import --from`."""

    writes: re.Pattern[str] = _NO_NAME
    """Names of headers and properties that its broker or its clients write, so that they say nothing of the
    business; a masked view shows them."""

    why_no_text: Callable[[int], str | None] = _return_none
    """(`flags` of a record): why its body is no text, whatever its bytes look like."""
    packing: Callable[[int], str | None] = _return_none
    """(`flags`): how the body is packed, as a content encoding that can be streamed."""
    unpack: str = ""
    """Names the function (body, flags, limit in bytes) -> body or None, for what else its clients pack; it
    raises ValueError."""

    readable: str = ""
    """Names the function (body, `properties`) -> (what is in it, JSON-able, or None; what it is), for bodies
    that the broker's own clients encode; None: the body is as its producer gave it."""

    told: str = ""
    """Names the function (record) -> `dlq.core.identity.Told`, where a delivery shows something of its own,
    or one protocol less than another; it never raises. Empty: `told_of`."""

    keeps_letters: bool = False
    """A drained letter stays where it was: nothing is ever removed."""
    republishing: str = ""
    """The module with `target_of` of its connector, and `preview_offline`: its `preview`, as far as nobody
    has to be asked. Without one no plan is made where no connection may be opened."""
    default_target: str = "origin"
    """Where a replay sends, unless told."""
    sent_columns: tuple[str, ...] | None = None
    """Columns of a record that are sent beside its id and `raw_properties`; None: all."""
    edit_headers: str = ""
    """Names the function (raw_properties, drops, changed) -> raw_properties, in which what stays keeps its
    bytes, and what is changed (values of JSON) its type; raises ValueError."""
    edit_properties: str = ""
    """Names the function (raw_properties, properties) -> raw_properties with these properties and no others;
    raises ValueError."""
    transaction: str = ""
    """Names the function (record) -> the transaction that it is a half message of, or None."""
    order_key: tuple[str, ...] = ()
    """Where its messages carry the key by which it keeps their order, as a source's `key` names a place."""
    tells_more: Callable[[Any], str] = lambda _broker: ""
    """(broker): which setting would tell more of consumers, in words; empty where it is set."""
    ramp_note: str = ""
    """What else looks like consumed, in words: a ramp says so, and no plan in order goes by it."""


@cache
def resolve(reference: str) -> Any:
    """Return what "package.module:name" names."""
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)


_UNKNOWN = Plugin(connector="")


def plugin_of(name: str | None) -> Plugin:
    """Return the description of a kind; one that brings nothing for a record whose kind is unknown here."""
    reference = REGISTRY.get(name or "")
    found: Plugin = resolve(reference) if reference else _UNKNOWN
    return found


def plugins() -> Mapping[str, Plugin]:
    """Return every kind of broker, by its name."""
    return {name: plugin_of(name) for name in REGISTRY}
