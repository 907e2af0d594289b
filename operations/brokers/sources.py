"""Sources: what is known of each without asking anybody, and what a look at its broker shows."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, replace

from dlq.archive import losses, manifests
from dlq.archive.losses import Loss
from dlq.connectors.base import Inspection
from dlq.core.clock import iso
from dlq.core.documents import Document
from dlq.core.errors import DlqError, with_next_step
from dlq.core.runtime import bounded_json
from dlq.core.settings import Source
from dlq.operations.brokers.connecting import connect, warn_of_ledger, warn_of_overlaps, warn_of_patterns
from dlq.operations.concurrency import Stop, do_at_once
from dlq.operations.progress import Line
from dlq.operations.reading.views import open_views
from dlq.operations.workspace import Workspace
from dlq.replay import ledger
from dlq.reports.failures import oldest_waiting

_AT_ONCE = 4
RUNS = "runs/"
"""Where runs of profiles leave what they did, for the next one."""


def list_sources(workspace: Workspace) -> list[Document]:
    """Return every source that is configured or has letters: `source, broker, kind, place, mode` (null where
    it is not configured any more), `letters` that the archive holds, when one was last archived
    (`archived_at`), when the first of those died that wait (`oldest`), and, as the last run of a profile knew
    it, its `depth` and when that was (`depth_at`). Asks no broker."""
    letters: dict[str, int] = {}
    archived: dict[str, str] = {}
    for manifest in manifests.list_committed(workspace.store):
        letters[manifest.source] = letters.get(manifest.source, 0) + manifest.rows
        archived[manifest.source] = max(archived.get(manifest.source, ""), manifest.created_at)
    oldest = _read_oldest(workspace) if letters else {}
    depths = dict(_read_depths(workspace))
    return [
        {
            **_describe(workspace, name),
            "letters": letters.get(name, 0),
            "archived_at": archived.get(name),
            "oldest": iso(oldest[name]) if name in oldest else None,
            **dict(zip(("depth", "depth_at"), depths.get(name, (None, None)), strict=True)),
        }
        for name in dict.fromkeys((*workspace.settings.sources, *sorted(letters)))
    ]


def _describe(workspace: Workspace, name: str) -> Document:
    source = workspace.settings.sources.get(name)
    if source is None:
        return {"source": name, "broker": None, "kind": None, "place": None, "mode": None}
    place = source.queue or source.topic or source.group or ("transactions" if source.transactions else None)
    kind = workspace.settings.brokers[source.broker].kind
    return {"source": name, "broker": source.broker, "kind": kind, "place": place, "mode": source.mode}


def _read_depths(workspace: Workspace) -> Iterator[tuple[str, tuple[int, str]]]:
    """Yield what the last runs left in each source, or copied, the newest last; what cannot be read is not
    told."""
    runs = []
    for name in workspace.store.list(RUNS):
        with suppress(DlqError, ValueError, KeyError, TypeError):
            state = bounded_json.loads(workspace.store.get(name))
            runs.append((str(state["finished"]), list(state["run"]["sources"])))
    for finished, sources in sorted(runs, key=lambda run: run[0]):
        for one in sources:
            with suppress(KeyError, TypeError, ValueError):
                yield one["source"], (int(one["left" if one["mode"] == "drain" else "snapshot"]), finished)


def _read_oldest(workspace: Workspace) -> Mapping[str, int]:
    with open_views(workspace) as connection:
        return oldest_waiting(connection)


@dataclass(frozen=True)
class Finding:
    """What is there of one source, or why nothing is known."""

    source: Source
    inspection: Inspection | None = None
    error: DlqError | None = None
    oldest: int | None = None
    """When the first of its letters died that wait in the archive, in microseconds since the epoch."""
    losses: Sequence[Loss] = ()
    """What is known to be lost of it, and dismissed by nobody."""

    @property
    def document(self) -> Document:
        """As the formats for scripts show it."""
        found = {"error": str(self.error)} if self.inspection is None else asdict(self.inspection)
        waits = {} if self.oldest is None else {"oldest": iso(self.oldest)}
        return {"source": self.source.name, **found, **waits, **self._lost}

    @property
    def _lost(self) -> Document:
        if not self.losses:
            return {}
        return {"lost": losses.letters(self.losses), "losses": [loss.as_json() for loss in self.losses]}

    @property
    def refused(self) -> str | None:
        """Why a pull as it is configured would be refused."""
        return None if self.inspection is None else self.inspection.harm.get(self.source.mode)

    @property
    def left_out(self) -> str | None:
        """What a pull as it is configured could not take, of a pattern of which it takes the rest."""
        return None if self.inspection is None else self.inspection.leaves_out.get(self.source.mode)


def inspect_sources(workspace: Workspace, chosen: Sequence[Source]) -> list[Finding]:
    """Return what is there of each source, several asked at once, or the error that its broker gave."""
    lines = {source.name: Line(source.name, f"the broker {source.broker}", False) for source in chosen}

    def look(source: Source, _stop: Stop) -> Inspection:
        lines[source.name].begin()
        lines[source.name].news(lambda _elapsed: "looking")
        try:
            with closing(connect(workspace, workspace.settings.brokers[source.broker])) as connector:
                return connector.inspect(source)
        finally:
            lines[source.name].end()

    with workspace.listener.follow(list(lines.values())):
        ended = list(do_at_once(look, chosen, _AT_ONCE))
    findings = []
    for source, future in ended:
        try:
            findings.append(Finding(source, future.result()))
        except DlqError as error:
            findings.append(Finding(source, error=error))
    return findings


def inspect_own(workspace: Workspace, findings: Sequence[Finding]) -> tuple[list[Finding], DlqError | None]:
    """Return findings with what is lost of each source, and the error of an archive or a ledger that is gone
    or out of reach. Warns of what the archive holds by another name, of what is lost, and of that error."""
    warn_of_ledger(workspace)
    try:
        warn_of_overlaps(workspace, [each.source for each in findings])
        warn_of_patterns(workspace)
        with ledger.opened_if_any(workspace.settings.ledger, workspace.store):
            pass
        lost = losses.open_by_source(workspace.store)
    except DlqError as error:
        workspace.listener.complain(with_next_step(error))
        return list(findings), error
    for each in findings:
        if found := lost.get(each.source.name):
            workspace.listener.complain(f"{each.source.name}: {losses.in_words(found)}")
    return [replace(each, losses=lost.get(each.source.name, ())) for each in findings], None


def add_oldest(workspace: Workspace, findings: list[Finding]) -> list[Finding]:
    """Return the findings with the age of what waits in the archive; without, where archive or ledger cannot
    be read, which other lines tell."""
    try:
        if next(manifests.list_committed(workspace.store), None) is None:
            return findings
        known = _read_oldest(workspace)
    except DlqError:
        return findings
    return [replace(finding, oldest=known.get(finding.source.name)) for finding in findings]
