"""One run of a profile: pull, analyze, report, thresholds, metrics, alarm. A step that fails is noted, and
the next one does what it still can."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from dlq.core.clock import iso, now
from dlq.core.documents import value
from dlq.core.errors import DlqError, UsageError, unwrap_interrupt, with_next_step
from dlq.core.runtime import bounded_json, patience
from dlq.core.runtime.logs import Log
from dlq.core.values import units
from dlq.operations.brokers.pulling import KEYS, pull_one, take_all
from dlq.operations.brokers.sources import RUNS
from dlq.operations.concurrency import Stop
from dlq.operations.outcome import ExitCode, code_of, worst
from dlq.operations.profile import Task
from dlq.operations.programs import tell_program
from dlq.operations.progress import Line
from dlq.operations.time_limit import Clock, time_limit
from dlq.operations.workspace import Workspace

if TYPE_CHECKING:
    from concurrent.futures import Future

    from dlq.archive.analyses import Analysis
    from dlq.capture.pull import PullResult
    from dlq.core.settings import Source

_SHORTEST = 5.0
"""Seconds that a hook has even when the run's time is over: an alarm must get out."""
PULLS_END, _PULLS_STOP, _ANALYSIS_STOP = 0.6, 0.75, 0.95
"""Shares of max_time: pulls finish what they hold, pulls are stopped, the analysis is stopped."""
_STATE_FORMAT = 1
_Trace = Callable[[BaseException], None]


def run_profile(
    workspace: Workspace, task: Task, log: Log, parallel: int, trace: _Trace
) -> tuple[dict[str, Any], ExitCode]:
    """Return one run of a profile: what it did, as `dlq run` prints it, and how it ended. Raises Busy while
    another run of it is at work."""
    with workspace.store.lock(f"profile-{task.profile.name}"):
        running = _Run(workspace, task, log, parallel, trace)
        code = running.run()
    return vars(running.outcome), code


@dataclass
class _Outcome:
    """What a run did, as `dlq run` prints it."""

    profile: str
    sources: list[dict[str, Any]] = field(default_factory=list)
    analysis: str | None = None
    reports: list[str] = field(default_factory=list)
    metrics: str | None = None
    alarms: list[str] = field(default_factory=list)
    seconds: float = 0.0


