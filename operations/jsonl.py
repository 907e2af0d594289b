"""Letters from files into the archive, and from the archive into files."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from itertools import chain
from typing import TYPE_CHECKING, Any, BinaryIO

from dlq.analyzers import topology
from dlq.archive import analyses, views
from dlq.archive.manifests import BY_IMPORT
from dlq.archive.schema import SEGMENT, to_records
from dlq.archive.storage.store import Store
from dlq.archive.user_sql import condition, guarded, run
from dlq.capture.pull import PullOptions, pull
from dlq.connectors.file import UNNAMED, FileConnector
from dlq.connectors.jsonl.console_formats import reader_of
from dlq.connectors.jsonl.format import line_of, masked_line
from dlq.core.brokers import resolve
from dlq.core.configuration import check_name
from dlq.core.errors import DlqError, UsageError, with_next_step
from dlq.core.record import Record
from dlq.core.settings import Source
from dlq.core.text import quote_value
from dlq.core.values.suggestions import suggest
from dlq.operations.outcome import ExitCode, code_of
from dlq.operations.reading.selecting import Selection
from dlq.operations.reading.views import open_views, read_events
from dlq.operations.triage import Triage, classify_new
from dlq.operations.workspace import Workspace
from dlq.reports import bundle
from dlq.reports.letters.masking import Masker

if TYPE_CHECKING:
    import duckdb

_BATCH_ROWS = 1000
_MOST_REFUSED = 50
_TWINS = """
    SELECT count(DISTINCT record_id) FROM records new WHERE pull_id = ? AND EXISTS (
        SELECT 1 FROM records old WHERE old.record_id = new.record_id AND old.source <> new.source
    )"""
Content = Callable[[BinaryIO], int]
"""Writes letters, and says how many they were."""


@dataclass(frozen=True)
class Imported:
    """What came of a file. `twins`: letters that the archive holds under another source, too; `error`: what
    ended it before the end of the file."""

    document: dict[str, Any]
    died: Triage
    twins: int
    error: DlqError | None

    @property
    def code(self) -> ExitCode:
        """Whether every line was taken, and every letter classified."""
        if self.error is not None:
            return code_of(self.error)
        return ExitCode.PARTLY if self.document["refused"] else self.died.code


def import_file(
    workspace: Workspace,
    file: str,
    source: str = "import",
    printed_by: str | None = None,
    analyze: bool = True,
    broker: str | None = None,
) -> Imported:
    """Add the letters of a JSONL file (`-`: of standard input), or of what the program `printed_by` printed.
    They go back to `broker`, or to that of a configured source, whatever a line says. The listener hears of
    each line that is refused. Raises UsageError."""
    place = _place(workspace, source, broker)
    if file.endswith(".zip"):
        raise UsageError(f"{file} is a zip bundle: unzip it, then import its letters.jsonl")
    printed = resolve(reader_of(printed_by)) if printed_by else None
    result = pull(workspace.store, FileConnector(file, printed), place, PullOptions(BY_IMPORT))
    for note in result.notes:
        workspace.listener.complain(note)
    for problem in result.left_letters[:_MOST_REFUSED]:
        workspace.listener.complain(f"{file}: {problem}")
    if result.skipped > _MOST_REFUSED:
        workspace.listener.complain(f"{file}: and {result.skipped - _MOST_REFUSED} more lines")
    if result.error is not None:
        workspace.listener.complain(f"{file}: {with_next_step(result.error)}")
    died = classify_new(workspace, [result.pull_id], analyze)
    document = {
        "source": source,
        "broker": None if place.broker == UNNAMED else place.broker,
        "pull_id": result.pull_id,
        "records": result.captured + result.recaptured,
        "refused": result.skipped,
        "known": result.recaptured,
        "causes": died.causes and died.causes[result.pull_id],
    }
    twins = _count_twins(workspace.store, result.pull_id) if result.captured else 0
    return Imported(document, died, twins, result.error)


def _place(workspace: Workspace, source: str, broker: str | None) -> Source:
    """Return the source as it is configured, or one of this name on the broker. Raises UsageError."""
    check_name(f"--source {source!r}", source)
    known, brokers = workspace.settings.sources.get(source), workspace.settings.brokers
    if broker is not None and broker not in brokers:
        raise UsageError(
            f"--broker {quote_value(broker)} is not in the configuration{suggest(broker, brokers)}"
            "; add [brokers.NAME] to it"
        )
    if known is not None and broker not in (None, known.broker):
        raise UsageError(
            f"source {source} is configured on broker {known.broker}; "
            f"to send its letters to {broker}, import them under another --source"
        )
    return known or Source(source, broker=broker or UNNAMED)


def _count_twins(store: Store, pull_id: str) -> int:
    with views.connect(store) as connection:
        [(count,)] = run(connection, _TWINS, [pull_id]).rows
    return int(count)


def export_letters(workspace: Workspace, selection: Selection, masker: Masker | None = None) -> Content:
    """Return the selected letters as JSONL. Raises UsageError for a wrong selection here, before anything is
    written."""
    connection = open_views(workspace)
    lines = _lines(workspace, connection, selection.condition(workspace, connection), masker)
    first = list(filter(None, [next(lines, None)]))
    return lambda sink: sum(1 for line in chain(first, lines) if sink.write(line))


def export_bundle(workspace: Workspace, selection: Selection, masker: Masker | None = None) -> Content:
    """Return all that is known of the selected letters as one file (zip): the letters, their verdicts and
    incidents, the plans that hold any, rows of the ledger, who did what, and digests. Raises as
    `export_letters`."""
    connection = open_views(workspace, with_plans=True)
    views.narrow(connection, condition(selection.condition(workspace, connection)))
    latest = analyses.latest(workspace.store)
    about: dict[str, Any] = {
        "dlq": version("dlq"),
        "letters": selection.options() or "all",
        "masked": masker is not None,
        "analysis": latest.analysis if latest else None,
    }
    lines = _lines(workspace, connection, None, masker, " ORDER BY source, record_id")
    found = bundle.members(workspace.store, connection, read_events(workspace), lines, masker)
    told = masker.document(about) if masker else about
    return lambda sink: bundle.write(sink, told, found)["letters.jsonl"]


def _lines(
    workspace: Workspace,
    connection: "duckdb.DuckDBPyConnection",
    where: str | None,
    masker: Masker | None,
    order: str = "",
) -> Iterator[bytes]:
    """Yield lines; a wrong condition shows at the first. What was learned of the broker goes along, with
    attempts that follow from it: whoever imports the letter cannot ask it."""
    import pyarrow as pa  # which the archive has brought, without numpy

    told = {"attempts": "coalesce(attempts, told) AS attempts"}
    columns = ", ".join(told.get(name, f'"{name}"') for name in SEGMENT.names)
    chosen = f"SELECT source, record_id, attempts AS told FROM letters WHERE {condition(where)}"
    tell = _teller(workspace)
    with guarded(connection):
        found = connection.sql(
            f"SELECT {columns} FROM records JOIN ({chosen}) USING (source, record_id){order}"
        )
        for batch in found.to_arrow_reader(_BATCH_ROWS):
            for record in to_records(pa.Table.from_batches([batch])):
                yield _line(record, {} if masker else tell(record), masker)


def _teller(workspace: Workspace) -> Callable[[Record], dict[str, Any]]:
    """Return what tells what the first line of each queue's letters carries beside them."""
    known, said = topology.facts(workspace.store, workspace.settings), set[tuple[str | None, ...]]()

    def tell(record: Record) -> dict[str, Any]:
        place = (record.source, record.mode, record.dead_letter_queue)
        if place in said:
            return {}
        said.add(place)
        told = topology.tell(known, record)
        return {"topology": told} if told else {}

    return tell


def _line(record: Record, more: dict[str, Any], masker: Masker | None) -> bytes:
    """Return one letter; one whose headers nest as deep as Python goes has them as texts."""

    def written(line: dict[str, Any]) -> bytes:
        line |= more
        return json.dumps(masked_line(masker.document(line)) if masker else line).encode() + b"\n"

    try:
        return written(line_of(record))
    except RecursionError:
        return written(line_of(record._replace(headers={})) | {"headers": dict(record.headers)})
