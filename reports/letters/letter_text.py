"""One letter on a terminal: what one looks at at 3 a.m., the answer first."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dlq.core.causes import TRANSACTION_STATES, cause_in_words
from dlq.core.documents import Document
from dlq.core.text import block_for_terminal, for_terminal, lines_for_terminal
from dlq.reports.letters import stack
from dlq.reports.letters.body import Preview
from dlq.reports.letters.letter import describe_body, identify, is_analysed, list_way

ADVICE_STYLES = {
    "replay": "green",
    "fix_first": "yellow",
    "check_first": "yellow",
    "never": "red",
    "hold": "cyan",
}
_STACK_LINES = 40


def render(console: Console, letter: Document, body: Preview) -> None:
    """Print the letter. Everything in it that strangers wrote is escaped here."""
    trace = stack.trace_of(letter)
    console.print(_head(letter), soft_wrap=True)
    for title, content in (
        ("Path", _way(letter)),
        ("Exception", _exception(letter, trace)),
        ("Duplicates", _duplicates(letter["duplicates"])),
        ("Transaction", _transactions(letter["transactions"])),
        ("Replays", _replays(letter["replays"])),
        ("Identity", _pairs(identify(letter))),
        ("Headers", _pairs(_without_trace(letter["headers"] or {}, trace))),
        ("Properties", _pairs(_without_trace(letter["properties"] or {}, trace))),
        (_body_title(letter, body), _lines(body.text)),
        ("Next", _next(letter["next"])),
    ):
        if content is not None:
            console.print(Text(f"\n{title}", style="bold"))
            _print_indented(console, content)


def _print_indented(console: Console, content: Table | Sequence[Text]) -> None:
    """Print with lines left to the terminal to wrap, so that what is copied from it stays whole."""
    if isinstance(content, Table):
        console.print(Padding(content, (0, 0, 0, 2), expand=False))
    else:
        for line in content:
            console.print(Text.assemble("  ", line), soft_wrap=True)


def _safe(value: Any) -> str:
    return "" if value is None else for_terminal(str(value))


def _block(value: Any) -> str:
    """Return a text of strangers with its lines."""
    return "" if value is None else block_for_terminal(str(value))


def _moment(text: str | None) -> str:
    return text.replace("T", " ").removesuffix("Z")[:23] if text else ""


def _head(letter: Document) -> Group:
    missing = "no dead letter, but evidence" if is_analysed(letter) else "not analysed yet"
    cause = (
        cause_in_words(letter["cause"], [letter["broker_kind"]], letter["proof"])
        if letter["cause"]
        else missing
    )
    meaning = f": {letter['cause_meaning']}" if letter["cause_meaning"] else ""
    lines = [
        Text.assemble((_safe(letter["record_id"]), "dim"), f"  {_safe(letter['source'])}"),
        Text.assemble("\n", (_safe(cause), "bold"), _safe(meaning)),
    ]
    if letter["rule"]:
        stale = "; the evidence is older than the last death" if letter["stale_evidence"] else ""
        evidence = f"rule {letter['rule']}, mechanism {letter['mechanism'] or 'none'}{stale}"
        lines.append(Text(f"  {_safe(evidence)}", style="dim"))
    if letter["also_possible"]:
        others = " or ".join(map(_safe, letter["also_possible"]))
        lines.append(Text(f"  likely, not proven: {others} leaves the same trace"))
    lines += [Text(f"  {line}") for line in lines_for_terminal(letter["evidence"] or "")[:6] if line.strip()]
    if letter["advice"]:
        style = ADVICE_STYLES.get(letter["advice"], "")
        reason = letter["advice_reason"] or letter["advice_meaning"]
        lines.append(Text.assemble("Advice: ", (letter["advice"], f"bold {style}"), f": {_safe(reason)}"))
    lines += [Text(f"Owner: {_safe(word)}") for word in letter.get("owners", ())]
    return Group(*lines)


def _way(letter: Document) -> Table | None:
    return _grid((_moment(time), _safe(what), _safe(where)) for time, what, where in list_way(letter))


def _exception(letter: Document, trace: str | None) -> list[Text] | None:
    name, message, text = letter["exception_class"], letter["exception_message"], letter["failure_text"]
    said = ": ".join(_block(part) for part in (name, message) if part)
    parts = [Text(said, style="red")] if said else []
    if letter["outer_exception"] and not trace:
        parts.append(Text(f"in {_block(letter['outer_exception'])}"))
    if letter["fingerprint"]:
        parts.append(Text(f"fingerprint {_safe(letter['fingerprint'])}", style="dim"))
    lines = (
        _trace(trace)
        if trace
        else [Text(line, style="dim") for line in lines_for_terminal(text or "") if line.strip()]
    )
    parts += lines[:_STACK_LINES]
    if len(lines) > _STACK_LINES:
        parts.append(Text(f"… {len(lines) - _STACK_LINES} more lines; -o json shows all", style="italic"))
    return parts or None


_STYLES = {"head": "", "own": "bold", "library": "dim", "folded": "dim italic"}


def _trace(text: str) -> list[Text]:
    return [
        Text(f"{stack.MARKS[line.kind]}{_safe(line.text)}", style=_STYLES[line.kind])
        for line in stack.read(text)
    ]


def _without_trace(pairs: Mapping[str, Any], trace: str | None) -> Mapping[str, Any]:
    return {name: "(the trace above)" if trace and value == trace else value for name, value in pairs.items()}


def _duplicates(duplicates: Iterable[Document]) -> Table | None:
    return _grid(
        (_safe(d["record_id"])[:12], _safe(d["source"]), _moment(d["dead_at"]), _safe(d["replay_state"]))
        for d in duplicates
    )


def _transactions(transactions: Iterable[Document]) -> Table | None:
    return _grid(row for transaction in transactions for row in _transaction(transaction))


def _transaction(known: Document) -> Iterator[tuple[str, str]]:
    """Yield one transaction's story: how it ended, who was asked, and what shows it."""
    state, asked = known["state"] or "", known["check_reached_producer"] or "unknown"
    gave_up = "; the broker gave up all the same" if known["discarded"] and state == "committed" else ""
    yield "state", f"{_safe(state)}: {TRANSACTION_STATES.get(state, '')}{gave_up}"
    yield (
        "producer",
        f"group {_safe(known['producer_group']) or '?'}, for topic {_safe(known['topic']) or '?'}",
    )
    yield "checks", f"{known['checks'] or 0} counted; one reached a producer: {_safe(asked)}"
    yield "seen", f"{_moment(known['first_seen'])} to {_moment(known['last_seen'])}"
    yield "evidence", _block(known["evidence"])
    if known["real_record_id"]:
        yield "delivered", f"as {_safe(known['real_record_id'])[:12]}"


