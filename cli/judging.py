"""What every command that ends with an analysis says of it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dlq.cli.exit import ExitCode

if TYPE_CHECKING:
    from dlq.archive.analyses import Analysis
    from dlq.archive.store_facts import Snapshot
    from dlq.cli.context import Context

_BROKEN = (
    "{} made a rule fail and {} unknown; see dlq query "
    "\"SELECT record_id, evidence FROM verdicts WHERE rule = 'broken-rule'\""
)


def analyze_new(context: "Context") -> "tuple[Analysis, ExitCode] | None":
    """Judge what no analysis has judged, in this process, and say what was missing. None where the
    configuration does not want that, nothing is captured, or the letters are so many that Spark is needed.
    Raises DlqError."""
    from dlq.analyzers.analysis import analyze, is_for_spark
    from dlq.archive import manifests
    from dlq.capture import external_stores

    store, settings = context.store, context.settings
    letters = sum(manifest.rows for manifest in manifests.every(store))
    if not letters or not settings.analysis.after_pull or is_for_spark(settings, letters):
        return None
    taken = external_stores.take(store, settings)
    found = analyze(store, settings, snapshots=taken, engine="plain", only_new=True)
    return found, complain(context, found, taken)


def complain(context: "Context", analysis: "Analysis", taken: "Sequence[Snapshot]") -> ExitCode:
    """Say which stores did not answer and how many letters made a rule fail; either is exit code 3."""
    missing = [snapshot.error for snapshot in taken if snapshot.error is not None]
    for error in missing:
        context.complain(f"{error}; its letters are judged without it")
    broken = analysis.extra.get("broken", 0)
    if broken:
        many = f"{broken:,} letter{'s' if broken != 1 else ''}"
        context.complain(_BROKEN.format(many, "is" if broken == 1 else "are"))
    return ExitCode.PARTLY if missing or broken else ExitCode.DONE
