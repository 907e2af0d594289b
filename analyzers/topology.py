"""What pulls learned of the brokers, as far as verdicts need it; without it the verdict says less.

`topology/<pull>.json` may hold: `delivery_limits` {queue: limit}, `alternate_exchanges` [name, ...]
(those that the dead-letter queue is bound to), `dead_letter_sources` [queue, ...] (every queue that
dead-letters into it).
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from dlq.archive.store import Store, checked_format
from dlq.core.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@dataclass(frozen=True)
class Facts:
    """Facts by source name."""

    delivery_limits: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    alternate_exchanges: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    dead_letter_sources: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def as_text(self) -> str:
        """A text that is the same for the same facts."""
        return json.dumps(asdict(self), sort_keys=True)


def facts(store: Store, settings: Settings) -> Facts:
    """The newest facts of each source, and what the configuration says of it."""
    newest: dict[str, dict[str, Any]] = {}
    for name in store.list("topology/"):
        document = checked_format(name, store.get(name))
        newest[document.get("source", "")] = document
    alternate = {source: _names(d.get("alternate_exchanges")) for source, d in newest.items()}
    told = {source.name for source in settings.sources.values() if source.alternate_exchange}
    return Facts(
        delivery_limits={
            s: _limits(d.get("delivery_limits")) for s, d in newest.items() if d.get("delivery_limits")
        },
        alternate_exchanges={
            s: alternate.get(s, ()) for s in {*alternate, *told} if alternate.get(s) or s in told
        },
        dead_letter_sources={
            s: _names(d["dead_letter_sources"]) for s, d in newest.items() if d.get("dead_letter_sources")
        },
    )


def _names(value: Any) -> tuple[str, ...]:
    return tuple(sorted(map(str, value))) if isinstance(value, list | tuple | dict) else ()


def _limits(value: Any) -> Mapping[str, int]:
    return (
        {str(queue): limit for queue, limit in value.items() if isinstance(limit, int) and limit >= 0}
        if isinstance(value, dict)
        else {}
    )


def with_facts(records: "DataFrame", known: Facts) -> "DataFrame":
    """Adds `delivery_limit`, `unrouted` and `parked` to records that have `last_death`."""
    from pyspark.sql import functions as F  # noqa: N812 (the name everybody uses)

    source, death = F.col("source"), F.col("last_death")
    pairs = {f"{s}\0{q}": limit for s, limits in known.delivery_limits.items() for q, limit in limits.items()}
    limit = _lookup(pairs, F.concat(source, F.lit("\0"), death["queue"]), "int")
    no_death = death.isNull() & (F.coalesce(F.col("exchange"), F.lit("")) != "")
    bound = F.coalesce(_lookup(known.alternate_exchanges, source, "array<string>"), F.array())
    unrouted = (
        no_death & source.isin(*known.alternate_exchanges) & ~F.array_contains(bound, F.col("exchange"))
    )
    to_itself = (F.col("exchange") == "") & (F.col("routing_key") == F.col("dead_letter_queue"))
    feeders = _lookup(known.dead_letter_sources, source, "array<string>")
    parked = to_itself & death["queue"].isNotNull() & ~F.array_contains(feeders, death["queue"])
    return records.withColumns(
        {
            "delivery_limit": F.when(death["reason"] == "delivery_limit", limit),
            "unrouted": F.coalesce(unrouted, F.lit(False)),
            "parked": F.coalesce(parked, F.lit(False)),
        }
    )


def _lookup(table: Mapping[str, Any], key: "Column", sql_type: str) -> "Column":
    from pyspark.sql import functions as F  # noqa: N812

    if not table:
        return F.lit(None).cast(sql_type)
    parts = [
        F.lit(part if not isinstance(part, tuple) else list(part)) for pair in table.items() for part in pair
    ]
    return F.create_map(*parts)[key].cast(sql_type)
