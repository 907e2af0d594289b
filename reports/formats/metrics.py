"""Numbers for monitoring, in Prometheus' text format.

Names follow its conventions: the prefix `dlq_`, base units, counters end in `_total`. The only labels
are `source` and `cause`, so that the number of series is bounded by the configuration. Counters are
those of the archive: they go on over runs, hosts and restarts.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from dlq.archive import losses, manifests
from dlq.archive.storage.store import Store
from dlq.core.clock import from_iso, now

_Labels = tuple[tuple[str, str], ...]
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


@dataclass(frozen=True)
class Metric:
    """One metric with its samples: labels -> value."""

    name: str
    kind: Literal["counter", "gauge"]
    help: str
    samples: Mapping[_Labels, float]


@dataclass(frozen=True)
class RunFacts:
    """What a run knows beside the archive and the report. Times are seconds since the epoch."""

    pulls: Sequence[Mapping[str, Any]]
    """As `dlq run` prints them: the keys of a pull, or source and error."""
    seconds: float
    exit_code: int
    finished: float
    last_success: float


_COUNTS: Mapping[str, tuple[str, str]] = {
    "confirmed": ("dlq_replayed_letters", "Letters in the archive whose replay the broker confirmed."),
    "in_doubt": ("dlq_in_doubt_letters", "Letters of which nobody knows whether they went back."),
    "held": ("dlq_held_letters", "Letters that an operator holds back."),
    "dismissed": ("dlq_dismissed_letters", "Letters in the archive that were closed without a replay."),
    "ongoing": ("dlq_ongoing_incidents", "Bursts of dead letters that still go on."),
}
"""Count of the report -> metric and help."""
_SOURCES: Mapping[str, tuple[str, str]] = {
    "open": ("dlq_open_letters", "Letters neither replayed, dismissed nor snoozed."),
    "oldest": ("dlq_oldest_open_letter_timestamp_seconds", "When the oldest open letter died."),
    "new_failures": ("dlq_new_failures", "Failures that nobody has triaged yet."),
    "regressed": ("dlq_regressed_failures", "Failures that came back after they were resolved."),
}
"""Key of a source in the report -> metric and help."""
_PULLS: Mapping[str, tuple[str, str]] = {
    "snapshot": ("dlq_queue_letters", "Letters in the dead-letter queue when the last pull began."),
    "left": ("dlq_left_letters", "Letters that the last pull did not take."),
    "gone": ("dlq_gone_letters", "Letters that went while the last pull ran."),
    "seconds": ("dlq_pull_duration_seconds", "How long the last pull took."),
}
"""Key of a pull -> metric and help."""


def gather(store: Store, report: Mapping[str, Any] | None, facts: RunFacts) -> list[Metric]:
    """Return all metrics, after a run. `report` is the report's document, if there is one."""
    return [*_of_archive(store), *_of_report(report or {}), *_of_pulls(facts.pulls), *_of_run(facts)]


def _labels(**labels: str) -> _Labels:
    return tuple(labels.items())


def _of_archive(store: Store) -> Iterable[Metric]:
    captured: dict[_Labels, float] = {}
    purged: dict[_Labels, float] = {}
    for manifest in manifests.list_committed(store):
        labels = _labels(source=manifest.source)
        captured[labels] = captured.get(labels, 0) + manifest.rows + manifest.purged
        purged[labels] = purged.get(labels, 0) + manifest.purged
    lost = dict.fromkeys(captured, 0.0)
    for loss in losses.open_ones(store):
        labels = _labels(source=loss.source)
        lost[labels] = lost.get(labels, 0) + (loss.letters or 0)
    yield Metric("dlq_lost_letters", "gauge", "Letters lost uncaptured, and not dismissed.", lost)
    yield Metric("dlq_captured_letters_total", "counter", "Letters ever captured.", captured)
    yield Metric("dlq_purged_letters_total", "counter", "Letters that retention has removed.", purged)


def _of_report(report: Mapping[str, Any]) -> Iterable[Metric]:
    matrix = {
        _labels(source=row["source"], cause=row["cause"]): row["letters"] for row in report.get("matrix", ())
    }
    yield Metric("dlq_letters", "gauge", "Letters in the archive by source and cause.", matrix)
    for count, (name, help_) in _COUNTS.items():
        known = report.get("counts", {}).get(count)
        yield Metric(name, "gauge", help_, {} if known is None else {(): known})
    sources = report.get("sources", ())
    for key, (name, help_) in _SOURCES.items():
        values = {_labels(source=row["source"]): _number(row[key]) for row in sources if row[key] is not None}
        yield Metric(name, "gauge", help_, values)


def _number(value: str | int) -> float:
    """Return a count, or a time (ISO 8601) in seconds since the epoch."""
    return (from_iso(value) or 0) / 1e6 if isinstance(value, str) else value


def _of_pulls(pulls: Sequence[Mapping[str, Any]]) -> Iterable[Metric]:
    up = {_labels(source=pull["source"]): 0.0 if "error" in pull else 1.0 for pull in pulls}
    yield Metric("dlq_source_up", "gauge", "Whether the last pull of the source succeeded.", up)
    for key, (name, help_) in _PULLS.items():
        values = {_labels(source=p["source"]): p[key] for p in pulls if p.get(key) is not None}
        yield Metric(name, "gauge", help_, values)


def _of_run(facts: RunFacts) -> Iterable[Metric]:
    for name, help_, value in (
        ("dlq_run_duration_seconds", "How long the last run took.", facts.seconds),
        ("dlq_run_exit_code", "The last run's exit code.", facts.exit_code),
        ("dlq_last_run_timestamp_seconds", "When the last run ended.", facts.finished),
        ("dlq_last_success_timestamp_seconds", "When a run last ended without an error.", facts.last_success),
    ):
        yield Metric(name, "gauge", help_, {(): value})


def text(metrics: Iterable[Metric]) -> str:
    """Return the metrics in Prometheus' text format 0.0.4. What has no sample is left out."""
    return "".join(line + "\n" for metric in metrics if metric.samples for line in _lines(metric))


def _lines(metric: Metric) -> Iterable[str]:
    yield f"# HELP {metric.name} {metric.help}"
    yield f"# TYPE {metric.name} {metric.kind}"
    for labels, value in sorted(metric.samples.items()):
        inside = ",".join(f'{name}="{said.translate(_ESCAPES)}"' for name, said in labels)
        yield f"{metric.name}{{{inside}}} {value}" if inside else f"{metric.name} {value}"


def began(store: Store) -> float:
    """Return when the archive's counters began: its first pull, in seconds since the epoch."""
    times = [from_iso(manifest.created_at) or 0 for manifest in manifests.list_committed(store)]
    return min(times, default=now()) / 1e6
