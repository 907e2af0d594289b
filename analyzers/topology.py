"""What pulls learned of the brokers, as far as verdicts need it; without it a verdict says less.

`topology/<pull>.json` may hold: `delivery_limits` {queue: limit}, `alternate_exchanges` [name, ...]
(those that the dead-letter queue is bound to), `dead_letter_exchanges` {queue: exchange} and
`dead_letter_keys` {queue: key} (of all queues there that have one), `routes` {exchange: {pattern: [queue,
...]}}, `diverts` [name, ...], `places_of_the_dead` {address: [where its dead go, where its expired go]},
`max_delivery_attempts` {address: number} and `killed_none` {queue: microseconds} (2**63 - 1: not known to
have); that of an import holds `imported` [{queues: [...], facts: the same}, ...], what came along with the
letters of some queues.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from dlq.analyzers.groups.transactions import Node
from dlq.analyzers.rules import Facts
from dlq.analyzers.rules.rocketmq import DEFAULT_RESERVED_HOURS
from dlq.archive import topology as of_pull
from dlq.archive.manifests import Manifest
from dlq.archive.storage.store import Store
from dlq.core import clock
from dlq.core.record import Record
from dlq.core.settings import Settings

_OP_BATCH_MS = 3000


NAMES: Mapping[str, str] = {
    "max_delivery_attempts": "most_attempts",
    **{name: name for name in (
        "delivery_limits", "alternate_exchanges", "dead_letter_exchanges", "dead_letter_keys", "routes",
        "diverts", "places_of_the_dead", "killed_none",
    )},
}  # fmt: skip
"""In `topology/<pull>.json` -> in `Facts`."""


def facts(store: Store, settings: Settings) -> Facts:
    """Return the newest facts of each source, what the configuration says of it, and what came along with
    imported letters."""
    newest = of_pull.newest(store)
    imported = {
        source: {queue: f"{source}\n{queue}" for queue in of} for source, of in newest.of_imports.items()
    }
    brought = {
        imported[source][queue]: told
        for source, of in newest.of_imports.items()
        for queue, told in of.items()
    }
    told = [s.name for s in settings.sources.values() if getattr(s, "alternate_exchange", False)]
    told += [place for place, known in brought.items() if "alternate_exchanges" in known]
    found = {name: _of_each({**newest.of_pulls, **brought}, name) for name in NAMES}
    found["alternate_exchanges"] = {**dict.fromkeys(told, ()), **found["alternate_exchanges"]}
    return Facts(imported=imported, **{NAMES[name]: known for name, known in found.items()})


def _of_each(newest: Mapping[str, Mapping[str, Any]], name: str) -> dict[str, Any]:
    return {place: document[name] for place, document in newest.items() if document.get(name)}


def tell(known: Facts, letter: Record) -> dict[str, Any]:
    """Return what is known of a letter's broker, as `topology/<pull>.json` has it."""
    place = known.place_of(letter)
    found = {name: getattr(known, within).get(place) for name, within in NAMES.items()}
    return {name: told for name, told in found.items() if told is not None}


def node_facts(store: Store) -> dict[str, dict[str, Node]]:
    """Source -> node -> the newest facts."""
    newest: dict[str, dict[str, Node]] = {}
    for name, document in of_pull.read_each(store, of_pull.list_names(store), but_damaged=True):
        looked_at = _moment(name.rpartition("/")[2])
        of_source = newest.setdefault(str(document.get("source")), {})
        of_source.update(_of_document(document, looked_at))
    return newest


def digests(store: Store) -> dict[str, str]:
    """Source -> what changes with the facts of its nodes."""
    return {
        source: sha256(repr(sorted(nodes.items())).encode()).hexdigest()[:16]
        for source, nodes in node_facts(store).items()
        if nodes
    }


def _of_document(document: Mapping[str, Any], looked_at: int | None) -> Iterator[tuple[str, Node]]:
    brokers = document.get("brokers")
    for node, known in brokers.items() if isinstance(brokers, dict) else ():
        interval = _number(known.get("check_interval_ms"))
        batch = _number(known.get("op_batch_interval_ms"))
        yield (
            str(node),
            Node(
                looked_at,
                _number(known.get("file_reserved_hours")) or DEFAULT_RESERVED_HOURS,
                interval,
                (interval or 0) + (_OP_BATCH_MS if batch is None else batch),
                known.get("index") is not False,
                _number(known.get("checked_to")),
            ),
        )


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def last_look(store: Store, segments: Iterable[Manifest]) -> int:
    """Return when the newest pull began, in microseconds; of a segment of no known pull, when it was made.
    A time to come counts only where there is no other: a clock was ahead."""
    captured = (_moment(m.pull_id) or clock.from_iso(m.created_at) or 0 for m in segments)
    empty = (_moment(name.rpartition("/")[2]) or 0 for name in store.list("topology/"))
    moments, until = [*captured, *empty], clock.now()
    return max((one for one in moments if one <= until), default=max(moments, default=0))


def _moment(pull: str) -> int | None:
    """Return when a pull began, as its id begins."""
    try:
        return clock.to_micros(datetime.strptime(pull[:15], clock.STAMP).replace(tzinfo=UTC))
    except ValueError:
        return None
