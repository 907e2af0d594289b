"""What `dlq doctor` says of an ActiveMQ source."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dlq.connectors.activemq.look import strategies
from dlq.connectors.activemq.look.artemis import NO_MANAGEMENT
from dlq.connectors.activemq.look.effects import effects, harm
from dlq.connectors.activemq.look.jolokia import QueueFacts
from dlq.connectors.activemq.look.queues import Queues
from dlq.connectors.activemq.read.scan import ARTEMIS_COPY, BROWSE, DRAIN, TAKE_BACK_ARTEMIS
from dlq.connectors.activemq.read.silence import obstacles_of
from dlq.connectors.base import Inspection, Mode
from dlq.core.errors import BrokerError, ConfigError
from dlq.core.values.units import human_seconds

_EXPIRE = (
    "{}: letters expire here {} after they came (expiration of a dead-letter strategy in activemq_xml). See "
    "`dlq coverage` for where they go."
)
_SHOWN = {
    "RoutingType": "routing type",
    "Address": "address",
    "MemoryPercentUsage": "memory used, percent of the queue's limit",
    "DLQ": "the broker dead-lettered here since its start",
    "Paused": "paused",
}
_EMPTY_BODIES = (
    "Map, Stream and Object messages cannot be carried by STOMP; they are listed and stay in the queue. Set "
    "openwire_url."
)
_NO_SIZE = "The queue's size cannot be asked, so the end of a pull is not proven: {}."
_SIZE_WANTS = "set jolokia_url, or statistics_plugin = true where the broker has it"
_NO_PLUGIN = (
    "statistics_plugin is true, and nothing answers for this queue: is the statisticsBrokerPlugin in the "
    "broker's configuration, and may the user write to queues ActiveMQ.Statistics.> and make temporary ones"
)
_OR_JOLOKIA = f"{NO_MANAGEMENT}; or set jolokia_url"
_CONSUMERS = "{} other consumer(s) take messages from this queue; a pull sees what they leave."
_BRIDGED = (
    "this broker has bridges to others ({}): a consumer here is given their letters of the same queue, too, "
    "about 1,000 for each pull; a drain takes them, and they are no more on the others"
)
_CLUSTERED = (
    "this broker is a node of a cluster ({} others): while a consumer is here the others may move their "
    "letters of the same queue to it (redistribution-delay); a drain takes them, or leaves them here"
)
_PREPARED = (
    "{} prepared XA transaction(s) of this broker wait for their outcome: what they send is in no queue yet, "
    "nor in its count, and what they took is not given to others; let their transaction manager end them"
)
_LEFT_ON_ARTEMIS = (
    "A pull that is killed counts one delivery for each letter it held; after max-delivery-attempts (10 by "
    "default) a letter moves from the DLQ to the DLQ and its origin is lost."
)


def inspection(
    queues: Queues, queue: str, kind: str, version: str, by_openwire: bool, activemq_xml: str | None
) -> Inspection:
    """Look at a queue, or at all queues of a pattern. Raises NotFound, UsageError, BrokerError."""
    names = queues.resolve_names(queue)
    found = {name: queues.facts(name) for name in names}
    known = [facts for facts in found.values() if facts is not None]
    artemis = kind == "artemis"
    against = _refusals(queues, names)
    changes = {"copy": TAKE_BACK_ARTEMIS if artemis else BROWSE, "drain": DRAIN}
    return Inspection(
        version=f"{'Artemis' if artemis else 'ActiveMQ'} {version}",
        depth=sum(facts.depth for facts in known) if len(known) == len(found) else None,
        facts=_facts(found, known),
        changes=changes,
        harm=_harm(against, artemis, len(names)),
        leaves_out=_left_out(against, artemis, len(names)),
        warnings=[
            *_warnings(artemis, known, queues.trouble, _why_unknown(queues)),
            *([] if by_openwire else [_EMPTY_BODIES]),
            *bridge_facts(queues),
            *prepared_facts(queues),
            *_effects(queues, names),
            *(_expiry(activemq_xml, names) if activemq_xml and not artemis else ()),
            *(f"{name} gives nothing: {why}." for name, why in _obstacles(found)),
        ],
    )


def _refusals(queues: Queues, names: Sequence[str]) -> Mapping[Mode, list[str]]:
    """Return mode -> why single queues are not read in it."""
    modes: tuple[Mode, ...] = ("copy", "drain")
    return {mode: [why for name in names if (why := harm(queues, name, mode))] for mode in modes}


def _harm(against: Mapping[Mode, list[str]], artemis: bool, queues: int) -> dict[str, str]:
    """Return the modes that are refused, as no queue is left to be read, and why."""
    found = {mode: said if len(said) == queues else [] for mode, said in against.items()}
    if artemis:
        found["copy"] = [ARTEMIS_COPY, *against["copy"]]
    return {mode: "; ".join(said) for mode, said in found.items() if said}


def _left_out(against: Mapping[Mode, list[str]], artemis: bool, queues: int) -> dict[str, str]:
    """Return what is read in a mode without some of the queues."""
    refused = _harm(against, artemis, queues)
    return {mode: "; ".join(said) for mode, said in against.items() if said and mode not in refused}


def _effects(queues: Queues, names: Sequence[str]) -> list[str]:
    """Return what both modes do that takes no insisting."""
    found = [f"{name}: {why}." for name in names for why in effects(queues, name, "drain", harms=False)]
    return list(dict.fromkeys(found))


def _expiry(activemq_xml: str, names: Sequence[str]) -> Iterator[str]:
    """Yield when letters end that Classic's dead-letter strategies give an end to."""
    try:
        policies = strategies.load(activemq_xml, "activemq_xml")
    except ConfigError as error:
        yield f"{error}."
        return
    if policies.unknown:
        yield f"Whether letters expire where they lie is not known: {policies.unknown}."
    for name in names:
        for seconds in strategies.lives_in(policies, name):
            yield _EXPIRE.format(name, human_seconds(seconds))


