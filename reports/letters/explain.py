"""Why a letter has its cause: the rules that looked at it, what each saw, and how the advice follows."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dlq.analyzers.rules import BROKEN, Facts, steps
from dlq.core.causes import TRANSACTION_STATES
from dlq.core.documents import Document
from dlq.core.record import Death, Record
from dlq.core.settings import Settings
from dlq.core.text import block_for_terminal, for_terminal, shorten

_LONGEST = 200
_ON_A_LINE = 100
_ASIDE = frozenset({"dead_letter_queue", "source", "origin", "origin_kind", "failure_text", "message_id"})
"""Columns that every letter has, or that stand elsewhere on the screen: seeing them says little."""
_FEW = 2
"""Silent rules in a row that saw nothing new: so many are told one by one, more are only named."""


def gather(letter: Document, record: Record, facts: Facts) -> list[dict[str, Any]]:
    """Return `{rule, when, saw: {name: text}, spoke}` of each rule that looked, up to the one that decided.

    What the document holds (masked, perhaps) is what the rules are shown; texts are cut.
    """
    told = {name: letter[name] for name in ("headers", "properties", "failure_text")}
    looked: list[dict[str, Any]] = []
    try:
        for step in steps(record._replace(**told), facts):
            saw = {name: _shown_text(name, value) for name, value in step.saw.items()}
            looked.append({"rule": step.rule, "when": step.when, "saw": saw, "spoke": step.spoke})
    except Exception as error:  # noqa: BLE001 - the verdict says the same: a rule failed on it
        looked.append({"rule": BROKEN, "when": f"a rule failed: {error}", "saw": {}, "spoke": True})
    return looked


def _shown_text(name: str, value: Any) -> str | None:
    """Return a value's text; of a body, which may have to be masked, only that it was read."""
    return ("read" if value else None) if name.startswith("body ") else _text(value)


def _text(value: Any) -> str | None:
    """Return a value in a line; None where there is nothing."""
    if isinstance(value, Death):
        times = f", {value.count} x" if value.count else ""
        return f"{value.reason or 'died'} in {value.queue or '?'}{times}"
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        value = "; ".join(_parts(value))
    elif isinstance(value, bool):
        value = "yes" if value else None
    return shorten(str(value), _LONGEST) if value not in (None, "", ()) else None


def _parts(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield the parts of a value; what several are is said once."""
    said: set[str] = set()
    for name, value in values.items():
        text = _text(value)
        if text and text not in said:
            said.add(text)
            yield f"{name.replace('_', ' ')}: {text}"


def render(console: Console, letter: Document, settings: Settings) -> None:
    """Print it; `letter` has the key `explain`. Everything in it that strangers wrote is escaped here."""
    for title, rows in (("Why", _rules(letter, settings)), ("Between letters", _analysis(letter, settings))):
        grid = Table.grid(padding=(0, 2))
        for first, text in rows:
            grid.add_row(Text(first, style="dim"), text)
        console.print(Text(f"\n{title}", style="bold"))
        console.print(Padding(grid, (0, 0, 0, 2), expand=False))


def _rules(letter: Document, settings: Settings) -> Iterator[tuple[str, Text]]:
    mine = [rule.name for rule in settings.rules]
    if mine:
        yield "yours", _plain(f"{', '.join(mine)}: asked first, by dlq analyze only")
    new = list(_with_news(letter["explain"]))
    for kind, group in groupby(new, lambda pair: _kind(*pair)):
        members = list(group)
        if kind == "told" or (kind == "same" and len(members) <= _FEW):
            for step, news in members:
                yield from _describe_step(step, news)
        else:
            yield "silent", _describe_silent([step["rule"] for step, _news in members], kind)
    decided = new[-1][0]["rule"] if new else None
    if letter["rule"] not in (None, decided):
        who = "your own rule" if letter["rule"] in mine else "other rules or facts than today's:"
        yield "stored", _plain(f"the analysis went by {who} {letter['rule']}")


def _with_news(looked: Iterable[Document]) -> Iterator[tuple[Document, dict[str, str]]]:
    """Yield each step, with what it saw that no rule before it did."""
    known: dict[str, str] = {}
    for step in looked:
        news = {name: text for name, text in step["saw"].items() if text and known.get(name) != text}
        known |= news
        yield step, {name: text for name, text in news.items() if name not in _ASIDE}


def _kind(step: Document, news: Mapping[str, str]) -> str:
    if step["spoke"] or news:
        return "told"
    return "same" if any(text and name not in _ASIDE for name, text in step["saw"].items()) else "nothing"


def _describe_silent(rules: Sequence[str], kind: str) -> Text:
    one = len(rules) == 1
    found = f"found nothing of what {'it asks' if one else 'they ask'} for"
    said = found if kind == "nothing" else "saw the same, which is not what they ask for"
    return Text.assemble(f"{len(rules)} {'rule' if one else 'rules'} {said}: ", (", ".join(rules), "dim"))


def _describe_step(step: Document, news: Mapping[str, str]) -> Iterator[tuple[str, Text]]:
    when = for_terminal(step["when"])
    if step["spoke"]:
        yield "spoke", Text.assemble((step["rule"], "bold green"), f": {when}")
        shown = {name: text for name, text in step["saw"].items() if text and name not in _ASIDE}
    else:
        yield "silent", Text.assemble((step["rule"], "bold"), f" asks for: {when}")
        shown = dict(news)
    for name, text in shown.items():
        yield "", _plain(f"saw {name}: {shorten(text, _ON_A_LINE)}", "italic")


def _analysis(letter: Document, settings: Settings) -> Iterator[tuple[str, Text]]:
    """Yield what an analysis found between letters, and the advice that follows."""
    yield "analysis", _plain(letter["analysis"] or "none has seen this letter yet")
    for name, found in _findings(letter):
        yield name, _plain(found)
    if settings.evidence:
        stores = ", ".join(settings.evidence)
        yield "stores", _plain(f"{stores}: the advice says it where one of them knew the letter")
    if letter["advice"]:
        reason = letter["advice_reason"] or letter["advice_meaning"] or ""
        yield "advice", Text.assemble((for_terminal(letter["advice"]), "bold"), f": {for_terminal(reason)}")


def _findings(letter: Document) -> Iterator[tuple[str, str]]:
    kind, others, incident = letter["duplicate_kind"], len(letter["duplicates"]), letter["incident"]
    if letter["duplicate_group"]:
        count = "1 other letter" if others == 1 else f"{others} other letters"
        yield "duplicates", f"{kind}: {count} in group {letter['duplicate_group'][:16]}"
    else:
        yield "duplicates", f"none; a note: {kind}" if kind else "none"
    if state := letter["transaction_state"]:
        yield "transaction", f"{state}: {TRANSACTION_STATES.get(state, '')}".rstrip(": ")
    if incident:
        yield "incident", f"{incident['incident_id']}, of size {incident['size']:,}"


def _plain(text: str, style: str = "") -> Text:
    return Text(block_for_terminal(text), style=style, overflow="fold")
