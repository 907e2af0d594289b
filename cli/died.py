"""What the letters that a command has just captured died of, each judged alone."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from dlq.core.causes import spoken
from dlq.core.errors import DlqError

if TYPE_CHECKING:
    from rich.console import Console

    from dlq.archive.manifests import Manifest
    from dlq.cli.context import Context

_SHOWN = 10
_LONG = 500
_NUMBER = 12
"""Columns that the number of letters and the gaps take."""
_NAMED = ["source", "fingerprint", "cause", "proof", "exception_class", "exception_message", "evidence"]


class Died(NamedTuple):
    """What is known at once of the new letters of some pulls."""

    causes: Mapping[str, Mapping[str, int]] | None
    """Pull id -> cause -> letters; None where they are too many."""
    failures: list[tuple[int, str, str]]
    """Letters, their cause, and the failure in a line, the most frequent first."""
    letters: int


def of(context: "Context", pull_ids: Collection[str]) -> Died:
    """What the letters that these pulls have archived died of. Never an error: they are archived all the
    same."""
    from dlq.analyzers.preview import MOST
    from dlq.archive import manifests

    try:
        new = [m for m in manifests.every(context.store) if m.pull_id in pull_ids]
        letters = sum(manifest.rows for manifest in new)
        return _of(context, pull_ids, new) if letters <= MOST else Died(None, [], letters)
    except DlqError as error:
        context.complain(f"what they died of is not known here: {error}")
        return Died(None, [], 0)


def _of(context: "Context", pull_ids: Collection[str], new: Sequence["Manifest"]) -> Died:
    from dlq.analyzers import preview

    causes: dict[str, Mapping[str, int]] = {}
    failures: Counter[str] = Counter()
    examples: dict[str, Mapping[str, Any]] = {}
    for pull_id in pull_ids:
        mine = [manifest for manifest in new if manifest.pull_id == pull_id]
        verdicts = preview.of(context.store, context.settings, mine).verdicts
        rows = [] if verdicts is None else verdicts.select(_NAMED).to_pylist()
        causes[pull_id] = dict(Counter(row["cause"] for row in rows).most_common())
        failures.update(row["fingerprint"] for row in rows)
        examples |= {row["fingerprint"]: row for row in reversed(rows)}
    told = [(n, _cause(context, examples[key]), line_of(examples[key])) for key, n in failures.most_common()]
    return Died(causes, told, failures.total())


def line_of(verdict: Mapping[str, Any]) -> str:
    """The first line of what went wrong: the exception, else the evidence."""
    name, message = verdict["exception_class"], verdict["exception_message"]
    parts = [name.rpartition(".")[2], message] if name else [message or verdict["evidence"]]
    return next(iter(": ".join(part for part in parts if part).strip().splitlines()), "")


def _cause(context: "Context", verdict: Mapping[str, Any]) -> str:
    """In the words of its broker's people, where the configuration tells the broker."""
    source = context.settings.sources.get(verdict["source"])
    broker = context.settings.brokers.get(source.broker) if source else None
    return spoken(str(verdict["cause"]), [broker.kind if broker else None], verdict["proof"])


def show(context: "Context", died: Died) -> None:
    """A small table for a terminal; in words, where the letters are too many."""
    if died.causes is None and died.letters:
        context.say(f"What {died.letters:,} letters died of takes an analysis: dlq analyze")
    shown, rest = died.failures[:_SHOWN], died.failures[_SHOWN:]
    if shown:
        _draw(context.console, shown)
    if rest:
        kinds = "1 more failure" if len(rest) == 1 else f"{len(rest):,} more failures"
        context.console.print(f"{sum(letters for letters, *_ in rest):,} in {kinds}")


def _draw(console: "Console", failures: Sequence[tuple[int, str, str]]) -> None:
    from rich.table import Table

    from dlq.core.text import for_terminal, shorten

    room = max(20, console.width - max(len(cause) for _letters, cause, _text in failures) - _NUMBER)
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in ("letters", "died of", "failure"):
        table.add_column(column, justify="right" if column == "letters" else "left", no_wrap=True)
    for letters, cause, text in failures:
        table.add_row(f"{letters:,}", cause, shorten(for_terminal(text[:_LONG]), room))
    console.print()
    console.print(table)
