"""Letters that something newer of their business key has replaced: sent back, they would overwrite it.

What proves it is the log that they came from (`Connector.newer`), or another letter: a newer one of the key
that was replayed and did not come back, or that goes with the same plan. Where nobody could look, that is
said, and the letter counts as not superseded.
"""

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from dlq.archive import user_sql, views
from dlq.archive.storage.store import Store
from dlq.connectors import deadline
from dlq.connectors.newer import Bound, NewerProof, NewerSearch, Sought
from dlq.core.brokers import plugin_of
from dlq.core.errors import BrokerError
from dlq.core.headers.provenance import REPLAY_OF
from dlq.core.keys import key_reader
from dlq.core.record import Record
from dlq.core.settings import Settings
from dlq.core.text import sql_literal
from dlq.core.values.units import human_seconds
from dlq.replay import came_back
from dlq.replay.plans.letters import Place, lap_of
from dlq.replay.runs.brokers import Brokers
from dlq.replay.runs.load import Loader
from dlq.replay.runs.ordering import FIRST_SENDINGS

if TYPE_CHECKING:
    import duckdb

SECONDS, MESSAGES, SIZE = 120.0, 20_000_000, 4 * 2**30
"""The bound of the look at one broker."""
MOST = 100_000
"""Letters of one broker."""
_COLUMNS = (
    "record_id", "source", "broker_kind", "message_id", "keys", "key", "origin", "origin_group",
    "origin_exchange", "origin_routing_key", "published_at", "dead_at", "headers", "properties",
    "raw_properties",
)  # fmt: skip
Say = Callable[[str], None]
_Goes = Callable[[pa.RecordBatch], Sequence[bool]]
_Group = tuple[object, ...]
_BECAME = {False: "was replayed and did not come back", True: "is chosen for this plan, too"}
"""Whether the newer letter of a key is asked for itself -> what became of it."""
_FIRST_SENT = f"""{FIRST_SENDINGS}
    SELECT record_id, r.message_id, epoch_us(coalesce(r.published_at, k.published_at))
    FROM first JOIN records k USING (record_id) LEFT JOIN records r ON r.record_id = root
    WHERE r.record_id IS NULL OR (r.source = k.source AND r.origin IS NOT DISTINCT FROM k.origin)"""
_MAY_GO = "(replay_state IS NULL OR replay_state IN ('planned', 'returned', 'refused'))"


@dataclass
class Found:
    """What is known of the letters of a plan."""

    why: dict[str, str] = field(default_factory=dict)
    """Id of a superseded letter -> what proves it."""
    behind: set[str] = field(default_factory=set)
    """Ids of those that would have the ledger's key of a newer one of the plan, where that is of business
    keys: one of them can go."""
    unlooked: Counter[str] = field(default_factory=Counter)
    """Why it is not known -> of how many letters."""


class Asked(NamedTuple):
    """What a plan wants to know, and by what."""

    store: Store
    settings: Settings
    connection: "duckdb.DuckDBPyConnection"
    check: bool | None
    """None: where a source names a key, and its broker has a log."""
    where: str | None
    goes: _Goes
    """Whether the advice of each of these letters lets it go."""
    columns: Sequence[str]
    """That `goes` needs, beside record_id."""
    sent: pa.Table
    """See `elsewhere.list_sent`."""
    say: Say
    """Told how much is looked at, at most, before that."""
    in_order: Collection[str] = ()
    """Sources whose letters of a key go one after the other, so that none overwrites a newer one of the
    plan."""


class _Known(NamedTuple):
    """What is remembered of a letter."""

    record_id: str
    group: _Group
    """The same for all that may replace each other: source, origin, its group, and key."""
    trip: tuple[object, ...]
    """The same for those of a group that go to one target for the same time."""
    published_at: int | None
    is_asked: bool
    """False: it was replayed, and did not come back."""


def find(asked: Asked, brokers: Brokers) -> Found:
    """Look at each broker that the plan asks for. Raises UsageError, ArchiveError."""
    found, chosen = Found(), dict[str, list[str]]()
    for name, source in asked.settings.sources.items():
        has_log = plugin_of(asked.settings.brokers[source.broker].kind).keeps_letters
        if asked.check or (asked.check is None and has_log and source.key != "message_id"):
            chosen.setdefault(source.broker, []).append(name)
    for broker, sources in chosen.items():
        _Look(asked, broker, sources, found).look(brokers)
    return found


