"""What the letters that a command has just captured died of."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple

from dlq.cli.exit import ExitCode
from dlq.cli.judging import analyze_new
from dlq.core.causes import spoken
from dlq.core.errors import ArchiveError, DlqError

if TYPE_CHECKING:
    from rich.console import Console

    from dlq.archive.manifests import Manifest
    from dlq.cli.context import Context

_SHOWN = 10
_LONG = 500
_NUMBER = 12
"""Columns that the number of letters and the gaps take."""
MOST = 20_000
"""Letters that are judged alone at once; of more an analysis tells."""
Verdict = tuple[str, Mapping[str, Any]]
"""The pull that brought a letter, and what _NAMED says of it."""
_NAMED = ["source", "fingerprint", "cause", "proof", "exception_class", "exception_message", "evidence"]


class Died(NamedTuple):
    """What is known of the new letters of some pulls."""

    causes: Mapping[str, Mapping[str, int]] | None
    """Pull id -> cause -> letters; None where they are too many to be judged here."""
    failures: list[tuple[int, str, str]]
    """Letters, their cause, and the failure in a line, the most frequent first."""
    letters: int
    code: ExitCode = ExitCode.DONE


def of(context: "Context", pull_ids: Collection[str], analyze: bool) -> Died:
    """What the letters that these pulls have archived died of: by a new analysis (`analyze`, and where this
    process can make it), else by what each letter says alone, which is kept nowhere. Never an error: they
    are archived all the same."""
    from dlq.archive import manifests

    try:
        done = analyze_new(context) if analyze else None
        new = [m for m in manifests.every(context.store) if m.pull_id in pull_ids]
        letters, code = sum(m.rows for m in new), ExitCode.DONE if done is None else done[1]
        if done is None and letters > MOST:
            return Died(None, [], letters)
        judged = _alone(context, new) if done is None else _by_analysis(context, pull_ids)
        return _counted(context, pull_ids, judged, code)
    except DlqError as error:
        context.complain(f"archived, but not judged: {error}; dlq analyze judges them")
        return Died(None, [], 0, ExitCode.PARTLY)


def _by_analysis(context: "Context", pull_ids: Collection[str]) -> Iterator[Verdict]:
    from dlq.archive import views
    from dlq.archive.user_sql import run

    mine = "pull_id IN (SELECT unnest(?)) AND cause IS NOT NULL"
    sql = f"SELECT pull_id, {', '.join(_NAMED)} FROM letters WHERE {mine}"
    with closing(views.connect(context.store)) as connection:
        for pull_id, *values in run(connection, sql, [list(pull_ids)]).rows:
            yield pull_id, dict(zip(_NAMED, values, strict=True))


def _alone(context: "Context", new: "Sequence[Manifest]") -> Iterator[Verdict]:
    import pyarrow as pa

    from dlq.analyzers import letters, topology
    from dlq.analyzers.rules import judged

    facts = topology.facts(context.store, context.settings)
    for manifest in new:
        try:
            found = context.store.parquet(manifest.segment) if manifest.rows else None
            for group in letters.read(found, manifest.rows) if found else ():
                for letter in group.letters:
                    verdict = judged(letter, facts)[0]._asdict() | {"source": letter.source}
                    yield manifest.pull_id, verdict
        except (OSError, pa.ArrowException) as error:
            raise ArchiveError(f"{manifest.segment} in the archive cannot be read: {error}") from error


def _counted(
    context: "Context", pull_ids: Collection[str], judged: Iterable[Verdict], code: ExitCode
) -> Died:
    causes: dict[str, Counter[str]] = {pull_id: Counter() for pull_id in pull_ids}
    failures: Counter[str] = Counter()
    examples: dict[str, Mapping[str, Any]] = {}
    for pull_id, verdict in judged:
        causes[pull_id][verdict["cause"]] += 1
        failures[verdict["fingerprint"]] += 1
        examples.setdefault(verdict["fingerprint"], verdict)
    told = [(n, _cause(context, examples[key]), line_of(examples[key])) for key, n in failures.most_common()]
    of_pull = {pull_id: dict(found.most_common()) for pull_id, found in causes.items()}
    return Died(of_pull, told, failures.total(), code)


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
