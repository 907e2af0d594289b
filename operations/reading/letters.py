"""Letters: listed page by page, one in full, and whatever SQL asks of them."""

import base64
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from dlq.archive import short_ids, user_sql, views
from dlq.archive.brief import sum_up
from dlq.archive.views import Order, Position, show_replays
from dlq.core.brokers import plugin_of, resolve
from dlq.core.clock import from_iso, now
from dlq.core.documents import Document
from dlq.core.errors import UsageError
from dlq.core.failures import ORDER
from dlq.core.values.suggestions import suggest
from dlq.core.values.units import human_bytes
from dlq.operations.reading.selecting import EVERY, Selection, choose
from dlq.operations.reading.views import open_views, read_events, read_replays
from dlq.operations.workspace import Workspace
from dlq.replay.plans.owners import TIMES, Owners, oldest_of
from dlq.reports.failures import states
from dlq.reports.letters import letter, unpacking
from dlq.reports.letters.body import LARGEST, Preview, preview, preview_document

if TYPE_CHECKING:
    import duckdb

    from dlq.core.settings import Settings
    from dlq.reports.letters.masking import Masker

_LARGEST = 256 * 2**20
"""Bytes that a body may unpack to: what grows beyond is an attack or damage."""


_FIRST = 1_000
"""Of all letters that are listed, how many are sought by themselves."""


class LettersWanted(NamedTuple):
    """Which letters to list, and what of each."""

    selection: Selection = EVERY
    columns: Sequence[str] = views.LS_COLUMNS
    limit: int = 0
    """At most so many; 0: all."""
    after: str | None = None
    """Only those behind the page that ended with this `Letters.last`."""
    order: Order | None = None
    """None: the newest dead first."""
    newest_alone: bool = False
    """What is found at once, among the newest of all letters."""


@dataclass
class Letters:
    """A page of letters, the newest dead first. Its rows stream: read them before anything else is asked."""

    columns: Sequence[str]
    rows: Iterator[tuple[Any, ...]]
    connection: "duckdb.DuckDBPyConnection"
    condition: str
    """The selection, as checked SQL."""
    last: str | None = None
    """The key of the last letter that was read, for the next page."""
    is_more: bool = False
    """Whether the page was cut at its limit; known once all rows are read."""

    def count(self) -> int:
        """Return how many letters the selection has, on all pages."""
        return views.count(self.connection, self.condition)


def list_letters(workspace: Workspace, wanted: LettersWanted) -> Letters:
    """Return one page of the letters that are selected. Raises UsageError for a condition, column or key that
    is none."""
    connection = open_views(workspace)
    condition = user_sql.condition(wanted.selection.condition(workspace, connection))
    if wanted.newest_alone:
        condition = f"{condition} AND {views.among_newest(connection)}"
    letters = Letters(wanted.columns, iter(()), connection, condition)
    found = _find(letters, wanted.after, wanted.order, (wanted.limit or _FIRST) + 1)
    limit = wanted.limit
    letters.rows = _read_page(letters, found, limit) if limit else _read_all(letters, found, wanted.order)
    return letters


def count_letters(
    workspace: Workspace, selection: Selection, ids: Sequence[str] = (), is_dear: bool = False
) -> int:
    """Return how many letters are named by id, else selected; `is_dear` as `views.count`. Raises UsageError
    for a condition that is none."""
    with closing(open_views(workspace)) as connection:
        condition = user_sql.condition(choose(workspace, connection, ids, selection))
        return views.count(connection, condition, is_dear)


def list_values(
    workspace: Workspace, columns: Sequence[str], most: int
) -> Mapping[str, Sequence[str | None]]:
    """Return what letters have in these columns of `sum_up`, the most frequent first."""
    with closing(open_views(workspace)) as connection:
        sum_up(connection)
        return {
            name: [value for value, _ in user_sql.run(connection, _VALUES.format(name, most)).rows]
            for name in columns
        }


_VALUES = "SELECT {0}, sum(letters) FROM _sums WHERE is_letter GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT {1}"


def _find(
    letters: Letters, after: str | None, order: Order | None, limit: int = 0
) -> Iterator[tuple[Any, ...]]:
    """Return its rows behind this key, each with a key of its own."""
    behind = "(true)" if after is None else condition_behind(after, order)
    columns = [*letters.columns, *Position._fields, *([order.column] if order else ())]
    return views.newest(letters.connection, columns, f"{letters.condition} AND {behind}", limit, order).rows


def _read_all(
    letters: Letters, first: Iterator[tuple[Any, ...]], order: Order | None
) -> Iterator[tuple[Any, ...]]:
    """Yield the first ones before all are sorted."""
    yield from list(_read_page(letters, first, _FIRST))
    if letters.is_more:
        letters.is_more = False
        yield from (row[: len(letters.columns)] for row in _find(letters, letters.last, order))


def _read_page(letters: Letters, rows: Iterator[tuple[Any, ...]], limit: int) -> Iterator[tuple[Any, ...]]:
    width = len(letters.columns)
    for row in islice(rows, limit):
        letters.last = "~".join("" if part is None else str(part) for part in row[width:])
        yield row[:width]
    letters.is_more = next(rows, None) is not None


