"""Replays: begun as a process of its own, followed while it goes on, stopped, and reconciled."""

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.responses import RedirectResponse, Response

from dlq.core.documents import Document
from dlq.core.errors import UsageError
from dlq.core.identity import is_record_id
from dlq.core.runtime import patience
from dlq.operations.replays.applying import change_rate, stop_plan
from dlq.operations.replays.plans import (
    count_sent,
    count_states,
    describe_doubt,
    read_replay_status,
    why_not_apply,
)
from dlq.operations.workspace import Workspace
from dlq.replay.plans import planfile
from dlq.replay.plans.planfile import Header
from dlq.replay.runs.consumed import IN_WORDS
from dlq.web.console import PageRequest
from dlq.web.jobs import Job
from dlq.web.live import send_news
from dlq.web.pages import commands, plans
from dlq.web.pages.paging import PAGE

_STOPPED_BY = {
    "harm": "The ramp was stopped: its letters died again.",
    "no_evidence": "The ramp was stopped: nothing shows that its letters are consumed.",
}
_MOMENTS = 5
_ASKED = ("replay", "reconcile")
_DECISIONS = {"sent": "sent", "not_sent": "not-sent", "hold": "hold"}
"""A button -> the option of the command."""
_STOPPING = "It was asked to stop: what is in flight is still answered."


def show_page(ask: PageRequest) -> Response:
    """Return how far a plan is, and what came back."""
    name = ask.names["plan"]
    document = ask.console.look.keep(
        ("replay", name), lambda workspace: read_replay_status(workspace, name, classify=False)
    )
    plan, back = document["plan"], ask.mask_all(document["came_back"])
    values = _describe(ask, plan, document["states"])
    doubt = ask.console.look.keep(("doubt", plan), lambda workspace: describe_doubt(workspace, plan, PAGE))
    values |= {**_tell_doubt(ask, doubt, values["jobs"]), "came_back": back}
    values["stopped"] = ask.mask_all(document["stopped_keys"][:PAGE])
    values["stopped_more"] = len(document["stopped_keys"][PAGE:])
    workspace = ask.workspace(proven=True)
    header = planfile.load(workspace.store, plan)
    values |= {"digest": header.digest, "most": header.rate}
    values["why_not_apply"] = ask.masker().sentence(str(why_not_apply(workspace, plan) or ""))
    return ask.page("replay", f"dlq replay status {plan}", **values)


def _tell_doubt(ask: PageRequest, doubt: Document, jobs: Sequence[Job]) -> Mapping[str, Any]:
    """Return why letters are in doubt, and what the brokers said when they were asked of them last."""
    asked = next((job for job in jobs if job.words[:2] == _ASKED), None)
    said = ask.mask_errors(ask.console.jobs.output(asked)[1]) if asked and doubt["letters"] else ""
    why: Counter[str] = Counter()
    for text, count in doubt["why"].items():
        why[ask.mask_errors(text)] += count
    letters = [ask.mask(one | {"why": ask.mask_errors(one["why"])}) for one in doubt["letters"]]
    return {"doubt": {"why": why, "letters": letters}, "said": said}


def follow(ask: PageRequest) -> Response:
    """Send news of a replay, also of what begins later."""
    workspace = ask.workspace()
    header = planfile.load(workspace.store, planfile.find(workspace.store, ask.names["plan"]))
    sent: list[tuple[float, int]] = []
    elsewhere = ask.console.look.keep(("elsewhere", header.plan), lambda seen: _count_elsewhere(seen, header))

    def read() -> dict[str, Any]:
        own = _count_own(workspace, header)
        states = {state: own.get(state, 0) + count for state, count in elsewhere.items()}
        left = states["planned"] + states["sending"] + states.get("dismissed", 0)
        sent.append((time.monotonic(), header.letters - left))
        return {
            **_describe(ask, header.plan, states),
            "rate": min(_measure_rate(sent), header.rate or math.inf),
        }

    return send_news("replay", read, lambda: bool(_tell_who(ask, header.plan)))


def _count_own(workspace: Workspace, header: Header) -> Mapping[str, int]:
    return dict(count_sent(workspace, {header.plan: header.letters}))[header.plan]


def _count_elsewhere(workspace: Workspace, header: Header) -> Mapping[str, int]:
    """Return what letters that other plans have sent add to each state: found by a look at each letter, so
    not with all the news."""
    own = _count_own(workspace, header)
    return {state: count - own.get(state, 0) for state, count in count_states(workspace, header).items()}


