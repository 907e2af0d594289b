"""How well `dlq analyze` finds incidents: generated backgrounds with bursts put into them.

    python bench/incidents.py [SEEDS]      (default: 5)

Every scenario is two weeks of dead letters, with bursts that nobody announces. Precision and recall are
given for letters (put into an incident, against injected), and for incidents: one is found when it and
an injected burst share at least half of the letters of both.
"""

import json
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

from dlq.analyzers.groups.incidents import SLOT, Slot, find, kind_of

DAY, HOUR, MINUTE = 86_400, 3_600, 60
DAYS = 14
START = 1_793_000_000


class Letter(NamedTuple):
    """What the search for incidents reads; `burst` is the truth, 0 is background."""

    at: float
    source: str
    cause: str
    family: str | None
    fingerprint: str
    burst: int = 0


@dataclass(frozen=True)
class Failure:
    source: str
    cause: str
    family: str | None
    fingerprint: str


FAILURES = (
    Failure("orders", "application_error", "business", "stock"),
    Failure("orders", "application_error", "timeout", "gateway"),
    Failure("orders", "expired", None, "orders-ttl"),
    Failure("payments", "poison_ack", None, "payments-reject"),
    Failure("payments", "application_error", "bug", "null-pointer"),
    Failure("mails", "redelivery_exhausted", None, "mails-limit"),
    Failure("mails", "application_error", "serialization", "json"),
    Failure("stock", "application_error", "database", "deadlock"),
)


def steady(random: Random, failure: Failure, per_hour: float, swing: float = 0.0) -> Iterator[Letter]:
    """Letters at random, by day (1 + swing) times as many as on average, by night (1 - swing) times."""
    at, highest = 0.0, per_hour * (1 + swing)
    while True:
        at += random.expovariate(highest / HOUR)
        if at >= DAYS * DAY:
            return
        now = per_hour * (1 + swing * math.sin(2 * math.pi * at / DAY))
        if random.random() * highest < now:
            yield Letter(at, *vars(failure).values())


def burst(
    random: Random, number: int, failure: Failure, letters: int, lasts: float, at: float
) -> list[Letter]:
    """Some letters within `lasts` seconds from `at` on."""
    return [Letter(at + random.random() * lasts, *vars(failure).values(), number) for _ in range(letters)]


def moments(random: Random, count: int) -> list[float]:
    """Times far enough from each other that bursts there are different incidents."""
    width = (DAYS - 1) * DAY / count
    return [DAY / 2 + place * width + random.random() * width * 0.6 for place in range(count)]


def scattered(
    random: Random, letters: tuple[int, int], lasts: tuple[float, float], count: int = 12
) -> list[Letter]:
    """Bursts of one failure each, of sizes and lengths in these ranges."""
    return [
        letter
        for number, at in enumerate(moments(random, count), 1)
        for letter in burst(
            random, number, random.choice(FAILURES), random.randint(*letters), random.uniform(*lasts), at
        )
    ]


def background(random: Random, per_hour: float, swing: float = 0.0) -> list[Letter]:
    return [letter for failure in FAILURES for letter in steady(random, failure, per_hour, swing)]


def clumped(random: Random, per_hour: float) -> list[Letter]:
    """A background whose letters come in clumps, one to eight within seconds."""
    return [
        letter._replace(at=letter.at + n)
        for letter in background(random, per_hour)
        for n in range(random.choice((1, 1, 1, 2, 2, 3, 5, 8)))
    ]


def outage(random: Random) -> list[Letter]:
    """A database is gone: thirty services fail a little each, with different exceptions, on two brokers."""
    found = []
    for number, at in enumerate(moments(random, 5), 1):
        for service in range(30):
            family = random.choice(("timeout", "connection", "database"))
            source = f"broker-{service % 2}/service-{service}"
            failure = Failure(source, "application_error", family, f"{family}-{service}")
            found += burst(random, number, failure, random.randint(1, 4), 10 * MINUTE, at)
    return found


