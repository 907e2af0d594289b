"""In which order the letters of a plan go back, key by key: those of one business key in the order in which
they were sent, the first of each key together, then the second of each.

A letter stands where its message was first sent, also when it came back from replays since: its time of
sending, and in the same second its place in the archive. Where one of a key has no time, places alone count.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from dlq.archive import user_sql, views
from dlq.archive.storage.store import Store
from dlq.core.brokers import plugin_of, plugins
from dlq.core.causes import SAME_KEY
from dlq.core.errors import BrokerError, UsageError
from dlq.core.headers.provenance import REPLAY_OF
from dlq.core.settings import Settings
from dlq.core.text import sql_literal
from dlq.replay import ledger as ledgers
from dlq.replay.plans.destinations import Destination
from dlq.replay.plans.letters import Letter
from dlq.replay.runs.brokers import Brokers
from dlq.replay.runs.consumed import is_told, read_standing

if TYPE_CHECKING:
    import duckdb

InOrder = Literal["consumed", "sent"]
"""What lets the next letter of a key go: that the one before was consumed, or that the broker has it."""
_LONGEST_KEY = 1_000
"""Characters; of a longer one its digest stands for it."""
_NAMED, _ID_DIGITS = 3, 12
_MOST_TRIPS = 16
_DONE = ("confirmed", "dismissed")
_FIELDS = {"header": "headers", "property": "properties"}
FIRST_SENDINGS = f"""
    WITH RECURSIVE trips AS (
        SELECT record_id, coalesce(headers['{REPLAY_OF}'], properties['{REPLAY_OF}']) AS parent
        FROM records WHERE parent IS NOT NULL
    ), back AS (
        SELECT record_id, parent, 1 AS trip FROM trips
        UNION ALL
        SELECT b.record_id, t.parent, b.trip + 1 FROM back b JOIN trips t ON t.record_id = b.parent
        WHERE b.trip < {_MOST_TRIPS}
    ), first AS (SELECT record_id, arg_max(parent, trip) AS root FROM back GROUP BY record_id)"""
"""Begins SQL with the table `first`: letters that came back from replays -> as which letter (`root`) their
message died first."""
_TOLD = f"""{FIRST_SENDINGS}, placed AS (FROM _placed JOIN _segments USING (segment_file)
    ), keyed AS (SELECT *, coalesce({{key}}, '') AS line FROM placed WHERE {{ordered}}
    ), asked AS (SELECT unnest(?) AS record_id
    ), lines AS (SELECT DISTINCT line FROM keyed SEMI JOIN asked USING (record_id))
    SELECT k.record_id, k.line, epoch_us(coalesce(r.published_at, k.published_at)),
           coalesce(r.stem, k.stem), coalesce(r.segment_row, k.segment_row), k.replay_state,
           k.record_id IN (SELECT parent FROM trips)
    FROM keyed k LEFT JOIN first f ON f.record_id = k.record_id LEFT JOIN placed r ON r.record_id = f.root
    WHERE k.record_id IN (FROM asked) OR (k.line <> '' AND k.line IN (FROM lines))"""


_LIKE = "source, cause, mechanism, rule, exception_family, also_possible, laps"
"""Columns of a verdict that decide what is advised, but for what it has in common with others."""
_OF_KEYS = f"""
    WITH alike AS (
        SELECT {_LIKE}, min(advice) AS advice FROM verdicts
        WHERE advice_reason IS DISTINCT FROM {{reason}} GROUP BY ALL HAVING count(DISTINCT advice) = 1)
    SELECT v.record_id, CASE WHEN v.advice_reason = {{reason}} THEN a.advice END
    FROM verdicts v LEFT JOIN alike a ON {{like}}
    WHERE v.duplicate_kind = 'same_key' AND {{ordered}}"""


def find_of_keys(
    connection: "duckdb.DuckDBPyConnection", settings: Settings, by_all: bool
) -> dict[str, str | None]:
    """Return the letters that have nothing but their key in common with others, and so are no duplicates
    where it is the name of what several messages are about; with the advice for letters that died alike,
    where the common key has decided on theirs."""
    like = " AND ".join(f"v.{name} IS NOT DISTINCT FROM a.{name}" for name in _LIKE.split(", "))
    ordered = "true" if by_all else _in_order(settings).replace("source", "v.source", 1)
    sql = _OF_KEYS.format(reason=sql_literal(SAME_KEY), like=like, ordered=ordered)
    return dict(user_sql.run(connection, sql).rows)


class Told(NamedTuple):
    """What the archive and the ledger tell of a letter; `line` is its key, empty where it has none."""

    record_id: str
    line: str
    sent_at: int | None
    stem: str
    row: int
    state: str | None
    died_again: bool


def tell(store: Store, settings: Settings, record_ids: Collection[str], by_all: bool) -> list[Told]:
    """Return these letters and all others of their keys; of the sources alone that are `in_order`, unless
    `by_all`. Raises ArchiveError."""
    sql = _TOLD.format(key=_key_of(settings), ordered="true" if by_all else _in_order(settings))
    replays = ledgers.as_arrow(settings.ledger, store)
    with closing(views.connect(store, replays)) as connection:
        return [Told(*row) for row in user_sql.run(connection, sql, [[*record_ids]]).rows]


def _key_of(settings: Settings) -> str:
    """Return the SQL of a letter's key: what its source calls the business key, else that of its broker."""
    named = [name for name, source in settings.sources.items() if source.key != "message_id"]
    own = " ".join(
        f"WHEN {sql_literal(name)} THEN coalesce({', '.join(map(_column, kind.order_key))})"
        for name, kind in plugins().items()
        if kind.order_key
    )
    key = f"CASE WHEN {_is_one_of(named)} THEN key ELSE CASE broker_kind {own} END END"
    return f"CASE WHEN length({key}) > {_LONGEST_KEY} THEN 'sha256:' || sha256({key}) ELSE {key} END"