def _measure_rate(sent: list[tuple[float, int]]) -> float:
    """Return letters a second, over the last of these moments."""
    del sent[:-_MOMENTS]
    (since, before), (now, after) = sent[0], sent[-1]
    return (after - before) / (now - since) if after > before else 0.0


def _describe(ask: PageRequest, plan: str, states: Mapping[Any, int]) -> dict[str, Any]:
    jobs = [job for job in ask.console.jobs.list_all() if job.about == plan]
    ramp = planfile.ramp_of(ask.workspace().store, plan)
    why = ramp.get("stopped_by")
    return {
        "plan": plan,
        "states": states,
        "letters": sum(states.values()),
        "going": _tell_who(ask, plan),
        "left": states["planned"] + states["sending"],
        "rate": 0.0,
        "steps": ramp.get("steps", ()),
        "evidence": IN_WORDS,
        "problems": [_STOPPED_BY.get(why, why)] if why else [],
        "jobs": jobs,
    }


def _tell_who(ask: PageRequest, plan: str) -> str:
    """Return who applies a plan now; nothing where nobody does."""
    jobs = ask.console.jobs.list_running(plan)
    return f"dlq {' '.join(jobs[0].words)}, begun by {jobs[0].by}" if jobs else ""


def apply(ask: PageRequest) -> Response:
    """Begin to send what of a plan was never sent, in a process of its own."""
    workspace, form = ask.workspace(proven=True), ask.form
    plan = plans.check_digest(workspace, ask.names["plan"], form)
    if refused := why_not_apply(workspace, plan):
        raise refused
    ramp = ["--ramp", "--max-harm", _read_harm(form.text("max_harm"))] if form.text("ramp") else []
    commands.start(ask, ["replay", "apply", plan, *ramp], plan)
    return RedirectResponse(f"/replays/{plan}", 303)


def _read_harm(text: str) -> str:
    try:
        harm = float(text or "10")
    except ValueError:
        harm = -1.0
    if not 0 <= harm <= 100:
        raise UsageError(f"{text!r} is no percentage; write a number up to 100")
    return f"{harm:g}"


def stop(ask: PageRequest) -> Response:
    """Ask whoever applies a plan to stop; one that has just been begun may not hear it yet, and is asked
    again."""
    plan, workspace, jobs = ask.names["plan"], ask.workspace(proven=True), ask.console.jobs
    stopping = False
    for _ in patience.tries(patience.SHORTLY, patience.RECHECK):
        stopping = stop_plan(workspace, plan)["stopping"] or stopping
        if not jobs.list_running(plan):
            break
    return ask.go_on(f"/replays/{plan}", _STOPPING if stopping else "Nobody is applying it.")


def change(ask: PageRequest) -> Response:
    """Ask whoever applies a plan to send faster, or slower; one that has just been begun is waited for."""
    workspace, text = ask.workspace(proven=True), ask.form.text("rate")
    try:
        rate = float(text)
    except ValueError as error:
        raise UsageError(f"{text!r} is no number of letters a second; write one like 5 or 0.5") from error
    for _ in patience.tries(patience.SHORTLY, patience.RECHECK):
        told = change_rate(workspace, ask.names["plan"], rate)
        if told["changed"] or not ask.console.jobs.list_running(told["plan"]):
            break
    news = f"{told['rate']:g} a second from now on." if told["changed"] else "Nobody is applying it."
    return ask.go_on(f"/replays/{told['plan']}", news)


def decide(ask: PageRequest) -> Response:
    """Write down what somebody knows of letters in doubt, in a process of its own that asks the brokers
    first."""
    option = _DECISIONS.get(ask.form.text("act"))
    ids = ask.form.several("id")
    if option is None or not (ids or ask.form.text("all")) or not all(map(is_record_id, ids)):
        raise UsageError("tick the letters of which you know what became of them, or all of them")
    words = [f"--all-{option}"] if ask.form.text("all") else [f"--{option}={one}" for one in ids]
    plan = planfile.find(ask.workspace().store, ask.names["plan"])
    commands.start(ask, [*_ASKED, plan, *words], plan)
    return RedirectResponse(f"/replays/{plan}", 303)


def reconcile(ask: PageRequest) -> Response:
    """Ask the brokers what became of letters in doubt, in a process of its own."""
    plan = planfile.find(ask.workspace().store, ask.names["plan"])
    commands.start(ask, [*_ASKED, plan], plan)
    return RedirectResponse(f"/replays/{plan}", 303)
