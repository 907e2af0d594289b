"""The ledger in an SQL database.

One row per key; a claim is an insert that does nothing where the key is known, so two processes can't
both own it. A claim is on the disk before anything is sent, and what became of it is written together with
the next claim.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from sys import maxsize
from typing import Any, TypeVar

from dlq.archive.schema import REPLAYS
from dlq.core.clock import Clock
from dlq.core.errors import ArchiveError
from dlq.core.failures import Event
from dlq.replay.ledger import snapshot
from dlq.replay.ledger.contract import COLUMNS, Entry, Result, event_of, is_dead, new_owner
from dlq.replay.ledger.database import Database, Transaction
from dlq.replay.plans.letters import Letter
from dlq.replay.states import BY_OWNER, BY_RECONCILE, MAY_SEND, MAY_SEND_AGAIN, SENT, State

_T = TypeVar("_T")
_INSERTED = COLUMNS[:-1]
"""Of a new claim, which has no detail."""


def _one_of(states: Sequence[State]) -> str:
    return f"state IN ({', '.join(map(repr, states))})"


_KNOWN = ("key", "state", "plan", "updated_at")
_OF_KEYS = '"key" IN ({})'
"""The keys come last of what a statement is given."""
_MOVE = "UPDATE replays SET state = ?, updated_at = ?, detail = ? WHERE"
_OURS = f"replays WHERE owner = ? AND state = 'sending' AND {_OF_KEYS}"
_RENEW = f"UPDATE replays SET lease_until = ? WHERE owner = ? AND state = 'sending' AND {_OF_KEYS}"
_FORGET = f"DELETE FROM replays WHERE state = 'dismissed' AND {_OF_KEYS}"
_RECLAIM = (
    "UPDATE replays SET state = 'sending', plan = ?, number = ?, record_id = ?, target = ?, owner = ?, "
    'lease_until = ?, sent_at = ?, updated_at = ?, detail = NULL WHERE "key" = ? '
    f"AND ({_one_of(MAY_SEND)} OR ({_one_of(MAY_SEND_AGAIN)} AND plan <> ? AND updated_at < ?))"
)

_CHUNK = 2_000
"""SQLite takes 32,766 values in a statement, and a new row has eleven."""
CHUNK_OF_ROWS = 50_000
_LONGEST_DETAIL = 10_000
"""Characters: a text of MySQL has 65,535 bytes."""


class _SomeAreKnownError(Exception):
    """The whole transaction is taken back."""


class SqlLedger:
    """`dlq.replay.ledger.Ledger` on any database."""

    def __init__(
        self,
        database: Database,
        lease: float,
        clock: Clock | None = None,
        at_close: Callable[[], None] | None = None,
        is_known: bool = False,
    ) -> None:
        """`lease` in seconds; `clock`: that of the database unless given; `is_known`: see `make_tables`.
        Creates the tables where there are none. Raises ArchiveError, UsageError."""
        self.database, self._at_close = database, at_close
        self._lease = round(lease * 1_000_000)
        self._clock = clock
        self.owner = new_owner()
        try:
            database.make_tables(is_known)
        except BaseException:
            database.close()
            raise

    def _now(self, on: Transaction) -> int:
        moment = self._clock() if self._clock else on.now()
        if moment > snapshot.LATEST - self._lease:
            raise ValueError("a time that no calendar has")
        return moment

    def claim(
        self, plan: str, letters: Sequence[Letter], results: Sequence[Result] = (), made: int = maxsize
    ) -> set[str]:
        """Claim in one transaction. In a file all letters are inserted as if none were known; only where one
        is, they are looked up first."""
        if self.database.is_file:  # whose answers don't get lost on the way
            with suppress(_SomeAreKnownError):
                return self.database.run(lambda on: self._claim_new(on, plan, letters, results))
        return self._claim_unknown(plan, letters, results, made)

    def _claim_new(
        self, on: Transaction, plan: str, letters: Sequence[Letter], results: Sequence[Result]
    ) -> set[str]:
        """Claim without a question: nearly always nobody knows any of them."""
        self._record_results(on, results)
        if self._insert(on, plan, letters) != len(letters):
            raise _SomeAreKnownError
        return {letter.key for letter in letters}

    def _claim_unknown(
        self, plan: str, letters: Sequence[Letter], results: Sequence[Result], made: int
    ) -> set[str]:
        keys = [letter.key for letter in letters]
        mine_before: set[str] | None = None

        def work(on: Transaction) -> set[str]:
            nonlocal mine_before
            self._record_results(on, results)
            rows = _select(on, (*_KNOWN, "owner"), f"replays WHERE {_OF_KEYS}", keys)
            known = {key for key, *_ in rows}
            mine = {key for key, state, *_, owner in rows if state == "sending" and owner == self.owner}
            mine_before = mine if mine_before is None else mine_before
            # Not empty only when this runs again: the server took the claim, but its answer was lost.
            ours = mine - mine_before
            ours |= self._insert_new(on, plan, [x for x in letters if x.key not in known])
            open_again = {key for key, *was, _ in rows if _may_send(was, plan, made)}
            return ours | self._reclaim(on, plan, [x for x in letters if x.key in open_again], made)

        return self.database.run(work)

    def renew(self, keys: Sequence[str]) -> set[str]:
        """Put the end of the lease off for what is still `sending` and ours."""

        def work(on: Transaction) -> set[str]:
            _change(on, _RENEW, keys, self._now(on) + self._lease, self.owner)
            return self._ours(on, keys)

        return self.database.run(work) if keys else set()

    def record_results(self, results: Sequence[Result]) -> None:
        """Record results in one transaction; only from states that the sender itself may leave."""
        self.database.run(lambda on: self._record_results(on, results))

    def expire(self) -> int:
        """Look up owners of this host; for those of other hosts the lease alone counts."""

        def work(on: Transaction) -> int:
            moment = self._now(on)
            rows = on.select(("key", "owner", "lease_until"), "replays WHERE state = 'sending'")
            dead = {owner for owner in {owner for _, owner, _ in rows} if is_dead(owner)}
            over = {
                "its sender died before the answer came": [key for key, owner, _ in rows if owner in dead],
                "the lease ended before the answer came": [
                    key for key, owner, until in rows if owner not in dead and until < moment
                ],
            }
            return sum(self._resolve(on, keys, "in_doubt", why) for why, keys in over.items())

        return self.database.run(work)

    def states(self, keys: Sequence[str], plan: str = "", made: int = 0) -> Mapping[str, State]:
        """Return the states of keys, asked in chunks, so that no statement has too many parameters."""
        wanted = _KNOWN, f"replays WHERE {_OF_KEYS}", keys
        rows = self.database.run(lambda on: _select(on, *wanted), reading=True)
        return {key: "planned" if _may_send(was, plan, made) else was[0] for key, *was in rows}

    def counts(self, plan: str) -> Mapping[State, int]:
        """Let the database count; states without replays are absent."""
        return dict(self._select(("state", "count(*)"), "replays WHERE plan = ? GROUP BY state", plan))

    def counts_of_all(self) -> Mapping[str, Mapping[State, int]]:
        """Count in one query: none for each plan, which would look at all rows."""
        found: dict[str, dict[State, int]] = {}
        for plan, state, count in self._select(("plan", "state", "count(*)"), "replays GROUP BY plan, state"):
            found.setdefault(plan, {})[state] = count
        return found

    def entries(self, plan: str, state: State, last: int | None = None) -> list[Entry]:
        """Return all in memory: as many as are in that state, or `last`."""
        wanted = 'replays WHERE plan = ? AND state = ? ORDER BY number DESC, "key" DESC'
        limit = "" if last is None else f" LIMIT {last:d}"
        return [Entry(*row) for row in reversed(self._select(Entry._fields, wanted + limit, plan, state))]

    def resolve(self, keys: Sequence[str], state: State, detail: str) -> int:
        """Resolve in one transaction, in chunks; from states that reconcile may leave."""
        return self.database.run(lambda on: self._resolve(on, keys, state, detail))

    def rows(self) -> Iterator[tuple[Sequence[object], ...]]:
        """Yield page by page in the order of the keys, each a query of its own."""
        for chunk in self._pages(REPLAYS.names):
            yield tuple(zip(*chunk, strict=True))

    def sent_since(self, moment: int, plan: str) -> Iterator[Sequence[tuple[Any, ...]]]:
        """Yield page by page, as `rows`; by the time of the last change."""
        chosen = f"{_one_of(SENT)} AND updated_at >= ? AND plan <> ? AND"
        return self._pages(("record_id", "key", "state", "target"), chosen, moment, plan)

    def all_rows(self) -> Iterator[Sequence[tuple[Any, ...]]]:
        """Yield page by page, as `rows`."""
        return self._pages(COLUMNS)

    def adopt(self, rows: Sequence[tuple[Any, ...]]) -> int:
        """Insert what has no known key, in one transaction."""
        return self.database.run(lambda on: _insert(on, COLUMNS, rows))

    def forget(self, keys: Sequence[str]) -> int:
        """Delete rows of the state dismissed alone."""
        return self.database.run(lambda on: _change(on, _FORGET, keys))

    def version(self) -> tuple[int, ...]:
        """Return how many rows there are, and when they changed."""
        times = f"CAST(sum(updated_at % {snapshot.MANY}) AS BIGINT)"
        [row] = self._select(("count(*)", "coalesce(max(updated_at), 0)", f"coalesce({times}, 0)"), "replays")
        return row

    def events(self) -> list[Event]:
        """Return them by number, of one query."""
        return [event_of(text) for (text,) in self._select(("event",), "events ORDER BY number")]

    def append(self, events: Sequence[Event]) -> None:
        """Append events in one transaction of inserts that leave known events alone."""

        def work(on: Transaction) -> None:
            for event in events:
                on.insert_new("events", ("id", "event"), [(event.id, json.dumps(event))])

        if events:
            self.database.run(work)

    def _select(self, columns: Sequence[str], rest: str, *values: Any) -> Sequence[tuple[Any, ...]]:
        return self.database.run(lambda on: on.select(columns, rest, values), reading=True)

    def _pages(
        self, columns: Sequence[str], chosen: str = "", *values: Any
    ) -> Iterator[Sequence[tuple[Any, ...]]]:
        wanted = f'replays WHERE {chosen} "key" > ? ORDER BY "key" LIMIT {CHUNK_OF_ROWS}'
        after, place = "", columns.index("key")
        while chunk := self._select(columns, wanted, *values, after):
            if chunk[-1][place] == after:
                raise ArchiveError("the ledger's server gives the same replays for ever")
            yield chunk
            after = chunk[-1][place]

    def close(self) -> None:
        """Let go of the database."""
        self.database.close()
        if self._at_close:
            self._at_close()

    def _ours(self, on: Transaction, keys: Sequence[str]) -> set[str]:
        return {key for (key,) in _select(on, ("key",), _OURS, keys, self.owner)}

    def _insert_new(self, on: Transaction, plan: str, letters: Sequence[Letter]) -> set[str]:
        keys = [letter.key for letter in letters]
        if self._insert(on, plan, letters) == len(letters):
            return set(keys)
        return self._ours(on, keys)

    def _insert(self, on: Transaction, plan: str, letters: Sequence[Letter]) -> int:
        """Return how many of these nobody had claimed before."""
        if not letters:
            return 0
        moment = self._now(on)
        shared = ("sending", self.owner, moment + self._lease, moment, moment)
        rows = [(x.key, plan, x.number, x.record_id, str(x.target), x.lap, *shared) for x in letters]
        return _insert(on, _INSERTED, rows)

    def _reclaim(self, on: Transaction, plan: str, letters: Sequence[Letter], made: int) -> set[str]:
        """Reclaim letters: they are this plan's now, under its numbers, by which reconcile asks the broker
        for them."""
        if not letters:
            return set()
        moment = self._now(on)
        shared = self.owner, moment + self._lease, moment, moment
        for x in letters:  # one by one, see `_speak_simply`
            on.change(_RECLAIM, (plan, x.number, x.record_id, str(x.target), *shared, x.key, plan, made))
        return self._ours(on, [letter.key for letter in letters])

    def _record_results(self, on: Transaction, results: Sequence[Result]) -> None:
        moment = self._now(on)
        ordered = sorted(results, key=_state_and_detail)
        for (state, why), group in groupby(ordered, key=_state_and_detail):
            from_these = f"{_MOVE} owner = ? AND {_one_of(BY_OWNER[state])} AND {_OF_KEYS}"
            keys, detail = [one.key for one in group], self._fit(why) or None
            _change(on, from_these, keys, state, moment, detail, self.owner)

    def _resolve(self, on: Transaction, keys: Sequence[str], state: State, why: str) -> int:
        from_these = f"{_MOVE} {_one_of(BY_RECONCILE[state])} AND {_OF_KEYS}"
        return _change(on, from_these, keys, state, self._now(on), self._fit(why))

    def _fit(self, detail: str) -> str:
        """Return it in words that every database takes, whatever a broker has said: once a letter is sent,
        no text may keep its state from being written."""
        said = detail.encode(self.database.encoding, "backslashreplace").decode(self.database.encoding)
        return said.replace("\0", r"\0")[:_LONGEST_DETAIL]


def _insert(on: Transaction, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> int:
    return sum(_count(on.insert_new("replays", columns, some), len(some)) for some in _chunks(rows))


def _select(
    on: Transaction, columns: Sequence[str], rest: str, keys: Sequence[str], *values: Any
) -> list[tuple[Any, ...]]:
    """Select the rows of these keys, of which `rest` names no place."""
    return [row for some in _chunks(keys) for row in on.select(columns, _fill(some, rest), (*values, *some))]


def _change(on: Transaction, statement: str, keys: Sequence[str], *values: Any) -> int:
    """Change the rows of these keys, of which the statement names no place; return how many were changed."""
    return sum(
        _count(on.change(_fill(some, statement), (*values, *some)), len(some)) for some in _chunks(keys)
    )


def _fill(keys: Sequence[str], statement: str) -> str:
    return statement.format(", ".join("?" * len(keys)))


def _count(changed: int, most: int) -> int:
    """Return how many rows a statement has changed, by what the database says. Raises ValueError where that
    cannot be."""
    if not 0 <= changed <= most:
        raise ValueError("a count of rows that cannot be")
    return changed


def _state_and_detail(one: Result) -> tuple[State, str]:
    return one.state, one.detail or ""


def _may_send(was: Sequence[Any], plan: str, made: int) -> bool:
    state, of, since = was
    return state in MAY_SEND or (state in MAY_SEND_AGAIN and of != plan and since < made)


def _chunks(all_of_them: Sequence[_T]) -> Iterator[Sequence[_T]]:
    return (all_of_them[start : start + _CHUNK] for start in range(0, len(all_of_them), _CHUNK))
