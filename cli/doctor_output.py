"""What `dlq doctor` found, for people: a line per source, what it means said once below."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dlq.cli.context import Context
from dlq.core.clock import now
from dlq.core.errors import with_next_step
from dlq.core.text import block_for_terminal, for_terminal
from dlq.core.values.units import human_seconds

if TYPE_CHECKING:
    from dlq.operations.brokers.sources import Finding

_MODES = ("copy", "drain")
_COLUMNS = ("source", "broker", "version", "messages", "pulled by", *_MODES)
_OLDEST = "oldest"
"""Of letters that were pulled; the column is there where any waits."""


def list_problems(findings: "Sequence[Finding]") -> list[str]:
    """Return a line for each problem, with the sources that have it."""
    problems = [(with_next_step(each.error), each) for each in findings if each.error is not None]
    problems += [
        (f"a pull as configured ({each.source.mode}) would be refused", each)
        for each in findings
        if each.refused
    ]
    problems += [
        (f"a pull as configured ({each.source.mode}) leaves out {each.left_out}", each)
        for each in findings
        if each.left_out
    ]
    return [f"{names}: {text}" for text, names in _by_text(problems).items()]


def draw(context: Context, findings: "Sequence[Finding]") -> None:
    """Draw the table, its explanations, and, where they are not too many, the facts."""
    rows = [_row(finding) for finding in findings]
    if any(finding.oldest is not None for finding in findings):
        ages = [_age(finding.oldest) for finding in findings]
        context.emit_rows((*_COLUMNS, _OLDEST), [[*row, age] for row, age in zip(rows, ages, strict=True)])
    else:
        context.emit_rows(_COLUMNS, rows)
    for heading, remarks in _remarks(findings).items():
        for text, names in _by_text(remarks).items():
            _paragraph(context, f"{heading}: {names}", text)
    known = [finding for finding in findings if finding.inspection is not None]
    if len(findings) > 1 and not context.verbose:
        context.say("Limits, rights and bindings of one source: dlq doctor SOURCE")
        return
    for finding in known:
        _facts(context, finding.source.name, finding.inspection.facts if finding.inspection else {})


def _row(finding: "Finding") -> list[Any]:
    source, found = finding.source, finding.inspection
    if found is None:
        return [source.name, source.broker, "not known", None, source.mode, None, None]
    allowed = ["refused" if mode in found.harm else "yes" for mode in _MODES]
    return [source.name, source.broker, found.version, found.depth, source.mode, *allowed]


def _age(oldest: int | None) -> str | None:
    return None if oldest is None else human_seconds(max(0, now() - oldest) / 1_000_000)


def _remarks(findings: "Iterable[Finding]") -> "Mapping[str, list[tuple[str, Finding]]]":
    """Return heading -> texts and the finding that each is of; a mode that is refused changes nothing."""
    remarks: defaultdict[str, list[tuple[str, Finding]]] = defaultdict(list)
    for mode in _MODES:
        for finding in findings:
            found = finding.inspection
            if found is not None and mode in found.harm:
                remarks[f"{mode} is refused"].append((found.harm[mode], finding))
            elif found is not None and mode in found.changes:
                remarks[mode].append((found.changes[mode], finding))
    for finding in findings:
        found = finding.inspection
        for warning in found.warnings if found else ():
            if found and warning not in found.harm.values():
                remarks["warning"].append((warning, finding))
    return remarks


def _by_text(remarks: "Iterable[tuple[str, Finding]]") -> Mapping[str, str]:
    """Return each text once, with the names of its sources."""
    names: defaultdict[str, list[str]] = defaultdict(list)
    for text, finding in remarks:
        names[text].append(finding.source.name)
    return {text: ", ".join(sources) for text, sources in names.items()}


def _paragraph(context: Context, heading: str, text: str) -> None:
    from rich.padding import Padding
    from rich.text import Text

    context.console.print()
    context.console.print(Text(for_terminal(heading), style="bold"))
    context.console.print(Padding(Text(block_for_terminal(text)), (0, 0, 0, 2), expand=False))


def _facts(context: Context, name: str, facts: Mapping[str, Any]) -> None:
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for label, value in facts.items():
        table.add_row(Text(for_terminal(label)), Text(block_for_terminal(_in_words(value))))
    context.console.print()
    context.console.print(Text(for_terminal(name), style="bold"))
    context.console.print(Padding(table, (0, 0, 0, 2), expand=False))


def _in_words(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_in_words(each)}" for name, each in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
