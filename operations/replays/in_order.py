"""A plan in order is applied: who watches its consumers, which keys stop, and who lets them go on."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

from dlq.core.clock import now
from dlq.core.documents import Document
from dlq.core.errors import UsageError
from dlq.core.failures import make_event
from dlq.core.settings import Source
from dlq.core.values.units import seconds
from dlq.operations.outcome import ExitCode, worst
from dlq.operations.replays.applying import Applied, line_of, open_brokers, sending
from dlq.operations.replays.ramping import (
    finish_ramp,
    keep_steps,
    look_again,
    say_what_it_goes_by,
    tell,
    tell_what_is_sent,
    watched_sources,
)
from dlq.operations.workspace import Workspace
from dlq.replay import came_back, ledger
from dlq.replay.ledger.contract import Ledger
from dlq.replay.plans import planfile
from dlq.replay.plans.planfile import Header
from dlq.replay.runs import ordering
from dlq.replay.runs.apply import Run, forget_ended
from dlq.replay.runs.consumed import read_standing
from dlq.replay.runs.elsewhere import list_going
from dlq.replay.runs.pace import Stop
from dlq.replay.runs.ramp import Watch, places_of
from dlq.replay.runs.turns import Turns, send_in_turns


def apply_in_order(
    workspace: Workspace, prefix: str, max_share: float | None = None, release: Sequence[str] = ()
) -> Applied:
    """Send a plan key by key, in growing waves where `max_share` (0 to 1) says how much of one may die again;
    keys that stopped go on where they are to be released. Raises as `apply_plan` and `ramp_plan`, and
    UsageError for a plan in no order, or a key that cannot be released."""
    plan = planfile.find(workspace.store, prefix)
    checked = planfile.check(workspace.store, plan)
    header = checked.header
    if not header.in_order:
        raise UsageError(
            f"plan {plan} was made without --in-order, so it has no stopped keys; leave out --release"
        )
    exact = ordering.places_in_order(checked.letters()) if header.in_order == "consumed" else set()
    places = exact if max_share is None else places_of(checked.letters())
    sources = watched_sources(workspace, header) if places else []
    stop, line = Stop(workspace.store, plan), line_of(workspace, plan)
    with ExitStack() as held:
        brokers = held.enter_context(open_brokers(workspace))
        book = held.enter_context(ledger.opened(workspace.settings.ledger, workspace.store))
        send = held.enter_context(sending(workspace, plan, brokers, stop, line, tell_what_is_sent))
        turns = Turns(checked.letters(), book, header, list_going(workspace.store, header))
        say_what_it_goes_by(workspace, read_standing(brokers, places - exact), places - exact)
        look = partial(_look, workspace, sources, turns)
        known = _begin(workspace, book, turns, look, release)
        most = math.inf if max_share is None else max_share
        news, note = partial(tell, line), partial(keep_steps, workspace, plan)
        wait = seconds(workspace.settings.replay.ramp_wait)
        watch = Watch(partial(read_standing, brokers), look, wait, most, stop, news, note, exact)
        start = Run(plan, header.letters, skipped=turns.known)
        size = None if max_share is None else 1
        done = send_in_turns(send, turns, watch, start, known, places, size)
        done.run.elsewhere = turns.elsewhere
        if done.run.sent:
            done.run.notes += forget_ended(workspace.store, book, header, brokers)
    stopped = [one._asdict() for one in turns.list_stopped()]
    applied = finish_ramp(workspace, done, stop, {"in_order": header.in_order, "stopped_keys": stopped})
    return replace(applied, code=worst(applied.code, ExitCode.PARTLY)) if stopped else applied


def list_stopped(workspace: Workspace, header: Header) -> list[Document]:
    """Return the keys of a plan in order that do not go on, as far as ledger and archive know. Raises
    UsageError, ArchiveError."""
    if not header.in_order:
        return []
    with ledger.opened_if_any(workspace.settings.ledger, workspace.store) as book:
        if book is None:
            return []
        turns = Turns(planfile.letters(workspace.store, header.plan), book, header)
        turns.learn()
        turns.note_dead(came_back.find_among(workspace.store, turns.out, 0))
        turns.learn()
    return [one._asdict() for one in turns.list_stopped() if one.why != "sending"]


def _look(workspace: Workspace, sources: Sequence[Source], turns: Turns) -> Counter[str]:
    look_again(workspace, sources)
    return turns.note_dead(came_back.find_among(workspace.store, turns.out, 0))


def _begin(
    workspace: Workspace, book: Ledger, turns: Turns, look: Callable[[], Counter[str]], release: Sequence[str]
) -> Counter[str]:
    """Begin before anything is sent: say what is dead again (by target), which keys go on, and whose letters
    come too late, or too early."""
    turns.learn()
    known = look()
    turns.learn()
    released = turns.release(release)
    book.append([make_event(now(), workspace.actor, turns.plan, "release", one) for one in released])
    left = turns.list_left()
    told = ordering.tell(workspace.store, workspace.settings, left, by_all=True) if left else []
    for text, count in ordering.overtaken(set(left), told).items():
        workspace.listener.complain(f"{count:,} letters: {text}")
    return known
