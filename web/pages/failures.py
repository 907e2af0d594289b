"""Failures: listed, one with its life, and what people say of them."""

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from starlette.responses import Response

from dlq.archive import brief
from dlq.archive.user_sql import run
from dlq.core.causes import ADVICE
from dlq.core.documents import Document
from dlq.core.errors import UsageError
from dlq.core.failures import ORDER
from dlq.operations.reading import failures as operations
from dlq.operations.reading.letters import show_letter
from dlq.operations.reading.views import open_views
from dlq.operations.replays.proposals import Proposal, carry_out, list_proposals
from dlq.operations.workspace import Workspace
from dlq.reports import common, owners, timeline
from dlq.reports import failures as words
from dlq.reports.letters import stack
from dlq.web.console import PageRequest, Undo
from dlq.web.forms import Form
from dlq.web.look import this_minute
from dlq.web.pages.letter_values import add_trace
from dlq.web.pages.paging import show_part
from dlq.web.pages.plans import read_plans


def list_page(ask: PageRequest) -> Response:
    """Show failures, what needs a person first."""
    chosen = {name: ask.query[name] for name in ("state", "owner") if ask.query.get(name)}
    states, owner = [chosen["state"]] if "state" in chosen else [], chosen.get("owner")
    operations.check_states(states)
    rows = operations.choose_failures(list_every(ask), states, owner)
    options = "".join(f" --{name} {shlex.quote(value)}" for name, value in chosen.items())
    shown = show_part(ask, rows, lambda row: str(row["fingerprint"]), "/failures", **chosen)
    return ask.page(
        "failures",
        f"dlq failures{' ls' if options else ''}{options}",
        **shown,
        sparks=count_each(ask, shown["rows"]),
        total=len(rows),
        chosen={"state": "", "owner": "", **chosen},
        order=ORDER,
        words=words,
    )


def list_every(ask: PageRequest) -> list[words.Row]:
    """Return all failures, what needs a person first."""
    found = _find_every(ask)
    named = ("failures", this_minute())  # a snooze may end
    return ask.console.look.keep(named, lambda seen: operations.tell_failures(seen, found))


def list_states(ask: PageRequest) -> tuple[tuple[str, str, str | None], ...]:
    """Return fingerprint, state and owner of all failures that somebody spoke of: all that reports know of
    what was said, so that no note makes one anew."""
    return tuple((row["fingerprint"], row["state"], row["owner"]) for row in list_every(ask) if row["events"])


def _find_every(ask: PageRequest) -> list[words.Row]:
    """Return all failures as if nobody had spoken of any."""
    return ask.console.look.keep("found failures", operations.find_failures, of_letters=True)


def count_each(ask: PageRequest, rows: Sequence[Mapping[str, Any]]) -> Mapping[str, Sequence[int]]:
    """Count when the letters of these failures died, for a small chart of each."""
    names = tuple(str(row["fingerprint"]) for row in rows)
    count = partial(timeline.count_each, fingerprints=names)
    return ask.console.look.keep(
        ("each", names), lambda workspace: count(open_views(workspace)), of_letters=True
    )


class _Seen(NamedTuple):
    """What the archive says of one failure beside its row."""

    sample: Mapping[str, Any] | None
    """An example, masked."""
    timeline: list[dict[str, Any]]
    common: list[common.Trait]
    incidents: list[str]
    plans: list[str]


_INCIDENTS = (
    "SELECT DISTINCT incident_id FROM _sums WHERE fingerprint = ? AND incident_id IS NOT NULL ORDER BY 1"
)
_PLANS = """
    SELECT DISTINCT plan FROM replays SEMI JOIN _of_failure USING (record_id)
    WHERE state <> 'dismissed' ORDER BY 1 DESC"""


def _look_at(ask: PageRequest, workspace: Workspace, row: Mapping[str, Any]) -> _Seen:
    name = row["fingerprint"]
    found = show_letter(workspace, row["example"], ask.masker()) if row["example"] else None
    views = open_views(workspace)
    brief.sum_up(views)
    with brief.of_failure(views, name):
        return _Seen(
            add_trace(found) if found else None,
            timeline.count_deaths(views),
            [one for one in common.gather(views) if _is_shown(ask, one)],
            [one for (one,) in run(views, _INCIDENTS, [name]).rows],
            [one for (one,) in run(views, _PLANS).rows],
        )


def _list_owners(ask: PageRequest, fingerprint: str) -> list[Document]:
    """Return what the owners of consumers say of a failure by now."""
    return ask.console.look.keep(
        ("owners", fingerprint, this_minute()),
        lambda seen: owners.gather(open_views(seen), seen.settings, fingerprint),
        of_letters=True,
    )


def _is_shown(ask: PageRequest, trait: common.Trait) -> bool:
    """Return whether a trait is shown. All letters have one value of what is masked, which says nothing."""
    values = [
        {"headers": {trait.name: value}} if trait.is_header else {trait.name: value}
        for value, _share in trait.values
    ]
    return ask.mask_all(values) == values


def _list_planned(ask: PageRequest, fingerprint: str) -> list[str]:
    """Return plans that were made of this failure, of which nothing need have been sent."""
    return [row["plan"] for row in read_plans(ask).plans if f"'{fingerprint}'" in (row["where"] or "")]


