"""Plans: made and approved, all there are, one in full, how far each is, and why one may not be applied."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import NamedTuple

from dlq.core.clock import iso, now
from dlq.core.documents import Document
from dlq.core.errors import Busy, DlqError, UsageError
from dlq.core.failures import check_length
from dlq.core.text import encodable
from dlq.operations.brokers.connecting import connect, warn_of_ledger, warn_of_patterns
from dlq.operations.reading.selecting import EVERY, Selection, choose
from dlq.operations.reading.views import open_views
from dlq.operations.workspace import Workspace
from dlq.replay import ledger, status, still_queued
from dlq.replay.ledger.contract import Ledger
from dlq.replay.plans import approvals, edits, planfile
from dlq.replay.plans.planfile import Header
from dlq.replay.plans.wanted import Wanted
from dlq.replay.runs.apply import check_plan
from dlq.replay.runs.brokers import Brokers, Opener
from dlq.replay.runs.load import Loader
from dlq.replay.states import STATES, State
from dlq.reports.letters.masking import Masker

COLUMNS = ("plan", "created_at", "letters", *STATES, "targets", "to", "where")
"""Of a plan in a list."""
LEFT_OUT: Mapping[str, str] = {
    "check_first": "advice: check first; dlq show says what",
    "fix_first": "advice: fix the cause first, then --fixed",
    "never": "advice: must not go back",
    "hold": "advice: wait, its outcome can still change",
    "no_verdict": "not analyzed yet: dlq analyze",
    "no_target": "nothing says where it came from: name it with --to",
    "temporary": "its target was deleted with its connection: name another with --to",
    "not_there": "the target does not exist, see below",
    "not_allowed": "[replay] targets in the configuration does not let letters go there",
    "not_rehearsed": "it goes elsewhere than what was rehearsed: another consumer's word is not its own",
    "no_broker": "no configured broker belongs to it: configure its source, or import with --broker",
    "superseded": "a newer one of its key replaced it, see below: --any-advice, unless its source says never",
    "same_key": "another letter of this plan is the same letter or business message",
    "sent_elsewhere": "already sent to another target, or may have been; --again includes it",
    "twin_sent": "another letter of the same message was sent: name it by its id to send it, too",
    "risky": "it would be refused or harm the others, see below",
    "rehearsal": "copy that a rehearsal made",
    "replayed": "already sent, and confirmed by the broker",
    "sending": "being sent right now",
    "in_doubt": "sent, but in doubt: dlq replay reconcile",
    "held": "set aside by dlq replay reconcile",
    "dismissed": "closed by dlq dismiss; --undo opens them again",
    "returned": "sent before: the broker could not route it",
    "refused": "sent before: the broker refused it",
}
"""Reason for which a plan leaves letters out -> what it means, in words."""


_NO_WORD = "it was being sent when the apply ended, and no answer came"
"""Why a letter is in doubt of which the ledger holds no more."""


class Plans(NamedTuple):
    """All plans that hold letters, oldest first: the COLUMNS of each; and what of others cannot be read."""

    plans: Sequence[Document]
    damaged: Sequence[DlqError]


def list_plans(workspace: Workspace) -> Plans:
    """Return every plan with the states of its letters."""
    damaged: list[DlqError] = []
    warn_of_ledger(workspace)
    with ledger.opened_if_any(workspace.settings.ledger, workspace.store) as book:
        if book is not None:
            book.expire()
        headers = sorted(_headers(workspace, damaged), key=lambda header: header.created_at)
        every = book.counts_of_all() if book else {}
        rows = [_row(workspace, book, one, every) for one in headers if one.letters]
        return Plans(rows, damaged)


def count_sent(workspace: Workspace, letters: dict[str, int]) -> Iterator[tuple[str, Mapping[str, int]]]:
    """Yield a plan and its letters in each state, as the ledger alone tells: what another plan sent of it is
    planned here. `letters`, how many each plan has, is filled here: a plan never changes."""
    with ledger.opened_if_any(workspace.settings.ledger, workspace.store) as book:
        if book is not None:
            book.expire()
        if any(plan not in letters for plan in planfile.ids(workspace.store)):
            letters |= {header.plan: header.letters for header in _headers(workspace, [])}
        for plan, size in letters.items():
            own = book.counts(plan) if book else {}
            known = {str(state): own.get(state, 0) for state in STATES}
            yield plan, {**known, "planned": known["planned"] + size - sum(known.values())}


def _headers(workspace: Workspace, damaged: list[DlqError]) -> Iterator[Header]:
    for plan in planfile.ids(workspace.store):
        try:
            yield planfile.load(workspace.store, plan)
        except DlqError as error:
            damaged.append(error)


def _row(workspace: Workspace, book: Ledger | None, header: Header, every: status.CountsOfAll) -> Document:
    states = status.counts(workspace.store, book, header, every)
    return {
        "plan": header.plan,
        "created_at": header.created_at,
        "letters": header.letters,
        **{str(state): count for state, count in states.items()},
        "targets": ", ".join(header.targets),
        "to": header.to,
        "where": header.where,
    }


class PlanWanted(NamedTuple):
    """Which letters go back, named by id or selected, and how; whom `how` is for, and its condition, are
    filled in when the plan is made."""

    ids: Sequence[str] = ()
    selection: Selection = EVERY
    how: Wanted = Wanted()


class Made(NamedTuple):
    """A new plan: its header, the document of `_describe_plan`, and what its edits change, in lines."""

    header: Header
    document: Document
    differences: Sequence[str]


def make_plan(workspace: Workspace, wanted: PlanWanted, opener: Opener | None = None) -> Made:
    """Choose letters and write a plan; nothing is sent. `opener` opens brokers otherwise than by connecting.
    Raises UsageError, BrokerError."""
    from dlq.replay.plans.plan import make  # who applies a plan, or lists them, makes none

    warn_of_patterns(workspace)
    how = replace(
        wanted.how,
        where=_choose(workspace, wanted),
        keep_headers=wanted.how.keep_headers or workspace.settings.replay.keep or False,
        actor=workspace.actor,
        reason=encodable(wanted.how.reason) if wanted.how.reason else None,
    )
    with Brokers(workspace.settings, opener or partial(connect, workspace)) as brokers:
        header = make(workspace.store, workspace.settings, how, brokers, workspace.listener.say)
    changes = edits.load(workspace.store, header)
    return Made(
        header,
        _describe_plan(workspace, header, len(changes.changed)),
        list(edits.differences(workspace.store, header, changes)),
    )


def is_in_order(workspace: Workspace, prefix: str) -> bool:
    """Return whether the plan whose id begins so goes key by key. Raises UsageError."""
    return planfile.load(workspace.store, planfile.find(workspace.store, prefix)).in_order is not None


def _choose(workspace: Workspace, wanted: PlanWanted) -> str | None:
    if not wanted.ids and wanted.selection.is_all:
        return None
    with open_views(workspace) as connection:
        return choose(workspace, connection, wanted.ids, wanted.selection)


def approve_plan(workspace: Workspace, prefix: str, reason: str = "", digest: str | None = None) -> Document:
    """Consent, as the user, to a plan that somebody else made, as it is now; the ledger keeps it.
    With `digest` only to the one that was looked at. Raises UsageError."""
    header = planfile.load_checked(workspace.store, planfile.find(workspace.store, prefix))
    if digest not in (None, header.digest):
        raise UsageError(f"plan {header.plan} has changed since it was shown: open it again")
    check_length(reason)
    given = approvals.approval(header, workspace.actor, encodable(reason), now(), workspace.settings.replay)
    warn_of_ledger(workspace)
    with ledger.opened(workspace.settings.ledger, workspace.store) as book:
        book.append([given])
    return {
        "plan": header.plan,
        "digest": header.digest,
        "letters": header.letters,
        "made_by": header.actor,
        "approved_by": given.actor,
    }


def _describe_plan(workspace: Workspace, header: Header, changed: int) -> Document:
    """Return what `replay plan` tells of a new plan, of which `changed` letters go back changed."""
    return {
        "plan": header.plan,
        "digest": header.digest,
        "selected": header.letters,
        "edited": changed - header.unwrapped,
        "unwrapped": header.unwrapped,
        "left_out": dict(header.left_out),
        "superseded": header.left_out.get("superseded", 0),
        "superseded_by": dict(header.superseded),
        "not_looked_at": dict(header.not_looked_at),
        "targets": dict(header.targets),
        "target_brokers": {target: list(header.brokers_of(target)) for target in header.targets},
        "still_queued": still_queued.of_plan(workspace.store, workspace.settings, header),
        "told_by_letters": dict(header.told_by_letters),
        "stripped": dict(header.stripped),
        "warnings": dict(header.warnings),
        "owners": list(header.owners),
        "in_order": header.in_order,
        "unkeyed": header.unkeyed,
        "actor": header.actor,
        "reason": header.reason,
        "audience": {target: list(receivers) for target, receivers in header.audience.items()},
    }


def show_plan(workspace: Workspace, prefix: str, masker: Masker | None = None) -> Document:
    """Return the plan whose id begins so, as it was told when it was made, and: when that was, of which
    letters, where to and how (`created_at, where, to, rate, any_advice, keep_headers, witness`), what its
    edits change (`differences`, masked by `masker`), and who said what of it (`history`). Raises UsageError
    for none, several, or one that somebody has changed."""
    header = planfile.load_checked(workspace.store, planfile.find(workspace.store, prefix))
    changes, mask = edits.load(workspace.store, header), dict if masker is None else masker.document
    asked = ("created_at", "where", "to", "rate", "any_advice", "keep_headers", "witness")
    return {
        **_describe_plan(workspace, header, len(changes.changed)),
        **{name: getattr(header, name) for name in asked},
        "differences": list(edits.differences(workspace.store, header, changes, mask)),
        "history": [
            {"at": iso(one.at), "actor": one.actor, "action": one.action, "reason": one.reason}
            for one in ledger.events(workspace.settings.ledger, workspace.store)
            if one.subject == header.plan
        ],
    }


def list_plan_letters(
    workspace: Workspace, prefix: str, limit: int = 0, after: int = -1
) -> Iterator[Document]:
    """Yield the letters of a plan in its order, from behind the one with the number `after`: `number,
    record_id, key, lap, broker, target`. At most `limit`; 0: all. Raises UsageError, ArchiveError where the
    file is damaged."""
    letters = planfile.letters(workspace.store, planfile.find(workspace.store, prefix))
    for letter in islice(letters, after + 1, after + 1 + limit if limit else None):
        told = letter._asdict()
        names = ("number", "record_id", "key", "lap", "broker")
        yield {**{name: told[name] for name in names}, "target": str(letter.target)}


def count_states(workspace: Workspace, header: Header) -> Mapping[State, int]:
    """Return state -> letters of the plan, those that another plan sent among them."""
    warn_of_ledger(workspace)
    with ledger.opened_if_any(workspace.settings.ledger, workspace.store) as book:
        if book is not None:
            book.expire()
        return status.counts(workspace.store, book, header)


def read_replay_status(workspace: Workspace, prefix: str, classify: bool = True) -> Document:
    """Return how far the plan is whose id begins so: `plan, states, sent, skipped, seconds, still_queued,
    came_back, stopped_keys`. What came back and is not classified yet is classified now, unless `classify` is
    false. Raises UsageError."""
    from dlq.operations import triage  # they classify and send, and to plan needs none of that
    from dlq.operations.replays import in_order

    header = planfile.load(workspace.store, planfile.find(workspace.store, prefix))
    states = count_states(workspace, header)
    sent = header.letters - states["planned"] - states["sending"] - states.get("dismissed", 0)
    return {
        "plan": header.plan,
        "states": states,
        "sent": sent,
        "skipped": 0,
        "seconds": 0.0,
        "still_queued": still_queued.of_plan(workspace.store, workspace.settings, header),
        "came_back": triage.list_came_back(workspace, header.plan, classify) if sent else [],
        "stopped_keys": in_order.list_stopped(workspace, header),
    }


def describe_doubt(workspace: Workspace, plan: str, most: int) -> Document:
    """Return `why`: reason -> how many letters of the plan are in doubt for it; and the first `letters` of
    these, at most so many: `record_id, target, sent_at, why`."""
    with ledger.opened_if_any(workspace.settings.ledger, workspace.store) as book:
        found = book.entries(plan, "in_doubt") if book is not None else []
    rows = [
        {"record_id": e.record_id, "target": e.target, "sent_at": iso(e.sent_at), "why": e.detail or _NO_WORD}
        for e in found
    ]
    return {"why": dict(Counter(row["why"] for row in rows).most_common()), "letters": rows[:most]}


def why_not_apply(workspace: Workspace, plan: str) -> DlqError | None:
    """Return what an apply of this plan would be refused for now, before a broker is asked; None: nothing."""
    try:
        with ledger.opened_if_any(workspace.settings.ledger, workspace.store) as book:
            checked = check_plan(workspace.store, workspace.settings, plan, book)
            Loader(workspace.store).check(checked.header, checked.letters(), book)
        holder = workspace.store.holder(f"plan-{plan}")
        return Busy(f"plan-{plan} is locked by {holder}") if holder else None
    except DlqError as error:
        return error