class _Run:
    """The steps; `codes` collects what the exit code is made of."""

    def __init__(self, workspace: Workspace, task: Task, log: Log, parallel: int, trace: _Trace) -> None:
        """`parallel`: sources pulled at once, at most; `trace` hears of errors that nobody expects."""
        self._workspace, self._task, self._log, self._trace = workspace, task, log, trace
        self._clock, self._parallel = Clock(task.max_seconds), parallel
        self._failures: list[ExitCode] = []
        self._partial = False
        self._stop: Stop = lambda: False
        self._report: dict[str, Any] | None = None
        self.outcome = _Outcome(task.profile.name)

    def run(self) -> ExitCode:
        """Return all steps, in order; raises nothing but what ends the program."""
        log, outcome, profile = self._log, self.outcome, self._task.profile
        log("run_started", profile=profile.name, sources=len(self._task.sources))
        self._pull_all()
        sources_failed = len(self._failures)
        if profile.analyze:
            self._try("analysis_failed", self._analyze, _ANALYSIS_STOP)
        paths = ", ".join(path for _format, path in self._task.reports)
        self._try("report_failed", self._gather, path=paths or "of this run")
        for format_, path in self._task.reports if self._report else ():
            self._try("report_failed", partial(self._write_report, format_, path), path=path)
        self._check_thresholds()
        code = self._code(sources_failed)
        self._publish(code)
        code = self._code(sources_failed)
        outcome.seconds = round(self._clock.elapsed, 3)
        log("run_finished", profile=profile.name, seconds=outcome.seconds, exit_code=int(code))
        return code

    def _try(self, event: str, step: Callable[[], None], share: float | None = 1.0, **fields: Any) -> None:
        """Do one step; what goes wrong is logged as `event`, and the run goes on."""
        try:
            with time_limit(self._clock.seconds_left(share) if share else None):
                step()
        except DlqError as error:
            self._fail(event, error, code_of(error), **fields)
        except Exception as error:  # an unknown fault must not cost the other steps
            if isinstance(hidden := unwrap_interrupt(error), KeyboardInterrupt):
                raise hidden from error
            self._trace(error)
            # Its text may quote a letter.
            self._fail(
                event, f"unexpected {type(error).__name__} (-v shows it)", ExitCode.UNEXPECTED, **fields
            )

    def _fail(self, event: str, error: object, code: ExitCode, **fields: Any) -> None:
        self._failures.append(code)
        if event == "source_failed":
            self.outcome.sources.append({"source": fields["source"], "error": str(error)})
        said = with_next_step(error) if isinstance(error, DlqError) else str(error)
        self._log(event, error=said, **fields)

    def _pull_all(self) -> None:
        """Pull several sources at once. This thread keeps the limit of time: no signal ends another one."""
        sources, limit = self._task.sources, self._clock.seconds_left(_PULLS_STOP)
        _ = self._workspace.store  # opened once, before threads want it
        ended = list(take_all(self._workspace, self._pull_one, sources, self._parallel, limit))
        late = limit is not None and self._clock.seconds_left(_PULLS_STOP) == 0.0
        for source, future in ended:
            note = partial(self._note_future, future, late)
            self._try("source_failed", note, None, source=source.name)
        if self._stop() and not late:  # all had ended when they would have heard it
            raise KeyboardInterrupt

    def _note_future(self, future: "Future[PullResult]", late: bool) -> None:
        """Note what came of one source; raises what ended it. `late`: time was over before all ended."""
        if not future.done() or future.cancelled():
            raise self._clock.out_of_time() if late else KeyboardInterrupt
        try:
            self._note_pull(future.result())
        except KeyboardInterrupt as interrupt:
            if not late:
                raise
            result: PullResult | None = getattr(interrupt, "result", None)
            if result is None:
                raise self._clock.out_of_time() from interrupt
            result.error = self._clock.out_of_time()
            self._note_pull(result)

    def _pull_one(self, source: "Source", stop: Stop) -> "PullResult":
        from dlq.capture.pull import PullOptions

        self._stop = stop
        task, left = self._task, self._clock.seconds_left(PULLS_END)
        options = PullOptions(task.mode_of(source), limit=task.profile.limit, max_seconds=left)
        return pull_one(self._workspace, source, options, Line(source.name, "the broker", False), stop)

    def _note_pull(self, result: "PullResult") -> None:
        facts = {key: getattr(result, key) for key in KEYS}
        from dlq.archive.losses import in_words

        for note in [*result.notes, *([in_words(result.losses)] if result.losses else [])]:
            self._log("note", source=result.source, text=note)
        self._partial = self._partial or result.partial
        if result.error is not None:
            self._failures.append(code_of(result.error))
            facts["error"] = str(result.error)
            self._log("source_failed", **{**facts, "error": with_next_step(result.error)})
        else:
            self._log("source_pulled", **facts)
        self.outcome.sources.append(facts)

    def _analyze(self) -> None:
        from dlq.analyzers.analysis import still_holds
        from dlq.archive import manifests

        store = self._workspace.store
        if not any(manifest.rows for manifest in manifests.list_committed(store)):
            return
        last = still_holds(store, self._workspace.settings)
        found = last or self._analyze_anew()
        self.outcome.analysis = found.analysis
        broken = found.extra.get("broken", 0)
        if broken:
            self._fail("rule_failed", f"{broken} letters made a rule fail", ExitCode.PARTLY)
        event = "analyzed" if last is None else "nothing_new"
        self._log(event, analysis=found.analysis, records=found.records, seconds=found.seconds)

    def _analyze_anew(self) -> "Analysis":
        from dlq.analyzers.analysis import analyze
        from dlq.capture import external_stores

        taken = external_stores.take(self._workspace.store, self._workspace.settings)
        for snapshot in taken:
            if snapshot.error is not None:
                self._fail("evidence_missing", snapshot.error, ExitCode.PARTLY, store=snapshot.name)
        return analyze(self._workspace.store, self._workspace.settings, snapshots=taken)

    def _gather(self) -> None:
        """Gather the report's document, of this run's analysis, or of the one before if this one failed."""
        from dlq.archive import analyses
        from dlq.operations.reading.views import count_not_classified, read_events, read_replays
        from dlq.replay import still_queued
        from dlq.reports import report

        if analyses.latest(self._workspace.store) is None:
            if (self._task.thresholds or self._task.reports) and count_not_classified(self._workspace):
                raise UsageError(
                    "no letter was ever classified, so nothing can be reported or compared; set analyze = "
                    "true in the profile, or run dlq analyze before it"
                )
            self._log("no_report")
            return
        masks = self._workspace.settings.mask if self._task.profile.mask else None
        with_letters = any(format_ in report.WITH_LETTERS for format_, _path in self._task.reports)
        # A ledger out of reach has to come back, but what died tonight is reported all the same.
        known = read_replays(
            self._workspace, lambda error: self._fail("ledger_missing", error, code_of(error))
        )
        said = () if known is None else read_events(self._workspace)
        queued = still_queued.find_queued(self._workspace.store, self._workspace.settings)
        self._report = report.make(
            self._workspace.store,
            known,
            masks,
            None,
            with_letters,
            events=said,
            queued=queued,
            settings=self._workspace.settings,
        )

    def _write_report(self, format_: str, path: str) -> None:
        from dlq.reports import report

        report.write(self._report or {}, format_, path, self._task.profile.mask)
        self.outcome.reports.append(path)
        self._log("report_written", format=format_, path=path)

    def _check_thresholds(self) -> None:
        counts = self._report["alarming"] if self._report else None
        for threshold in self._task.thresholds if counts else ():
            text = threshold.describe_passed(counts or {})
            if text is not None:
                self.outcome.alarms.append(text)
                self._log("threshold_passed", text=text)

    def _code(self, sources_failed: int) -> ExitCode:
        """Return one reason where every source failed alike; else some of the work was done."""
        codes = [ExitCode.THRESHOLD] if self.outcome.alarms else []
        if sources_failed and sources_failed == len(self._task.sources):
            codes.append(self._failures[0])
        elif self._failures or self._partial:
            codes.append(ExitCode.PARTLY)
        return worst(ExitCode.DONE, *codes)

    def _publish(self, code: ExitCode) -> None:
        """Publish metrics, state and alarm. The alarm has a moment even when the time is over."""
        profile, outcome = self._task.profile, self.outcome
        outcome.seconds = round(self._clock.elapsed, 3)
        succeeded = self._last_success()
        if profile.metrics is not None or self._task.otlp is not None:
            self._try("metrics_failed", partial(self._write_metrics, code, succeeded), None)
        self._try("state_failed", partial(self._remember, code, succeeded), None)
        if outcome.alarms and profile.on_alarm:
            self._try("alarm_failed", self._alarm, None)

    def _last_success(self) -> float:
        if not self._failures:
            return now() / 1e6
        try:
            state = bounded_json.loads(self._workspace.store.get(self._state_name))
            return float(value(float, value(Mapping[str, Any], state).get("last_success", 0)))
        except (DlqError, ValueError):
            return 0.0

    @property
    def _state_name(self) -> str:
        return f"{RUNS}{self._task.profile.name}.json"

    def _remember(self, code: ExitCode, succeeded: float) -> None:
        state = {
            "format": _STATE_FORMAT,
            "finished": iso(now()),
            "exit_code": int(code),
            "last_success": succeeded,
            "run": vars(self.outcome),
        }
        self._workspace.store.put(self._state_name, json.dumps(state, default=str, indent=1).encode())

    def _write_metrics(self, code: ExitCode, succeeded: float) -> None:
        from dlq.archive.storage.files import SHARED
        from dlq.reports.formats import metrics
        from dlq.reports.formats.files import write_text

        facts = metrics.RunFacts(
            self.outcome.sources, self.outcome.seconds, int(code), now() / 1e6, succeeded
        )
        gathered = metrics.gather(self._workspace.store, self._report, facts)
        path = self._task.profile.metrics
        if path is not None:
            write_text(path, metrics.text(gathered), SHARED)  # what scrapes it is another user
            self.outcome.metrics = path
            self._log("metrics_written", to=path)
        if self._task.otlp is not None:
            from dlq.reports.formats.metrics_otlp import send

            began = metrics.began(self._workspace.store)
            with time_limit(patience.ENDED, "the collector's answer does not end"):
                send(gathered, self._task.otlp, began, facts.finished)
            self._log("metrics_written", to="OTLP")

    def _alarm(self) -> None:
        outcome, profile = self.outcome, self._task.profile
        document = {
            "profile": profile.name,
            "time": iso(now()),
            "alarms": outcome.alarms,
            "analysis": outcome.analysis,
            "counts": (self._report or {}).get("counts", {}),
            "reports": outcome.reports,
        }
        limit, left = units.seconds(profile.alarm_timeout), self._clock.seconds_left()
        tell_program(profile.on_alarm, document, limit if left is None else min(limit, max(_SHORTEST, left)))
        self._log("alarm_sent", command=profile.on_alarm[0])
