"""What pulls learned of the brokers, as far as verdicts need it; without it the verdict says less.

`topology/<pull>.json` may hold: `delivery_limits` {queue: limit}, `alternate_exchanges` [name, ...]
(those that the dead-letter queue is bound to), `dead_letter_exchanges` {queue: exchange} (of all
queues there that have one).
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
    dead_letter_exchanges: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def as_text(self) -> str:
        """A text that is the same for the same facts."""
        return json.dumps(asdict(self), sort_keys=True)


def facts(store: Store, settings: Settings) -> Facts:
    """The newest facts of each source, and what the configuration says of it."""
    newest: dict[str, dict[str, Any]] = {}
    for name in store.list("topology/"):
        document = checked_format(name, store.get(name))
        newest[str(document.get("source"))] = document
    told: dict[str, tuple[str, ...]] = {s.name: () for s in settings.sources.values() if s.alternate_exchange}
    found = {source: tuple(map(str, d.get("alternate_exchanges") or ())) for source, d in newest.items()}
    return Facts(
        delivery_limits={s: d["delivery_limits"] for s, d in newest.items() if d.get("delivery_limits")},
        alternate_exchanges={**told, **{source: names for source, names in found.items() if names}},
        dead_letter_exchanges={
            s: d["dead_letter_exchanges"] for s, d in newest.items() if d.get("dead_letter_exchanges")
        },
    )


def with_facts(records: "DataFrame", known: Facts) -> "DataFrame":
    """Adds `delivery_limit`, `unrouted` and `parked` to records that have `last_death` and `limited`.

    `parked`: the envelope says it was published to the dead-letter queue itself, and the queue of its
    last death dead-letters to a named exchange, so it was not the broker that put it there.
    """
    from pyspark.sql import functions as F

    source, death, exchange = F.col("source"), F.col("last_death"), F.col("exchange")
    queue = F.concat(source, F.lit("\n"), death["queue"])
    limited = F.concat(source, F.lit("\n"), F.coalesce(F.col("limited.queue"), death["queue"]))
    to_itself = (exchange == "") & (F.col("routing_key") == F.col("dead_letter_queue"))
    own = F.coalesce(_lookup(known.alternate_exchanges, source, "array<string>"), F.array())
    routed_elsewhere = death.isNull() & (exchange != "") & ~F.array_contains(own, exchange)
    return records.withColumns(
        {
            "delivery_limit": _lookup(_by_queue(known.delivery_limits), limited, "int"),
            "unrouted": F.coalesce(routed_elsewhere & source.isin(*known.alternate_exchanges), F.lit(False)),
            "parked": F.coalesce(
                to_itself & (_lookup(_by_queue(known.dead_letter_exchanges), queue, "string") != ""),
                F.lit(False),
            ),
        }
    )


def _by_queue(table: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {
        f"{source}\n{queue}": value for source, queues in table.items() for queue, value in queues.items()
    }


def _lookup(table: Mapping[str, Any], key: "Column", sql_type: str) -> "Column":
    from pyspark.sql import functions as F

    if not table:
        return F.lit(None).cast(sql_type)
    parts = [
        F.lit(list(part) if isinstance(part, tuple) else part) for pair in table.items() for part in pair
    ]
    return F.create_map(*parts)[key].cast(sql_type)
