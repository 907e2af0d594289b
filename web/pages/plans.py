"""Plans: made from a selection, shown in full, approved by somebody else."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from starlette.responses import Response

from dlq.core.causes import ADVICE
from dlq.core.errors import TookTooLong, UsageError
from dlq.core.values.units import MOST
from dlq.operations.reading.letters import count_letters, show_letter
from dlq.operations.reading.selecting import Selection
from dlq.operations.replays import consent
from dlq.operations.replays.plans import (
    LEFT_OUT,
    Plans,
    PlanWanted,
    approve_plan,
    count_states,
    list_plan_letters,
    list_plans,
    make_plan,
    show_plan,
    why_not_apply,
)
from dlq.operations.workspace import Workspace
from dlq.replay.actor import is_agent, mark_proven
from dlq.replay.plans import approvals, planfile
from dlq.replay.plans.wanted import DEFAULT_TARGET, Wanted
from dlq.replay.states import STATES
from dlq.reports import failures as words
from dlq.reports.letters import stack
from dlq.web.console import PageRequest
from dlq.web.forms import Form
from dlq.web.look import this_minute
from dlq.web.pages import choosing
from dlq.web.pages.letter_values import add_trace
from dlq.web.pages.paging import PAGE, show_part
from dlq.web.render import make_address

NOTHING_SENT = "Nothing is sent yet: this is what would go."


def list_page(ask: PageRequest) -> Response:
    """Return all plans that hold letters, the newest first."""
    found = read_plans(ask)
    shown = show_part(ask, [*reversed(found.plans)], lambda row: str(row["plan"]), "/plans")
    damaged = [str(error) for error in found.damaged]
    more: dict[str, Any] = {"damaged": damaged, "states": STATES, "waiting": list_waiting(ask)}
    return ask.page("plans", "dlq replay status", **shown, **more)


def read_plans(ask: PageRequest) -> Plans:
    """Return all plans, and how far each is: what people say changes nothing of it, and a plan never
    changes."""
    named = ("plans", *planfile.ids(ask.workspace().store))
    return ask.console.look.keep(named, list_plans, of_letters=True)


def show_page(ask: PageRequest) -> Response:
    """Return one plan: which letters, where to, what is left out and why, and who may carry it out."""
    workspace = ask.workspace(proven=True)
    document = show_plan(workspace, ask.names["plan"], ask.masker())
    plan, after = document["plan"], _read_number(ask.query.get("after", ""))
    letters = list(list_plan_letters(workspace, plan, PAGE, after))
    last = letters[-1]["number"] if letters else -1
    more = last + 1 < document["selected"]
    header = planfile.load(workspace.store, plan)
    try:
        named = ("died of", plan)
        died = ask.console.look.keep(named, lambda seen: _look_at_deaths(ask, seen, plan), of_letters=True)
    except TookTooLong:  # the rest of the page is what matters
        died = _Deaths((), None)
    return ask.page(
        "plan",
        f"dlq replay status {plan}",
        plan=ask.mask(document),
        states=ask.console.look.keep(
            ("states", plan), lambda seen: count_states(seen, planfile.load(seen.store, plan))
        ),
        **died._asdict(),
        looked_at=consent.LOOKED_AT,
        owners=document["owners"],
        by_agent=is_agent(header.actor or ""),
        agents_target=consent.is_target_of_agent(header),
        letters=ask.mask_all(letters),
        first=f"/plans/{plan}" if after >= 0 else "",
        following=make_address(f"/plans/{plan}", after=str(last)) if more else "",
        shown=f"{letters[0]['number'] + 1:,} to {last + 1:,} of {document['selected']:,}" if letters else "",
        approval=approvals.is_needed(header, ask.console.settings.replay),
        why_not_apply=ask.masker().sentence(str(why_not_apply(workspace, plan) or "")),
        why_not_approve=ask.masker().sentence(str(consent.why_not_approve(workspace, plan) or "")),
        left_out=LEFT_OUT,
        marks=stack.MARKS,
        advice_means=ADVICE,
    )


class _Deaths(NamedTuple):
    """What the letters of a plan died of, masked."""

    deaths: Sequence[Mapping[str, Any]]
    """The most first."""
    sample: Mapping[str, Any] | None
    """A letter of the first of these."""


def _look_at_deaths(ask: PageRequest, workspace: Workspace, plan: str) -> _Deaths:
    found = consent.list_deaths(workspace, plan)
    sample = show_letter(workspace, found[0]["example"], ask.masker()) if found else None
    return _Deaths([_with_words(ask, one) for one in found], add_trace(sample) if sample else None)


def _with_words(ask: PageRequest, row: Mapping[str, Any]) -> Mapping[str, Any]:
    masked = ask.mask(row)  # before it is a sentence, of which nothing says any more what a letter held
    return {**masked, "what": words.describe(masked) if row["cause"] else "no verdict"}


def list_waiting(ask: PageRequest) -> list[dict[str, Any]]:
    """Return the plans that wait for this person's consent."""
    if "approve" not in ask.rights:
        return []
    actor = mark_proven(ask.person.name)
    named, keep = ("unsent", *planfile.ids(ask.workspace().store)), ask.console.look.keep
    unsent = keep(named, consent.list_unsent, of_letters=True)
    return ask.mask_all(
        keep(
            ("waiting", actor, this_minute()),
            lambda seen: consent.list_waiting(replace(seen, name=actor), unsent),
        )
    )