def bridge_facts(queues: Queues) -> list[str]:
    """Return what a network of brokers, or a cluster, does to a drain."""
    bridges = queues.bridges()
    said = _CLUSTERED.format(len(bridges)) if queues.artemis else _BRIDGED.format(", ".join(bridges))
    return [said] if bridges else []


def prepared_facts(queues: Queues) -> list[str]:
    """Return what transactions hold back that are neither committed nor rolled back."""
    found = queues.count_prepared()
    return [_PREPARED.format(found)] if found else []


def _obstacles(found: Mapping[str, QueueFacts | None]) -> Iterator[tuple[str, str]]:
    for name, facts in found.items():
        for why in obstacles_of(facts.facts) if facts is not None and facts.depth else ():
            yield name, why


def _facts(found: Mapping[str, QueueFacts | None], known: Sequence[QueueFacts]) -> dict[str, Any]:
    facts: dict[str, Any] = {"queues": ", ".join(found)} if len(found) > 1 else {}
    facts |= {
        "consumers": sum(each.consumers for each in known) if known else "unknown",
        "in flight": sum(each.in_flight for each in known) if known else "unknown",
    }
    if len(known) == 1:
        facts |= {label: known[0].facts[name] for name, label in _SHOWN.items() if name in known[0].facts}
    return facts


def _why_unknown(queues: Queues) -> str:
    """Return why nothing tells a queue's size, or what would."""
    if queues.trouble is not None:
        return str(queues.trouble)
    if queues.artemis:
        return _OR_JOLOKIA
    return _NO_PLUGIN if queues.asks_plugin else _SIZE_WANTS


def _warnings(
    artemis: bool, known: Sequence[QueueFacts], trouble: BrokerError | None, why_unknown: str
) -> list[str]:
    consumers = sum(each.consumers for each in known)
    return [
        *([_CONSUMERS.format(consumers)] if consumers else []),
        *([] if known else [_NO_SIZE.format(why_unknown)]),
        *([f"{trouble}."] if known and trouble else []),
        *([_LEFT_ON_ARTEMIS] if artemis else []),
    ]
