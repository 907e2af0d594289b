"""The ledger in Redis: the same promises as in SQL, kept by Lua scripts.

What a script writes is one entry of Redis' append-only file: with `appendfsync always` it is on the disk
before the script's answer comes, so a claim is durable before anything is sent.
"""

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from dlq.core.clock import Clock, now
from dlq.core.errors import FormatTooNew
from dlq.core.settings import Ledger as LedgerSettings
from dlq.core.units import seconds
from dlq.replay.ledger import COLUMNS, REPLAYS, Entry, Settlement
from dlq.replay.ledger import redis_scripts as scripts
from dlq.replay.ledger.owner import is_dead, new_owner
from dlq.replay.ledger.redis_server import Server
from dlq.replay.letters import Letter
from dlq.replay.states import STATES, State

_FORMAT = 1
_CHUNK_OF_KEYS = 5_000
_INTEGERS = {"number", "lap", "lease_until", "sent_at", "updated_at"}
_P = scripts.PREFIX


class RedisLedger:
    """`dlq.replay.ledger.Ledger` in one database of a Redis server, 6 or newer."""

    def __init__(self, settings: LedgerSettings, clock: Clock = now) -> None:
        """Makes the ledger where there is none. Raises ConfigError, ArchiveError, FormatTooNew."""
        self._lease = round(seconds(settings.lease) * 1_000_000)
        self._clock = clock
        self.owner = new_owner()
        self._claims = 0
        self._server = Server(settings)
        self._scripts: dict[str, Any] = {}
        self._identity = self._server.run(_identity, patient=False)

    def claim(self, plan: str, letters: Sequence[Letter], settled: Sequence[Settlement] = ()) -> set[str]:
        self._claims += 1
        moment = self._clock()
        about = [plan, self.owner, self._claims, moment, moment + self._lease, len(settled)]
        rows = ((x.key, x.number, x.record_id, str(x.target), x.lap) for x in letters)
        return set(self._run(scripts.CLAIM, *about, *_flat(settled), *chain.from_iterable(rows)))

    def renew(self, keys: Sequence[str]) -> set[str]:
        until = self._clock() + self._lease
        return set(self._run(scripts.RENEW, self.owner, until, *keys)) if keys else set()

    def settle(self, settled: Sequence[Settlement]) -> None:
        self._run(scripts.SETTLE, self.owner, self._clock(), *_flat(settled))

    def expire(self) -> int:
        moment = self._clock()
        sending = self._server.run(lambda client: client.zrange(f"{_P}:sending", 0, -1, withscores=True))
        owners = [row[0] for row in self._read([key for key, _ in sending], ["owner"])]
        dead = {owner for owner in set(owners) if owner and is_dead(owner)}
        claims = list(zip(sending, owners, strict=True))
        over = {
            "its sender died before the answer came": [key for (key, _), owner in claims if owner in dead],
            "the lease ended before the answer came": [
                key for (key, until), owner in claims if owner not in dead and until < moment
            ],
        }
        return sum(self.resolve(keys, "in_doubt", why) for why, keys in over.items())

    def states(self, keys: Sequence[str]) -> Mapping[str, State]:
        found = zip(keys, self._read(keys, ["state"]), strict=True)
        return {key: row[0] for key, row in found if row[0] is not None}

    def counts(self, plan: str) -> Mapping[State, int]:
        def work(client: Any) -> Sequence[int]:
            with client.pipeline(transaction=True) as pipe:
                for state in STATES:
                    pipe.zcard(_of_plan(plan, state))
                return list(pipe.execute())

        return {state: n for state, n in zip(STATES, self._server.run(work), strict=True) if n}

    def entries(self, plan: str, state: State) -> list[Entry]:
        keys = self._server.run(lambda client: client.zrange(_of_plan(plan, state), 0, -1))
        rows = (Entry(*row) for row in self._read(keys, Entry._fields))
        return [entry for entry in rows if (entry.plan, entry.state) == (plan, state)]

    def resolve(self, keys: Sequence[str], state: State, detail: str) -> int:
        moment = self._clock()
        return sum(self._run(scripts.RESOLVE, state, moment, detail, *some) for some in _chunks(keys))

    def rows(self) -> Iterator[tuple[Sequence[object], ...]]:
        for chunk in self._paged(REPLAYS.names):
            yield tuple(zip(*chunk, strict=True))

    def everything(self) -> Iterator[Sequence[tuple[Any, ...]]]:
        return self._paged(COLUMNS)

    def adopt(self, rows: Sequence[tuple[Any, ...]]) -> int:
        def values(some: Sequence[tuple[Any, ...]]) -> Iterator[Any]:
            return ("" if value is None else value for row in some for value in row)

        return sum(self._run(scripts.ADOPT, *values(some)) for some in _chunks(rows))

    def forget(self, keys: Sequence[str]) -> int:
        return sum(self._run(scripts.FORGET, *some) for some in _chunks(keys))

    def warnings(self) -> Sequence[str]:
        return self._server.warnings()

    def close(self) -> None:
        self._server.client.close()

    def _run(self, text: str, *arguments: object) -> Any:
        if text not in self._scripts:
            self._scripts[text] = self._server.client.register_script(text)
        script = self._scripts[text]
        return self._server.run(lambda _client: script([_P], [self._identity, *arguments]))

    def _paged(self, columns: Sequence[str]) -> Iterator[list[tuple[Any, ...]]]:
        start = "-"
        while keys := self._server.run(_page_after(start)):
            yield self._read(keys, columns)
            start = f"({keys[-1]}"

    def _read(self, keys: Sequence[str], columns: Sequence[str]) -> list[tuple[Any, ...]]:
        """These columns of these replays; all None for a key that is not known."""
        return [row for some in _chunks(keys) for row in self._fetch(some, columns)]

    def _fetch(self, keys: Sequence[str], columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        found = self._run(scripts.FETCH, len(columns), *columns, *keys)
        values = (found[place :: len(columns)] for place in range(len(columns)))
        typed = (
            [int(value) if value else None for value in column]
            if name in _INTEGERS
            else [value or None for value in column]
            for name, column in zip(columns, values, strict=True)
        )
        return zip(*typed, strict=True)


def _identity(client: Any) -> str:
    """Which ledger this is; the first to open it says so."""
    client.set(f"{_P}:ledger", f"{_FORMAT}:{secrets.token_hex(8)}", nx=True)
    identity = str(client.get(f"{_P}:ledger"))
    if int(identity.partition(":")[0]) > _FORMAT:
        raise FormatTooNew(f"the ledger has format {identity}; this dlq knows up to {_FORMAT}: upgrade dlq")
    return identity


def _of_plan(plan: str, state: State) -> str:
    return f"{_P}:plan:{plan}:{state}"


def _page_after(start: str) -> Callable[[Any], list[str]]:
    return lambda client: list(client.zrangebylex(f"{_P}:keys", start, "+", 0, _CHUNK_OF_KEYS))


def _flat(settled: Sequence[Settlement]) -> Iterator[str]:
    return chain.from_iterable((one.key, one.state, one.detail or "") for one in settled)


def _chunks(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    return (items[start : start + _CHUNK_OF_KEYS] for start in range(0, len(items), _CHUNK_OF_KEYS))