def show_page(ask: PageRequest) -> Response:
    """Return one failure, with an example and all that was said of it."""
    rows = list_every(ask)
    found, keep = words.find(rows, ask.names["fingerprint"]), ask.console.look.keep
    name, kinds = found["fingerprint"], found["broker_kinds"]
    row = operations.tell_alone(found)
    look = keep(("failure", name), lambda workspace: _look_at(ask, workspace, row), of_letters=True)
    proposals = keep(("proposals", name), lambda workspace: list_proposals(workspace, name))
    quoted = shlex.quote(name[:12])
    return ask.page(
        "failure",
        [f"dlq failures show {quoted}", f"dlq ls --failure {quoted}"],
        row={**ask.mask(row), "broker_kinds": kinds},
        sample=look.sample,
        timeline=look.timeline,
        common=look.common,
        incidents=look.incidents,
        plans=[*dict.fromkeys([*look.plans, *_list_planned(ask, name)])],
        owners=_list_owners(ask, name),
        own=next((text for kind, text in (look.sample or {"trace": ()})["trace"] if kind == "own"), ""),
        advice=ADVICE,
        proposals=[_tell_proposal(ask, one, row) for one in proposals if not one.done_by],
        marks=stack.MARKS,
        words=words,
    )


def _tell_proposal(ask: PageRequest, told: Proposal, row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a proposal that waits, and why it cannot be carried out here."""
    deed, why = told.deed, ""
    if deed is None:
        why = "this page does only what the tools of agents propose: run it in a shell, or leave it"
    elif deed.action == "dismiss" and not row["waiting"]:
        why = "none of its letters waits"
    shown = {"by": told.by, "at": told.at, "command": told.command, "reason": deed.reason if deed else ""}
    what = _DEEDS[deed.action].format(deed.value) if deed else "Run a command"
    return {**ask.mask({**shown, "what": what}), "id": told.id, "why": ask.barrier("triage") or why}


_DEEDS = {
    "dismiss": "Dismiss its letters", "note": "Write a note",
    "assign": "Assign it to {}", "resolve": "Resolve it",
}  # fmt: skip


def _assign(workspace: Workspace, one: str, form: Form) -> Mapping[str, Any]:
    return operations.assign_failure(workspace, one, form.text("owner"), form.text("reason"))


def _note(workspace: Workspace, one: str, form: Form) -> Mapping[str, Any]:
    return operations.note_failure(workspace, one, form.text("text"))


_COUNT = re.compile(r"[1-9][0-9]{0,14}")
"""Of letters: at least one, and no more than can be meant."""


def _snooze(workspace: Workspace, one: str, form: Form) -> Mapping[str, Any]:
    letters = form.text("letters")
    if letters and not _COUNT.fullmatch(letters):
        raise UsageError(f"{letters!r} is no number of letters; write a number")
    until = form.text("until") or None
    return operations.snooze_failure(
        workspace, one, until, int(letters) if letters else None, form.text("reason")
    )


def _resolve(workspace: Workspace, one: str, form: Form) -> Mapping[str, Any]:
    return operations.resolve_failure(workspace, one, form.text("reason"), form.text("version"))


def _reopen(workspace: Workspace, one: str, form: Form) -> Mapping[str, Any]:
    return operations.reopen_failure(workspace, one, form.text("reason"))


def _make_page(
    action: str, say: Callable[[Workspace, str, Form], Mapping[str, Any]]
) -> Callable[[PageRequest], Response]:
    def page(ask: PageRequest) -> Response:
        workspace = replace(ask.workspace(proven=True), failures=_find_every(ask))
        before = words.find(list_every(ask), ask.names["fingerprint"])
        with ask.console.look.open() as seen:
            here = replace(workspace, views=seen.views, said=seen.said)
            row = say(here, before["fingerprint"], ask.form)
        owner = f", and {row['owner']} owns it" if row["owner"] else ""
        told, path = f"It is {row['state']} now{owner}.", f"/failures/{row['fingerprint']}"
        return ask.go_on(path, told, *ask.list_notes(workspace), undo=_undo(path, action, before))

    return page


def _undo(path: str, action: str, before: Mapping[str, Any]) -> Undo | None:
    """Return what undoes an action; None for a note, which stays in the history."""
    if action == "assign":
        return Undo(f"{path}/assign", [("owner", before["owner"] or ""), ("reason", "undone")])
    is_back = action in ("snooze", "resolve") and before["state"] in ("new", "open")
    return Undo(f"{path}/reopen", [("reason", "undone")]) if is_back else None


def carry_out_page(ask: PageRequest) -> Response:
    """Do what an agent has proposed, as this person."""
    failure, workspace = ask.names["fingerprint"], ask.workspace(proven=True)
    told = carry_out(workspace, failure, ask.names["proposal"])
    return ask.go_on(f"/failures/{failure}", told, *ask.list_notes(workspace))


ACTIONS = {
    "assign": _make_page("assign", _assign),
    "note": _make_page("note", _note),
    "snooze": _make_page("snooze", _snooze),
    "resolve": _make_page("resolve", _resolve),
    "reopen": _make_page("reopen", _reopen),
}
"""What people say of a failure -> its page."""
