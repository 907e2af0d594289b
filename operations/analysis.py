"""Analyses: of what is new, or of the whole archive, and what of their making somebody should know."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from dlq.core.errors import UsageError
from dlq.operations.brokers.connecting import warn_of_evidence, warn_of_patterns
from dlq.operations.outcome import ExitCode
from dlq.operations.workspace import Workspace

if TYPE_CHECKING:
    from dlq.analyzers.analysis import Engine
    from dlq.archive.analyses import Analysis
    from dlq.archive.store_facts import Snapshot

_BROKEN = (
    "{} made a rule fail and {} unknown; see dlq query "
    "\"SELECT record_id, evidence FROM verdicts WHERE rule = 'broken-rule'\""
)


class AnalysisWanted(NamedTuple):
    """What to classify, and by which engine; the defaults: everything, as the configuration says."""

    engine: "Engine" = "auto"
    master: str | None = None
    since: int | None = None
    """Only letters captured since then, in microseconds since the epoch."""
    client_logs: Sequence[str] = ()
    """Names or patterns of consumers' logs."""


@dataclass(frozen=True)
class Analyzed:
    """An analysis, and what of its making somebody should know: which stores did not answer, how many letters
    made a rule fail."""

    analysis: "Analysis"
    problems: Sequence[str]

    @property
    def code(self) -> ExitCode:
        """Whether all was done."""
        return ExitCode.PARTLY if self.problems else ExitCode.DONE

    @property
    def document(self) -> dict[str, Any]:
        """As `dlq analyze` prints it."""
        done = self.analysis
        return {
            "analysis": done.analysis,
            "records": done.records,
            "causes": dict(done.causes),
            "seconds": done.seconds,
            **{name: value for name, value in done.extra.items() if name != "parts"},
        }


def analyze_archive(workspace: Workspace, wanted: AnalysisWanted) -> Analyzed:
    """Classify all captured letters. Raises UsageError, ArchiveError."""
    from dlq.analyzers.analysis import analyze
    from dlq.capture import external_stores

    warn_of_evidence(workspace)
    warn_of_patterns(workspace)
    taken = external_stores.take(workspace.store, workspace.settings)
    done = analyze(
        workspace.store,
        workspace.settings,
        master=wanted.master,
        since=wanted.since,
        client_logs=_read_logs(wanted.client_logs),
        snapshots=taken,
        engine=wanted.engine,
    )
    return Analyzed(done, _list_problems(done, taken))


def _read_logs(patterns: Sequence[str]) -> list[str]:
    """Return the logs that these mean, each of which can be read. Raises UsageError."""
    from dlq.analyzers.analysis import log_files
    from dlq.connectors.local import user_files

    logs = log_files(patterns)
    for log in logs:
        try:
            user_files.open_given(log).close()
        except OSError as error:
            raise UsageError(
                f"--client-log {log}: cannot read it: {error.strerror}; check its rights"
            ) from error
    return logs


def analyze_new(workspace: Workspace) -> Analyzed | None:
    """Classify what no analysis has classified, in this process; the listener hears what was missing. None
    where the configuration does not want that, nothing is captured, or so many letters are concerned that
    Spark is needed. Raises DlqError."""
    from dlq.analyzers.analysis import analyze, analyze_touched, is_for_spark, names_cluster
    from dlq.archive import manifests
    from dlq.capture import external_stores

    store, settings = workspace.store, workspace.settings
    letters = sum(manifest.rows for manifest in manifests.list_committed(store))
    if not letters or not settings.analysis.after_pull or names_cluster(settings):
        return None
    is_many = is_for_spark(settings, letters)
    taken = [] if is_many else external_stores.take(store, settings)
    done = (
        analyze_touched(store, settings)
        if is_many
        else analyze(store, settings, snapshots=taken, engine="plain", only_new=True)
    )
    if done is None:
        return None
    found = Analyzed(done, _list_problems(done, taken))
    for problem in found.problems:
        workspace.listener.complain(problem)
    return found


def _list_problems(analysis: "Analysis", taken: "Sequence[Snapshot]") -> list[str]:
    problems = [
        f"{one.error}; its letters are classified without it" for one in taken if one.error is not None
    ]
    if broken := analysis.extra.get("broken", 0):
        many = f"{broken:,} letter{'s' if broken != 1 else ''}"
        problems.append(_BROKEN.format(many, "is" if broken == 1 else "are"))
    return problems