def _read_number(text: str) -> int:
    """Read after which letter of the plan a page begins."""
    if not text:
        return -1
    if not (text.isascii() and text.isdigit()):
        raise UsageError(f"{text!r} is no number of a letter of the plan; take one from the plan")
    return int(text[:12])


def show_form(ask: PageRequest) -> Response:
    """Return how the letters that an address chooses would go back."""
    ids = ask.query.getlist("id")
    chosen = choosing.read_filters(ask, lambda name: ask.query.get(name, ""))
    selection, typed = choosing.select_to_change(ask, chosen), choosing.select(chosen)
    count = None
    if ids or not selection.is_all:
        named = ("count", *choosing.name(selection), *ids)
        count = ask.console.look.keep(named, lambda workspace: count_letters(workspace, selection, ids))
    return ask.page(
        "plan_new",
        _command(ids, typed),
        ids=ids,
        selection=chosen,
        options=typed.options(),
        count=count,
        fixed=bool(ask.query.get("fixed")),
    )


def make(ask: PageRequest) -> Response:
    """Make the plan that a form asks for; nothing is sent."""
    workspace = ask.workspace(proven=True)
    made = make_plan(workspace, _read_wanted(ask))
    return ask.go_on(f"/plans/{made.header.plan}", NOTHING_SENT, *ask.list_notes(workspace))


def _read_wanted(ask: PageRequest) -> PlanWanted:
    form = ask.form
    ids, limit = form.several("id"), _read_figure(form, "limit", 1, MOST)
    chosen = {} if ids else choosing.read_filters(ask, form.text)
    how = Wanted(
        to=form.text("to") or DEFAULT_TARGET,
        rate=_read_figure(form, "rate", 0),
        limit=None if limit is None else int(limit),
        any_advice=bool(form.text("any_advice")),
        again=bool(form.text("again")),
        fixed=bool(form.text("fixed")),
        keep_headers=bool(form.text("keep_headers")),
        reason=form.text("reason") or None,
    )
    return PlanWanted(ids, choosing.select_to_change(ask, chosen), how)


def _read_figure(form: Form, name: str, least: float, most: float = sys.float_info.max) -> float | None:
    """Return a number of the form; None where it is empty. Raises UsageError."""
    text = form.text(name)
    if not text:
        return None
    try:
        found = float(text)
    except ValueError:
        found = float("nan")
    if not least <= found <= most:
        raise UsageError(f"--{name} {text}: no number that this can be; write another")
    return found


def _command(ids: Sequence[str], selection: Selection) -> str:
    return " ".join(filter(None, ["dlq replay plan", *(one[:12] for one in ids), selection.options()]))


def approve(ask: PageRequest) -> Response:
    """Consent to a plan that somebody else made, as it was shown."""
    workspace = ask.workspace(proven=True)
    plan = approve_plan(workspace, ask.names["plan"], ask.form.text("reason"), ask.form.text("digest"))[
        "plan"
    ]
    return ask.go_on(f"/plans/{plan}", f"Approved by {ask.person.name}.", *ask.list_notes(workspace))


def check_digest(workspace: Workspace, prefix: str, form: Form) -> str:
    """Return the plan, whole and as the form's page showed it. Raises UsageError."""
    header = planfile.load_checked(workspace.store, planfile.find(workspace.store, prefix))
    if header.digest != form.text("digest"):
        raise UsageError(f"plan {header.plan} has changed since it was shown: open it again")
    return header.plan