def _replays(replays: Iterable[Document]) -> Table | None:
    return _grid((_moment(str(r["updated_at"])), _safe(r["state"]), *_describe_replay(r)) for r in replays)


def _describe_replay(replay: Document) -> tuple[str, str]:
    """Return where to, and by which plan; of a dismissal, why and who."""
    if replay["state"] == "dismissed":
        return _block(replay["detail"]), ""
    return _safe(replay["target"]), f"plan {_safe(replay['plan'])}"


def _body_title(letter: Document, body: Preview) -> str:
    said = describe_body(letter, body)
    return f"Body ({_safe(said)})"


def _pairs(pairs: Mapping[str, Any]) -> Table | None:
    return _grid((_safe(name), _block(value)) for name, value in sorted(pairs.items()))


def _lines(text: str) -> list[Text] | None:
    return [Text(line) for line in lines_for_terminal(text)] if text else None


def _next(steps: Iterable[Mapping[str, str]]) -> list[Text] | None:
    return [
        line
        for step in steps
        for line in (Text(_safe(step["command"]), style="bold"), Text(f"  {_safe(step['why'])}"))
    ] or None


def _grid(rows: Iterable[tuple[str, ...]]) -> Table | None:
    grid = Table.grid(padding=(0, 2))
    for first, *rest in rows:
        grid.add_row(Text(first, style="dim"), *(Text(cell, overflow="fold") for cell in rest))
    return grid if grid.row_count else None
