"""The report: what an analysis found, and what of it one would say aloud."""

from functools import partial
from typing import NamedTuple

from dlq.core.documents import Document
from dlq.operations.reading.selecting import EVERY, Selection
from dlq.operations.reading.views import read_events, read_replays
from dlq.operations.workspace import Workspace
from dlq.replay import still_queued
from dlq.reports import headline, report
from dlq.reports.report import Narrowing


class ReportWanted(NamedTuple):
    """What a report is about, and what is in it."""

    selection: Selection = EVERY
    compare: str | None = None
    """An analysis; what has changed since it is in the report."""
    mask: bool = False
    with_letters: bool = False


def make_report(workspace: Workspace, wanted: ReportWanted) -> Document:
    """Return the report of the latest analysis (`reports.report.make`). Raises UsageError where no letters
    are."""
    selection = wanted.selection
    part = Narrowing(partial(selection.condition, workspace), selection.options(), selection.narrow)
    opened = workspace.views if selection.is_all and wanted.compare is None else None
    return report.make(
        workspace.store,
        None if opened else read_replays(workspace),
        workspace.settings.mask if wanted.mask else None,
        wanted.compare,
        wanted.with_letters,
        None if selection.is_all else part,
        read_events(workspace),
        None if opened else still_queued.find_queued(workspace.store, workspace.settings),
        opened,
        workspace.settings,
    )


def describe_now(workspace: Workspace) -> Document:
    """Return how it stands, masked: the report without letters, its `headline` (sentences, the answer first)
    and its `basis` (what it rests on). Raises UsageError where no letters are."""
    document = make_report(workspace, ReportWanted(mask=True))
    return {**document, "headline": headline.sentences(document), "basis": headline.basis(document)}