class _Look:
    """At the letters of one broker."""

    def __init__(self, asked: Asked, broker: str, sources: Sequence[str], found: Found) -> None:
        self._asked, self._broker, self._found = asked, broker, found
        mine = f"source IN ({', '.join(map(sql_literal, sources))})"
        self._chosen = f"{user_sql.condition(asked.where)} AND {_MAY_GO} AND {mine}"
        self._same_key = f"{mine} AND key IN (SELECT key FROM letters WHERE {self._chosen})"
        self._letters: list[_Known] = []
        self._proof = NewerProof()

    def look(self, brokers: Brokers) -> None:
        """Look for newer messages. Raises UsageError, ArchiveError."""
        if not self._rows(f"SELECT 1 FROM letters WHERE {self._chosen} LIMIT 1"):
            return
        several = "QUALIFY count(*) OVER (PARTITION BY key) > 1"
        died = self._rows(f"SELECT origin_group, message_id FROM letters WHERE {self._same_key} {several}")
        letters, why = self._read(), f"{self._broker} keeps no log"
        try:
            with deadline.within(2 * SECONDS):
                search = NewerSearch(letters, died, Bound(SECONDS, MESSAGES, SIZE), self._say)
                proof = brokers.get(self._broker).newer(search)
        except BrokerError as error:
            proof, why = None, str(error)
        if proof is not None:
            self._proof = proof
        else:
            deque(letters, maxlen=0)
            self._proof.unlooked = {n: why for n, one in enumerate(self._letters) if one.is_asked}
        best = self._newest()
        for number, one in enumerate(self._letters):
            if one.is_asked and (why := str(self._proof.newer.get(number, "") or self._newer(number, best))):
                self._found.why[one.record_id] = why
                if self._is_newer(best[True, one.group + one.trip], number):
                    self._found.behind.add(one.record_id)
            elif number in self._proof.unlooked:
                self._found.unlooked[self._proof.unlooked[number]] += 1

    def _rows(self, sql: str) -> set[tuple[Any, ...]]:
        return set(user_sql.run(self._asked.connection, sql).rows)

    def _say(self, messages: int) -> None:
        self._asked.say(
            f"looks for newer messages: at up to {messages:,} of {self._broker}, "
            f"for at most {human_seconds(SECONDS)}"
        )

    def _read(self) -> Iterator[Sought]:
        """Yield the letters that may go, then those of their keys that were replayed."""
        yield from self._select(self._chosen, self._asked.goes, self._asked.columns, is_asked=True)
        confirmed = f"replay_state = 'confirmed' AND {self._same_key}"
        ids = pa.array([one for (one,) in self._rows(f"SELECT record_id FROM letters WHERE {confirmed}")])
        sent = self._asked.sent.filter(pc.is_in(self._asked.sent["record_id"], ids.cast(pa.string())))
        back = came_back.find_among(self._asked.store, sent["key"].to_pylist(), 0) if len(sent) else set()
        again = {row["record_id"] for row in sent.to_pylist() if row["key"] in back}
        lives = lambda rows: [one not in again for one in rows["record_id"].to_pylist()]  # noqa: E731
        if len(sent):
            yield from self._select(confirmed, lives, (), is_asked=False)

    def _select(self, where: str, goes: _Goes, columns: Sequence[str], is_asked: bool) -> Iterator[Sought]:
        loader = Loader(self._asked.store, _COLUMNS)
        for rows in views.segment_rows(self._asked.connection, where, ("record_id", *columns)):
            found = rows.filter(pa.array(goes(rows), pa.bool_()))
            room = max(0, MOST - len(self._letters))
            if is_asked and len(found) > room:
                self._found.unlooked[f"it is one of more than {MOST:,}: choose fewer"] += len(found) - room
            found = found.slice(0, room)
            places = map(Place, *(found[name].to_pylist() for name in ("record_id", "stem", "row")))
            for record in map(self._as_first_sent, loader.records([*places])):
                spec = self._asked.settings.sources[record.source].key
                if spec != "message_id" and record.key is not None:
                    group = record.source, record.origin, record.origin_group, record.key
                    trip = lap_of(record), record.origin_exchange, record.origin_routing_key
                    self._letters.append(_Known(record.record_id, group, trip, record.published_at, is_asked))
                    yield Sought(record, key_reader(spec), is_asked)
                elif is_asked:
                    self._found.unlooked["it has no business key"] += 1

    def _as_first_sent(self, record: Record) -> Record:
        """Let a letter that came back stand where its message was first: its replay made it no newer. Where
        that one is not in the archive any more, nobody knows where it stands."""
        is_back = REPLAY_OF in record.headers or REPLAY_OF in record.properties
        first = self._first_sent.get(record.record_id) if is_back else None
        return record if first is None else record._replace(message_id=first[0], published_at=first[1])

    @cached_property
    def _first_sent(self) -> Mapping[str, tuple[str | None, int | None]]:
        with closing(views.connect(self._asked.store)) as connection:  # the plan's is being read from
            rows = user_sql.run(connection, _FIRST_SENT).rows
            return {record_id: (message_id, at) for record_id, message_id, at in rows}

    def _newest(self) -> dict[tuple[bool, _Group], int]:
        """Return the newest of the letters that replace each other, and of those that share a trip, of those
        asked for and of those replayed."""
        found: dict[tuple[bool, _Group], int] = {}
        for number, one in enumerate(self._letters):
            for group in (one.group, one.group + one.trip):
                known = found.setdefault((one.is_asked, group), number)
                if self._is_newer(number, known):
                    found[one.is_asked, group] = number
        return found

    def _is_newer(self, number: int, other: int) -> bool:
        """Return whether a letter is newer, by the log that both came from; else by when they were sent,
        where that is known."""
        mine, its = (self._proof.places.get(n, ("", 0)) for n in (number, other))
        if mine[0] and mine[0] == its[0]:
            return mine[1] > its[1]
        sent, before = (self._letters[n].published_at for n in (number, other))
        return sent is not None and before is not None and sent > before

    def _newer(self, number: int, best: Mapping[tuple[bool, _Group], int]) -> str:
        """Return which newer letter has replaced this one, in words; empty: none has."""
        for is_asked, became in _BECAME.items():
            other = best.get((is_asked, self._letters[number].group), number)
            goes_before = is_asked and self._letters[number].group[0] in self._asked.in_order
            if not goes_before and self._is_newer(other, number):
                name = self._letters[other].record_id[:12]
                return f"letter {name} of its key is newer, and {became}"
        return ""
