"""What a run says of its steps: one event per step, never content of a letter, never a secret.

An event has a name and a few fields (numbers, names of the configuration, one-line errors). Its level
follows from its name, so that callers cannot disagree about it.
"""

import json
from collections.abc import Callable, Mapping
from typing import Protocol

from dlq.core.clock import iso, now

FORMATS = ("text", "json")

_EVENTS: Mapping[str, tuple[str, str]] = {
    "run_started": ("info", "{profile}: {sources} sources"),
    "source_pulled": ("info", "{source}: {captured} captured, {recaptured} known before, {left} left"),
    "source_failed": ("error", "{source}: {error}"),
    "note": ("info", "{source}: {text}"),
    "evidence_missing": ("error", "{error}; its letters are classified without it"),
    "ledger_missing": ("error", "{error}; what was replayed is not in the report"),
    "analyzed": ("info", "analysis {analysis}: {records} letters in {seconds} s"),
    "nothing_new": ("info", "nothing new since analysis {analysis} of {records} letters"),
    "analysis_failed": ("error", "analysis: {error}"),
    "no_report": ("info", "there is no analysis yet, so there is no report"),
    "report_written": ("info", "report written to {path}"),
    "report_failed": ("error", "report {path}: {error}"),
    "threshold_passed": ("warning", "{text}"),
    "alarm_sent": ("info", "{command} was told"),
    "alarm_failed": ("error", "on_alarm: {error}"),
    "metrics_written": ("info", "metrics written to {to}"),
    "metrics_failed": ("error", "metrics: {error}"),
    "state_failed": ("error", "the run could not be remembered: {error}"),
    "busy": ("warning", "{error}"),
    "run_failed": ("error", "{error}"),
    "run_finished": ("info", "{profile}: done in {seconds} s, exit code {exit_code}"),
}
"""Event -> its level, and the sentence for people."""


class Log(Protocol):
    """Where events go."""

    def __call__(self, event: str, /, **fields: object) -> None:
        """Note one event of EVENTS; `fields` fill its sentence."""


def json_lines(write: Callable[[str], None], **always: object) -> Log:
    """Return one JSON object a line: time, level, event, then `always` and the event's fields."""

    def log(event: str, /, **fields: object) -> None:
        head = {"time": iso(now()), "level": _EVENTS[event][0], "event": event}
        write(json.dumps({**head, **always, **fields}, default=str))

    return log


def sentences(say: Callable[[str], None], complain: Callable[[str], None]) -> Log:
    """Return a log for people: it says what is in order, and complains of the rest."""

    def log(event: str, /, **fields: object) -> None:
        level, sentence = _EVENTS[event]
        (say if level == "info" else complain)(sentence.format_map(fields))

    return log