def condition_behind(key: str, order: Order | None = None) -> str:
    """Return SQL for the letters behind the page that ended with this `Letters.last`. Raises UsageError."""
    *parts, value = key.split("~", 4) if order else [*key.split("~", 3), ""]
    times = [from_iso(text) for text in parts[:2] if text]
    if len(parts) != 4 or None in times:
        raise UsageError(f"{key!r} is no key of a page of letters; open the list again")
    place = Position(parts[0] or None, parts[1] or None, *parts[2:])
    return views.condition_behind(place, order, value or None)


_SORTED = ("dead_at", "source", "cause", "advice", "attempts", "replay_state", "laps", "body_size")


def read_order(text: str) -> Order:
    """Return the order that `text` names: a column, or `-` and a column for the largest first. Raises
    UsageError."""
    column = text.removeprefix("-")
    if column not in _SORTED:
        raise UsageError(f"--sort {text}: no order{suggest(column, _SORTED)}; known are {', '.join(_SORTED)}")
    return Order(column, text.startswith("-"))


def read_columns(text: str) -> Sequence[str]:
    """Return the columns of letters that `text` names, with commas between; raises UsageError for others."""
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in views.LETTER_COLUMNS:
            raise UsageError(
                f"unknown column {name!r} in --columns{suggest(name, views.LETTER_COLUMNS)}; check its name"
            )
    return names


def add_states(workspace: Workspace, letters: Letters, found: Sequence[Document]) -> Sequence[Document]:
    """Return these letters with the `state` of their failures, what needs a person first; as they are where
    nobody ever spoke of a failure. `found` needs the column fingerprint."""
    if not (said := read_events(workspace)):
        return found
    known = states(letters.connection, said, now(), workspace.settings)
    told = [{**one, "state": known.get(one["fingerprint"], "new")} for one in found]
    return sorted(told, key=lambda one: ORDER.index(one["state"]))


def show_letter(
    workspace: Workspace, prefix: str, masker: "Masker | None" = None, explained: bool = False
) -> Document:
    """Return all that is known of the letter whose id begins so (8 or more digits): its columns, what belongs
    to it, what to do next; with `explained` which rules looked at it, what each saw, and what follows. Raises
    UsageError for none or several."""
    with closing(open_views(workspace, with_ledger=False)) as connection:
        page = views.page_of(connection, prefix) if short_ids.is_whole(prefix) else {}
        record_id = prefix if page else short_ids.record_id(connection, prefix)
        if workspace.views is None:  # which have all of the ledger
            show_replays(
                connection, read_replays(workspace, record_ids=letter.list_copies(connection, record_id))
            )
        lies = views.on_page(page or views.page_of(connection, record_id))
        found = letter.gather(connection, record_id, lies)
        found = found if masker is None else {**masker.document(found), "masked": True}
        if explained:
            steps = {"explain": _explain(workspace, connection, found, lies)}
            found |= steps if masker is None else masker.document(steps)
    return found | {"owners": describe_owners(found, workspace.settings)}


def describe_owners(found: Document, settings: "Settings") -> list[str]:
    """Return what the owners of its consumers say of a letter, as it is true at the moment."""
    owners = Owners(settings)
    owners.count(found["source"], oldest_of(from_iso(found[name] or "") for name in TIMES))
    return owners.describe()


def _explain(
    workspace: Workspace, connection: "duckdb.DuckDBPyConnection", found: Document, lies: str
) -> list[Document]:
    record = next(views.read_records(connection, lies))
    # All rules are imported for them, which takes as long as to find the letter.
    from dlq.analyzers import topology
    from dlq.reports.letters import explain

    return explain.gather(found, record, topology.facts(workspace.store, workspace.settings))


def preview_body(found: Mapping[str, Any], full: bool = False) -> Preview:
    """Return what people are shown of a letter's body; with `full` up to 4 MiB of it."""
    if found.get("masked"):
        return preview(*unpack_body(found), None, full)
    kind = plugin_of(found["broker_kind"])
    try:
        body, encoding = unpack_body(found, LARGEST)
        told = resolve(kind.readable)(body, found["properties"] or {}) if kind.readable else None
        if told is not None:
            document, note = told
            return preview_document(document, note, full) if document else preview(body, None, note, full)
    except ValueError as error:
        reason = f"{error}, or more than {human_bytes(LARGEST)}; --body FILE writes up to 256 MiB"
        return preview(base64.b64decode(found["body_base64"]), None, reason, full)
    return preview(body, encoding, kind.why_no_text(found["flags"] or 0), full)


def unpack_body(found: Mapping[str, Any], limit: int = _LARGEST) -> tuple[bytes, str | None]:
    """Return a letter's body, and how it is packed where that can be streamed; what else its broker's clients
    pack is unpacked here, up to `limit` bytes. Raises ValueError."""
    body, flags = base64.b64decode(found["body_base64"] or ""), found["flags"] or 0
    if found.get("masked"):  # its shape, which nothing has packed
        return body, None
    kind = plugin_of(found["broker_kind"])
    if packing := kind.packing(flags):
        return body, packing
    plain = resolve(kind.unpack)(body, flags, limit) if kind.unpack else None
    if plain is not None:
        return plain, None
    return body, unpacking.packing_of(found["content_encoding"], found["headers"] or {})


def run_query(workspace: Workspace, sql: str) -> user_sql.Rows:
    """Return what one SELECT of a user's finds in the archive's views; ids in it may be short. Raises
    UsageError."""
    checked = user_sql.single_select(sql)
    connection = open_views(workspace, with_plans="audit" in checked.lower())
    return user_sql.run(connection, short_ids.expand(connection, checked))
