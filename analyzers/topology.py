"""What pulls learned of the brokers, as far as verdicts need it; without it a verdict says less.

`topology/<pull>.json` may hold: `delivery_limits` {queue: limit}, `alternate_exchanges` [name, ...]
(those that the dead-letter queue is bound to), `dead_letter_exchanges` {queue: exchange} (of all
queues there that have one), `diverts` [name, ...] and `places_of_the_dead` {address: [where its dead go,
where its expired go]}.
"""

from typing import Any

from dlq.analyzers.rules import Facts
from dlq.archive.store import Store, checked_format
from dlq.core.settings import Settings


def facts(store: Store, settings: Settings) -> Facts:
    """The newest facts of each source, and what the configuration says of it."""
    newest: dict[str, dict[str, Any]] = {}
    for name in store.list("topology/"):
        document = checked_format(name, store.get(name))
        newest[str(document.get("source"))] = document
    told: dict[str, tuple[str, ...]] = {
        s.name: () for s in settings.sources.values() if getattr(s, "alternate_exchange", False)
    }
    found = {source: tuple(map(str, d.get("alternate_exchanges") or ())) for source, d in newest.items()}
    return Facts(
        delivery_limits={s: d["delivery_limits"] for s, d in newest.items() if d.get("delivery_limits")},
        alternate_exchanges={**told, **{source: names for source, names in found.items() if names}},
        diverts={s: tuple(map(str, d["diverts"])) for s, d in newest.items() if d.get("diverts")},
        places_of_the_dead={
            s: {address: (dead, expired) for address, (dead, expired) in d["places_of_the_dead"].items()}
            for s, d in newest.items()
            if d.get("places_of_the_dead")
        },
        dead_letter_exchanges={
            s: d["dead_letter_exchanges"] for s, d in newest.items() if d.get("dead_letter_exchanges")
        },
    )