def _column(place: str) -> str:
    kind, _, name = place.partition(":")
    return f"{_FIELDS[kind]}[{sql_literal(name)}]"


def _in_order(settings: Settings) -> str:
    return _is_one_of([name for name, source in settings.sources.items() if source.in_order])


def _is_one_of(sources: Collection[str]) -> str:
    return f"source IN ({', '.join(map(sql_literal, sources))})" if sources else "false"


class Arranged(NamedTuple):
    """The letters of a plan in their order, how many have no key, and what is to be said of it."""

    letters: Sequence[Letter]
    unkeyed: int
    warnings: Mapping[str, int]


def arrange(store: Store, settings: Settings, letters: Sequence[Letter], by_all: bool) -> Arranged:
    """Give each letter its key, and put them into the order in which they go. Raises as `tell`."""
    told = tell(store, settings, [letter.record_id for letter in letters], by_all)
    known = {one.record_id: one for one in told}
    lines: defaultdict[tuple[str, str], list[Letter]] = defaultdict(list)
    turns: list[tuple[int, Letter]] = []
    for letter in letters:
        if (one := known.get(letter.record_id)) and one.line:
            lines[letter.broker, one.line].append(letter._replace(business_key=one.line))
        else:
            turns.append((0, letter))
    unkeyed, undated = sum(letter.record_id in known for _, letter in turns), 0
    for some in lines.values():
        mine = [known[letter.record_id] for letter in some]
        position = _position_in(mine)
        undated += sum(one.sent_at is None for one in mine)
        turns += enumerate(sorted(some, key=lambda letter: position(known[letter.record_id])))
    turns.sort(key=lambda turn: (turn[0], turn[1].segment, turn[1].row))
    said = {_UNDATED: undated, _UNKEYED: unkeyed} | overtaken({one.record_id for _, one in turns}, told)
    return Arranged(
        [one for _, one in turns], unkeyed, {text: count for text, count in said.items() if count}
    )


_UNKEYED = (
    "they have no key, and go in no order; the setting key of their source says where it stands "
    '(key = "header:order-id")'
)
_UNDATED = "they have no time of sending: their keys go in the order of the archive"


def _position_in(some: Iterable[Told]) -> Callable[[Told], tuple[Any, ...]]:
    """Return the key by which letters of one business key are sorted."""
    is_dated = all(one.sent_at is not None for one in some)
    return lambda one: (one.sent_at if is_dated else 0, one.stem, one.row)


def overtaken(going: Collection[str], told: Iterable[Told]) -> dict[str, int]:
    """Return what is out of order already, or will be: a sentence each, and how many letters it is about."""
    lines: defaultdict[str, list[Told]] = defaultdict(list)
    for one in told:
        if one.line:
            lines[one.line].append(one)
    late: list[str] = []
    early: list[str] = []
    for some in lines.values():
        position = _position_in(some)
        mine = [one for one in some if one.record_id in going]
        others = [one for one in some if one.record_id not in going and not one.died_again]
        newest = max((position(one) for one in others if one.state == "confirmed"), default=())
        oldest = min((position(one) for one in others if one.state not in _DONE), default=None)
        late += [one.record_id for one in mine if position(one) < newest]
        early += [one.record_id for one in mine if oldest is not None and oldest < position(one)]
    return {f"{text} ({_some_of(ids)})": len(ids) for text, ids in ((_LATE, late), (_EARLY, early)) if ids}


_LATE = "a newer message of their key was sent again before: they come after it"
_EARLY = "an older letter of their key is left out, and comes after them if it goes later"


def _some_of(record_ids: Sequence[str]) -> str:
    """Name some of these letters by their ids: a key itself may be nothing for everybody who sees a plan."""
    more = ", …" if len(record_ids) > _NAMED else ""
    return ", ".join(one[:_ID_DIGITS] for one in record_ids[:_NAMED]) + more


def check_evidence(
    brokers: Brokers, settings: Settings, places: Collection[Destination], warn: Callable[[str], None]
) -> None:
    """Check that something shows of each place that its letters are consumed. Raises UsageError where nothing
    does; that this could not be asked is a warning."""
    try:
        found = read_standing(brokers, places)
    except BrokerError as error:
        warn(f"whether their consumers can be watched is not proven: {error}")
        return
    for broker, target in sorted(places):
        named = settings.brokers[broker]
        kind = plugin_of(named.kind)
        if is_told(found.get((broker, target), ())) and not kind.ramp_note:
            continue
        hint = kind.ramp_note or ("" if target.kind == "topic" else kind.tells_more(named))
        raise UsageError(
            f"nothing shows whether letters for {target} on {broker} are consumed{hint and f' ({hint})'}, so "
            "the next of a key cannot wait for it; use --in-order=sent for the order of sending alone"
        )


def places_in_order(letters: Iterable[Letter]) -> set[Destination]:
    """Return where letters go that go after others."""
    return {(one.broker, one.target) for one in letters if one.business_key}
