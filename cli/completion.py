"""Shell completion: names that the configuration and the archive's folders tell at once.

Completing must never be slow, connect to anything, or print an error: whatever goes wrong, nothing is
offered. Only an archive in a local folder is looked into; a shell takes what is offered as it is, so nothing
is that could be more than a word.
"""

import re
from collections.abc import Callable, Iterable
from pathlib import Path

import typer

from dlq.cli.context import OUTPUTS, Context
from dlq.core.record import COLUMNS as RECORD_COLUMNS

LS_COLUMNS = (
    "record_id", "source", "broker_kind", "dead_letter_queue", "origin", "cause", "mechanism",
    "attempts", "exception_class", "fingerprint", "incident_id", "advice", "message_id", "key",
    "published_at", "dead_at", "captured_at", "body_size", "laps", "replay_state", "analysis",
)  # fmt: skip
"""As `dlq.archive.views` has them, which takes too long to import here; a test compares them."""

_WORD = re.compile(r"[0-9A-Za-z][0-9A-Za-z_.-]*")

Completer = Callable[[typer.Context, str], list[str]]


def _completer(names: Callable[[Context], Iterable[str]]) -> Completer:
    """Return the names that begin as what is typed; of the last one where several stand between commas or
    blanks."""

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        try:
            found = names(Context(ctx.find_root().params.get("config")))
            known = sorted({name for name in found if _WORD.fullmatch(name)})
        except Exception:  # noqa: BLE001 (a shell that completes is no place for an error)
            return []
        before, word = _split(incomplete)
        return [before + name for name in known if name.startswith(word)]

    return complete


def _split(incomplete: str) -> tuple[str, str]:
    word = re.split(r"[\s,(]", incomplete)[-1]
    return incomplete[: len(incomplete) - len(word)], word


def _plans(context: Context) -> Iterable[str]:
    plans = Path(context.settings.archive, "plans").glob("[!.]*.jsonl")
    return (path.name.partition(".")[0] for path in plans)


def _analyses(context: Context) -> Iterable[str]:
    return (path.parent.name for path in Path(context.settings.archive, "analyses").glob("*/analysis.json"))


def _printers(_context: Context) -> Iterable[str]:
    from dlq.connectors.jsonl.console_formats import printers

    return printers()


printers = _completer(_printers)
sources = _completer(lambda context: context.settings.sources)
brokers = _completer(lambda context: context.settings.brokers)
profiles = _completer(lambda context: context.settings.profiles)
columns = _completer(lambda _context: (*LS_COLUMNS, *RECORD_COLUMNS))
condition = _completer(lambda _context: LS_COLUMNS)
plans = _completer(_plans)
analyses = _completer(_analyses)
formats = _completer(lambda _context: ("terminal", "html", "json", "markdown"))
ENGINES = ("auto", "plain", "spark")
engines = _completer(lambda _context: ENGINES)
modes = _completer(lambda _context: ("copy", "drain"))
outputs = _completer(lambda _context: OUTPUTS)
schedules = _completer(lambda _context: ("crontab", "systemd", "kubernetes"))
log_formats = _completer(lambda _context: ("text", "json"))
