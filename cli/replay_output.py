"""What `dlq replay` shows to people."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from dlq.cli.context import Context
from dlq.cli.triage import show_came_back
from dlq.core.clock import from_iso, now
from dlq.core.text import block_for_terminal, for_terminal, shorten
from dlq.core.values.units import human_seconds
from dlq.operations.replays.plans import COLUMNS, LEFT_OUT, Made
from dlq.replay import still_queued
from dlq.replay.plans.planfile import Header
from dlq.replay.runs.consumed import IN_WORDS
from dlq.replay.states import STATES

_MOST_ROWS = 20
_FOR_EYES = ("plan", "age", "letters", "progress", "targets", "where")
_SHOWN = (*STATES, "dismissed")
_LONG = 120
_MOST_NAMED = 5
_IN_ORDER = {
    "consumed": "key by key, the next when the one before is consumed",
    "sent": "key by key, in the order of sending alone",
}
_STOPPED = {
    "died_again": "died again",
    "in_doubt": "is in doubt",
    "sending": "is being sent",
    "sent_elsewhere": "went elsewhere by another plan",
}
"""Why a key does not go on; another word is the letter's state."""
_DECIDE = """\
The broker can't prove more. Find them: dlq ls --where "replay_state = 'in_doubt'"
Look at the consumer, then decide for each letter (--sent ID, --not-sent ID, --hold ID)
or for all of them (--all-sent, --all-not-sent, --all-hold)."""


def show_plan(context: Context, made: Made) -> None:
    """Show where the letters go, what is stripped, what stays, and the next command."""
    header = made.header
    out = context.console.print
    pace = f" at {header.rate:g} a second" if header.rate else ""
    counts = ((name, made.document[name]) for name in ("edited", "unwrapped"))
    changed = "".join(f", {count:,} of them {name}" for name, count in counts if count)
    order = f", {_IN_ORDER[header.in_order]}" if header.in_order else ""
    out(f"Plan {header.plan}: {_count(header.letters)}{changed}{pace}{order}")
    if header.reason:
        out(block_for_terminal(f"{header.actor}: {header.reason}"), soft_wrap=True)
    _section(context, "goes to", header.targets, {name: _read_by(header, name) for name in header.targets})
    _section(context, "targets that only the letters name: check them", header.told_by_letters, {})
    _section(context, "stripped", header.stripped, {})
    _section(context, "left out", header.left_out, LEFT_OUT)
    if header.superseded:
        out("\nsuperseded")
    for record_id, why in list(header.superseded.items())[:_MOST_ROWS]:
        out(f"  {record_id[:12]}  {for_terminal(why)}", soft_wrap=True)
    _section(context, "unknown whether something newer replaced them", header.not_looked_at, {})
    _section(context, "note", header.warnings, {})
    if header.owners:
        out("\nowners of consumers say")
    for word in header.owners:
        out(f"  {for_terminal(word)}", soft_wrap=True)
    _show_still_queued(context, made.document)
    if made.differences:
        out("\nchanged")
        for line in made.differences:
            out(f"  {line}")
    out("")
    if header.letters and context.settings.replay.approval:
        out(f"Next: another person: dlq replay approve {header.plan}; then dlq replay apply {header.plan}")
    elif header.letters:
        out(f"Next: dlq replay apply {header.plan}")
    else:
        out("Nothing to send. Next: dlq ls, or choose other letters with --where")


def _count(letters: int) -> str:
    return "1 letter" if letters == 1 else f"{letters:,} letters"


def _read_by(header: Header, target: str) -> str:
    """Say on which broker a target is, and who receives what is sent there, where that is proven."""
    place = f"on {', '.join(header.brokers_of(target))}"
    found = header.audience.get(target)
    return place if found is None else f"{place}, read by {', '.join(found) or 'no consumer'}"


def _show_still_queued(context: Context, document: Mapping[str, Any]) -> None:
    """Say that a replay takes no letter out of its queue, and that somebody may move it back once more."""
    left = list(still_queued.in_words(context.settings, document["still_queued"]))
    for words, command in left:
        after = f"a replay leaves them there; `{command}` removes them afterwards"
        context.console.print(f"\n{words}; {after}", soft_wrap=True)


def _section(context: Context, title: str, counts: Mapping[str, int], notes: Mapping[str, str]) -> None:
    if not counts:
        return
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for name, count in list(counts.items())[:_MOST_ROWS]:
        table.add_row(f"  {count:>9,}", for_terminal(name), for_terminal(notes.get(name, "")))
    context.console.print(f"\n{title}")
    context.console.print(table)
    if len(counts) > _MOST_ROWS:
        context.console.print(f"             and {len(counts) - _MOST_ROWS:,} more")


def show_run(context: Context, document: Mapping[str, Any]) -> None:
    """Show what an apply has sent, and how the plan stands now."""
    sent, seconds = document["sent"], document["seconds"]
    out = context.console.print
    out(f"Plan {document['plan']}: {sent:,} sent, {document['skipped']:,} already in the ledger")
    if seconds:
        out(f"{human_seconds(seconds)}, {sent / seconds:,.0f} a second")
    _show_states(context, document)


def show_status(context: Context, document: Mapping[str, Any]) -> None:
    """Show how a plan stands."""
    context.console.print(f"Plan {document['plan']}: {_count(sum(document['states'].values()))}")
    _show_states(context, document)