def at_once(random: Random) -> list[Letter]:
    """Two failures of different kinds burst at the same time: two incidents."""
    return [
        letter
        for place, at in enumerate(moments(random, 6))
        for number, failure in enumerate(
            random.sample((FAILURES[0], FAILURES[2], FAILURES[3], FAILURES[5]), 2), 1
        )
        for letter in burst(random, 2 * place + number, failure, 60, 20 * MINUTE, at)
    ]


def alone(random: Random) -> list[Letter]:
    """The archive holds one hour and nothing else."""
    return burst(random, 1, FAILURES[1], 300, HOUR, DAY)


SCENARIOS: Mapping[str, Callable[[Random], list[Letter]]] = {
    "quiet queues": lambda r: background(r, 0.5) + scattered(r, (20, 400), (5 * MINUTE, HOUR)),
    "busy queues": lambda r: background(r, 40) + scattered(r, (150, 2000), (5 * MINUTE, HOUR)),
    "day and night": lambda r: background(r, 40, 0.8) + scattered(r, (200, 2000), (5 * MINUTE, HOUR)),
    "small bursts": lambda r: background(r, 0.5) + scattered(r, (8, 15), (2 * MINUTE, 10 * MINUTE)),
    "slow and long": lambda r: background(r, 0.2) + scattered(r, (50, 80), (5 * HOUR, 7 * HOUR)),
    "many services": lambda r: background(r, 2) + outage(r),
    "two at once": lambda r: background(r, 2) + at_once(r),
    "weak (twice the usual)": lambda r: background(r, 40) + scattered(r, (60, 80), (HOUR, HOUR)),
    "nothing but an incident": alone,
    "background in clumps": lambda r: clumped(r, 0.5) + scattered(r, (20, 400), (5 * MINUTE, HOUR)),
    "no incident": lambda r: background(r, 10, 0.5),
}


def found(letters: list[Letter]) -> list[str | None]:
    """The incident of each letter."""
    counted = Counter((kind_of(x.family, x.cause), x.fingerprint, _slot(x)) for x in letters)
    slots = [slot for _, _, slot in counted]
    span = max(slots) - min(slots) + 1
    incident: dict[tuple[str, str, int], str] = {}
    for kind in {kind for kind, _, _ in counted}:
        of_kind = [Slot(name, slot, n) for (k, name, slot), n in counted.items() if k == kind]
        for one in find(kind, of_kind, span):
            incident[kind, one.slot.fingerprint, one.slot.slot] = one.incident_id
    return [incident.get((kind_of(x.family, x.cause), x.fingerprint, _slot(x))) for x in letters]


def _slot(letter: Letter) -> int:
    return int((START + letter.at) // SLOT)


def score(letters: list[Letter], told: list[str | None]) -> Counter[str]:
    """Counts that add up over seeds."""
    injected = Counter(x.burst for x in letters if x.burst)
    found = Counter(name for name in told if name)
    shared = Counter((x.burst, name) for x, name in zip(letters, told, strict=True) if x.burst and name)
    matched = sum(2 * n >= injected[b] and 2 * n >= found[name] for (b, name), n in shared.items())
    return Counter(
        letters=len(letters), injected=injected.total(), assigned=found.total(), right=shared.total(),
        bursts=len(injected), incidents=len(found), matched=matched,
    )  # fmt: skip


def share(part: int, whole: int) -> float | None:
    return round(part / whole, 3) if whole else None


def report(name: str, n: Mapping[str, int]) -> dict[str, Any]:
    return {
        "scenario": name, "letters": n["letters"], "injected": n["injected"], "bursts": n["bursts"],
        "incidents": n["incidents"],
        "precision": share(n["right"], n["assigned"]), "recall": share(n["right"], n["injected"]),
        "incident_precision": share(n["matched"], n["incidents"]),
        "incident_recall": share(n["matched"], n["bursts"]),
    }  # fmt: skip


def main() -> None:
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    for name, scenario in SCENARIOS.items():
        total: Counter[str] = Counter()
        for seed in range(seeds):
            letters = scenario(Random(f"{name} {seed}"))
            total += score(letters, found(letters))
        print(json.dumps(report(name, total)), flush=True)


if __name__ == "__main__":
    main()
