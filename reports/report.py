"""A report from end to end: gathered, masked, and in the format that is asked for."""

import io
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from dlq.archive import analyses, losses, manifests, user_sql, views
from dlq.archive.storage.files import SHARED
from dlq.archive.storage.folder import PRIVATE
from dlq.archive.storage.store import Store
from dlq.archive.views import Queued
from dlq.core.clock import now
from dlq.core.documents import Document
from dlq.core.errors import NoLetters, UsageError
from dlq.core.failures import Event
from dlq.core.settings import Mask, Settings
from dlq.core.text import json_for_terminal
from dlq.core.values.suggestions import find_by_prefix, suggest
from dlq.reports import compare, failures, owners, retention, summary
from dlq.reports.formats import sample
from dlq.reports.formats.files import write_text
from dlq.reports.letters.masking import Masker

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

_FILE_WIDTH = 100
"""Columns of a terminal report that goes into a file."""


class Narrowing(NamedTuple):
    """A report on some letters alone."""

    condition: "Callable[[duckdb.DuckDBPyConnection], str | None]"
    """Which letters, as SQL over the columns of the view letters."""
    options: str
    """The options of the command line that choose these letters."""
    narrowed: Callable[[str], str]
    """A command that is about all letters -> the one about these."""


def make(
    store: Store,
    replays: "pa.Table | None" = None,
    mask: Mask | None = None,
    before: str | None = None,
    with_letters: bool = False,
    part: Narrowing | None = None,
    events: Sequence[Event] = (),
    queued: Queued | None = None,
    opened: "duckdb.DuckDBPyConnection | None" = None,
    settings: Settings | None = None,
) -> Document:
    """Return the report's document of the latest analysis, compared with the analysis `before` if that is
    given.

    `mask` (None: as it is) masks everything in it; `with_letters` adds samples of letters; `part` leaves
    all other letters out; `events` are what people said of failures; `queued` says which letters lie in
    their queues; `opened` are views of all that, which are used and closed in the place of new ones where
    neither a part nor another analysis is asked for; `settings` have what owners of consumers say.
    `alarming` are its `counts` without letters of snoozed failures, but for those in doubt. Raises
    UsageError where no letters are.
    """
    analysis = analyses.latest(store)
    if analysis is None and not any(manifest.rows for manifest in manifests.list_committed(store)):
        raise NoLetters(f"the archive {store.location} is empty: dlq pull or dlq import fills it")
    if before is not None:
        before = _find_analysis(store, before)
    masker = None if mask is None else Masker(mask)
    with opened or views.connect(store, replays, before=before, queued=queued) as connection:
        said = failures.lives(connection, events, now(), settings or Settings())
        lives = [{"fingerprint": one, **stands._asdict()} for one, stands in said.items()]
        if part is not None:
            views.narrow(connection, user_sql.condition(part.condition(connection)))
        document = summary.gather(connection, analysis, lives)
        document["retention"] = retention.gather(connection, store)
        document["owners"] = owners.gather(connection, settings or Settings())
        asleep = [row["fingerprint"] for row in lives if row["state"] == "snoozed"]
        document["alarming"] = summary.count_awake(connection, asleep) if asleep else document["counts"]
        if before is not None:
            document["compare"] = compare.gather(connection, before)
        letters = sample.gather(connection, masker, _named_letters(document)) if with_letters else None
    document["losses"] = [loss.as_json() for loss in losses.open_ones(store)]
    document["selection"] = None if part is None else part.options
    if part is not None:
        _tell(document, part)
    if masker is not None:
        document = masker.document(document)
    return document if letters is None else {**document, "sample": letters}


def _named_letters(document: Document) -> set[str]:
    """Return the letters that a reader of the report may look for."""
    firsts = {row["first_record_id"] for row in document["incidents"]}
    return {*firsts, *(row["example"] for row in document["fingerprints"])} - {None}


def _tell(document: Document, part: Narrowing) -> None:
    for step in document["next"]:
        step["command"] = part.narrowed(step["command"])


def _find_analysis(store: Store, analysis: str) -> str:
    """Return the analysis that begins so. Raises UsageError when none does, or several."""
    known = analyses.ids(store)
    listed = ", ".join(known[-5:])
    missing = f"no analysis {analysis!r}{suggest(analysis, known)}; the latest are {listed}"
    return find_by_prefix(analysis, known, missing)


def _terminal(document: Document) -> str:
    from rich.console import Console

    from dlq.reports.formats import terminal

    file = io.StringIO()
    terminal.render(
        Console(file=file, width=_FILE_WIDTH, color_system=None, highlight=False, emoji=False, markup=False),
        document,
    )
    return file.getvalue()


def _json(document: Document) -> str:
    return json_for_terminal(json.dumps(document, indent=2, ensure_ascii=False)) + "\n"


def _markdown(document: Document) -> str:
    from dlq.reports.formats import markdown

    return markdown.render(document)


def _html(document: Document) -> str:
    from dlq.reports.formats import html

    return html.render(document)


FORMATS: Mapping[str, Callable[[Document], str]] = {
    "terminal": _terminal,
    "json": _json,
    "markdown": _markdown,
    "html": _html,
}
"""Name -> the document as text. HTML needs a document that was made `with_letters`."""
WITH_LETTERS = ("html", "markdown")
"""Formats that show letters."""
_SUFFIXES: Mapping[str, str] = {
    ".html": "html", ".json": "json", ".md": "markdown", ".markdown": "markdown", ".txt": "terminal",
}  # fmt: skip


def checked_format(name: str) -> str:
    """Return `name`, when it is one of FORMATS; raises UsageError."""
    if name not in FORMATS:
        raise UsageError(f"unknown format {name!r}{suggest(name, FORMATS)}; known are {', '.join(FORMATS)}")
    return name


def format_of_file(path: str) -> str:
    """Return the format that a file's name says; terminal text when it says none. Raises UsageError for the
    name of another format."""
    suffix = Path(path).suffix.lower()
    if suffix not in _SUFFIXES and suffix[1:2].isalpha():
        raise UsageError(
            f"a report is no {suffix} file: {path}; name it {', '.join(_SUFFIXES)}, or use --format"
        )
    return _SUFFIXES.get(suffix, "terminal")


def write(document: Document, format_: str, path: str, masked: bool = False, parents: bool = True) -> None:
    """Write the report to a file, whole or not at all; for its owner's eyes alone unless it is `masked`.
    `parents` makes the folders above. Raises UsageError."""
    write_text(path, FORMATS[format_](document), SHARED if masked else PRIVATE, parents)