def _show_states(context: Context, document: Mapping[str, Any]) -> None:
    """Show the states of a plan, and what to do next."""
    states: Mapping[str, int] = document["states"]
    _section(context, "states", {state: count for state, count in states.items() if count}, {})
    for step in document.get("steps", ()):
        seen = IN_WORDS[step["evidence"]]
        context.console.print(f"  step of {step['sent']:>9,}: {step['came_back']:,} came back, {seen}")
    show_came_back(context, document.get("came_back", ()))
    _show_stopped(context, document.get("stopped_keys", ()))
    context.console.print("\nNext: " + "\n      ".join(_next(context, document)), soft_wrap=True)


def _show_stopped(context: Context, stopped: Sequence[Mapping[str, Any]]) -> None:
    """Show the keys of a plan in order that do not go on, and who waits."""
    if stopped:
        context.console.print("\nstopped keys")
    for one in stopped[:_MOST_ROWS]:
        ids = [record_id[:12] for record_id in one["left"]]
        named = ", ".join(ids[:_MOST_NAMED]) + (", …" if len(ids) > _MOST_NAMED else "")
        why = f"{one['record_id'][:12]} {_STOPPED.get(one['why'], one['why'])}"
        context.console.print(
            f"  {for_terminal(one['key'])}: {why}, {len(ids):,} wait: {named}", soft_wrap=True
        )
    if len(stopped) > _MOST_ROWS:
        context.console.print(f"  and {len(stopped) - _MOST_ROWS:,} more")


def _next(context: Context, document: Mapping[str, Any]) -> Sequence[str]:
    """Return the commands to type, one after the other."""
    plan, states = document["plan"], document["states"]
    left = states["planned"] - document.get("sent_elsewhere", 0)
    if states["in_doubt"]:
        return [f"dlq replay reconcile {plan}   # what became of the {states['in_doubt']:,} in doubt?"]
    again = [
        f"dlq show {shlex.quote(one['record_id'][:12])} --explain   # shows why it died: fix that"
        for one in document.get("came_back", ())[:1]
    ]
    if stopped := document.get("stopped_keys"):
        named = shlex.quote(stopped[0]["key"])
        return [
            *again,
            f"dlq replay apply {plan} --release {named}   # if its next letters may go; else make a new plan",
        ]
    if again and left:
        return [*again, f"dlq replay apply {plan} --ramp   # then send the {left:,} left"]
    if left and document.get("stopped_by"):
        return [f"dlq replay apply {plan} --ramp   # when the consumer runs: sends the {left:,} left"]
    if left:
        return [f"dlq replay apply {plan}   # {left:,} are not sent yet"]
    if states["returned"] or states["refused"]:
        why = 'dlq query "select state, detail, count(*) from replays group by all"'
        return [f"{why}; fix that, then make a new plan with --any-advice"]
    left_behind = still_queued.in_words(context.settings, document.get("still_queued", {}))
    return [
        *(f"{command}   # {words}; nothing is archived twice" for words, command in left_behind),
        "dlq verify",
    ]


def show_resolved(context: Context, document: Mapping[str, Any]) -> None:
    """Show what reconcile found out."""
    counts, held = document["resolved"], document["held"]
    aside = f", {held:,} are set aside" if held else ""
    doubt = f"{counts['unknown']:,} are still in doubt"
    found = f"{counts['sent']:,} arrived, {counts['not_sent']:,} did not, {doubt}"
    told = found if any(counts.values()) else "no letter is in doubt"
    context.console.print(f"Plan {document['plan']}: {told}{aside}")
    if counts["unknown"]:
        context.console.print(f"\n{_DECIDE}", soft_wrap=True)
    elif counts["not_sent"]:
        context.console.print(f"\nNext: dlq replay apply {document['plan']}")


def show_checked(context: Context, document: Mapping[str, Any]) -> None:
    """Show what the consumers say of a plan's messages, a line each."""
    out = context.console.print
    for one in document["consumers"]:
        missing = [record_id[:12] for record_id in one["not_processed"]]
        named = (
            ": " + ", ".join(missing[:_MOST_ROWS]) + (", …" if len(missing) > _MOST_ROWS else "")
            if missing
            else ""
        )
        unknown = f", {one['unknown']:,} unknown" if one["unknown"] else ""
        out(
            f"{one['consumer']}: {one['processed']:,} processed, {len(missing):,} not{named}{unknown}",
            soft_wrap=True,
        )
    if document["unasked"]:
        out(
            f"{document['unasked']:,} of {document['confirmed']:,}: no consumer's program (verify) knows them"
        )


def show_plans(context: Context, plans: Sequence[Mapping[str, Any]]) -> None:
    """Show a line a plan: how far it is, where its letters go, how old it is."""
    if context.output == "table":
        context.emit_rows(_FOR_EYES, [[_for_eyes(plan)[name] for name in _FOR_EYES] for plan in plans])
    else:
        context.emit_rows(COLUMNS, [[plan[name] for name in COLUMNS] for plan in plans])


def _for_eyes(plan: Mapping[str, Any]) -> Mapping[str, Any]:
    made, where = from_iso(plan["created_at"]), plan["where"]
    return {
        **plan,
        "age": "" if made is None else human_seconds(max(0, now() - made) / 1_000_000),
        "progress": ", ".join(f"{plan[state]:,} {state}" for state in _SHOWN if plan.get(state)),
        "where": None if where is None else shorten(" ".join(where.split()), _LONG),
    }
