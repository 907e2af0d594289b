"""Letters at random that have a lot in common: of few ids, keys, bodies, connections and transactions."""

import json
from random import Random

from support.analyzers.mixed import (
    CONNECTION,
    DIED,
    PRODUCER,
    ends,
    given_up,
    half,
    real,
    rejected,
    shine,
    suppressed,
    twin,
)
from support.analyzers.rocket_letters import MINUTE
from support.archives import CREATED, write_segment

from dlq.archive.storage.store import LocalStore
from dlq.core import clock
from dlq.core.record import Record

HOUR = 3_600_000_000
LOOKED = clock.from_iso(CREATED) or 0
"""The first pull; others follow every five minutes."""


def _usual(random: Random, hours: int) -> Record:
    return rejected(
        random.choice((None, f"m{random.randrange(40)}")),
        random.choice(("", f"body {random.randrange(60)}")),
        random.choice(("orders", "billing")),
        broker=random.choice(("shop", "other")),
        source=random.choice(("orders", "all")),
        key=random.choice((None, f"k{random.randrange(40)}")),
        dead_at=random.choice((None, DIED + random.randrange(hours) * HOUR)),
        headers=random.choice(
            ({}, {"dlq_replay_lap": "1"}, {"x-exception-message": f"no {random.randrange(3)}"})
        ),
    )


def _in_burst(random: Random, _: int) -> Record:
    """One of a failure that came all at once, and goes on."""
    return rejected(
        f"h{random.randrange(10_000)}",
        "",
        dead_at=LOOKED - random.randrange(2, 40) * 60_000_000,
        headers={"x-exception-stacktrace": "java.net.SocketTimeoutException: Read timed out"},
    )


def _suppressed(random: Random, _: int) -> Record:
    connection = f"{CONNECTION}{random.randrange(3)}"
    return suppressed(
        random.randrange(60), f"{PRODUCER}{random.randrange(2)}", f"{connection}:1:{random.randrange(2)}"
    )


def _twin(random: Random, _: int) -> Record:
    named = {"KEYS": f"order {random.randrange(20)}", "ORIGIN_MESSAGE_ID": random.choice("ab")}
    return twin(f"t{random.randrange(30)}", random.choice(("pay", "stock")), **named)


def _of_transaction(random: Random, _: int) -> Record:
    key, offset = f"x{random.randrange(25)}", random.randrange(40)
    record = random.choice(
        (
            lambda: half(key, offset, random.choice((0, 3)), stored=random.randrange(9) * MINUTE),
            lambda: real(key, offset * 100),
            lambda: given_up(key, stored=random.choice((8, 9, 80 * 60)) * MINUTE),
            lambda: ends(f"{offset},{random.randrange(40)},"),
        )
    )()
    return record._replace(source=random.choice(("bank", "vault")))


def _coordinated(random: Random, _: int) -> Record:
    return shine(f"A{random.randrange(3)}", f"W{random.randrange(5)}")


_MAKERS = (_usual,) * 4 + (_in_burst, _suppressed, _twin, _of_transaction, _coordinated)


def letters(random: Random, first: int, end: int, hours: int) -> list[Record]:
    """Letters [first, end) of all kinds, which died within so many hours, or in the burst."""
    made = [random.choice(_MAKERS)(random, hours) for _ in range(first, end)]
    return [
        one._replace(record_id=f"{n:032x}", captured_at=DIED + 100 * HOUR + n)
        for n, one in enumerate(made, first)
    ]


def alone(store: LocalStore, number: int) -> None:
    """So many letters, 20 minutes between two, that have nothing in common with others, as a segment."""
    every = [
        rejected(
            f"alone {n}", "", source="alone", dead_at=DIED - n * HOUR // 3, record_id=f"{2**64 + n:032x}"
        )
        for n in range(number)
    ]
    write_segment(store, "alone", [one._replace(captured_at=DIED) for one in every])


def pull(store: LocalStore, random: Random, number: int, first: int, end: int) -> None:
    """Letters [first, end), a segment for each source, and what the pull learned of some nodes."""
    every = letters(random, first, end, 20 * (number + 1))
    for source in sorted({one.source for one in every}):
        write_segment(store, f"{number:03d}-{source}", [one for one in every if one.source == source])
    if random.random() < 0.5:
        node = {"check_interval_ms": 30_000, "file_reserved_hours": 72, "op_batch_interval_ms": 3_000}
        document = {"format": 1, "source": random.choice(("bank", "vault")), "brokers": {"broker-a": node}}
        name = f"topology/20261121T00{5 * number:02d}00-ab12.json"
        store.put(name, json.dumps(document).encode())
