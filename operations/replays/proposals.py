"""What agents propose, and what persons make of it. A proposal changes nothing: it is a plan that waits for a
person's consent, or a command that a person may run, kept with the failure that it is about."""

import shlex
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import NamedTuple

from dlq.archive.user_sql import run
from dlq.connectors.offline import open_offline
from dlq.core.clock import iso, now
from dlq.core.documents import Document
from dlq.core.errors import UsageError
from dlq.core.failures import Event, make_event
from dlq.core.text import encodable
from dlq.operations.dismissing import dismiss_letters
from dlq.operations.reading import failures
from dlq.operations.reading.selecting import Selection
from dlq.operations.reading.views import open_views, read_said
from dlq.operations.replays.plans import PlanWanted, make_plan
from dlq.operations.workspace import Workspace
from dlq.replay import ledger
from dlq.replay.plans import planfile

_MOST_IDS = 1_000
_MOST_OPEN, _OPEN_DAYS = 20, 7
"""Proposals of one agent at which no person has looked; older ones wait, and are not counted."""
_LONGEST = 2_000
"""Characters of a text that an agent may leave."""


def propose_plan(workspace: Workspace, wanted: PlanWanted) -> Document:
    """Write a plan, and ask no broker; it is sent once a person has approved it, and then applies it. What no
    broker was asked is in its warnings. Raises UsageError."""
    reason = _check_text(wanted.how.reason or "", "say why these letters should go back")
    if not wanted.ids and wanted.selection.is_all:
        raise UsageError("say which letters: by ids, a failure, an incident, a source or a cause")
    if len(wanted.ids) > _MOST_IDS:
        raise UsageError(f"at most {_MOST_IDS:,} ids at once; name a failure or an incident instead")
    _check_open(workspace)
    made = make_plan(workspace, wanted._replace(how=replace(wanted.how, reason=reason)), open_offline)
    if not made.header.letters:
        workspace.store.delete(planfile.name_of(made.header.plan))
        why = ", ".join(f"{count:,} {name}" for name, count in made.header.left_out.items())
        raise UsageError(
            f"no letter would go (left out: {why or 'none is chosen'}); choose others, and propose those"
        )
    commands = "; ".join(f"dlq replay {action} {made.header.plan}" for action in ("approve", "apply"))
    return {**made.document, "waits_for": f"a person: {commands}"}


def propose_dismissal(workspace: Workspace, failure: str, reason: str) -> Document:
    """Keep with a failure that its letters need no replay, and the command that closes them. Raises
    UsageError."""
    text = _check_text(reason, "say why these letters need no replay")
    fingerprint = _find(workspace, failure)
    return _propose(
        workspace, fingerprint, ["dlq", "dismiss", "--failure", fingerprint, "--reason", text], text
    )


def propose_resolution(workspace: Workspace, failure: str, reason: str, version: str = "") -> Document:
    """Keep with a failure that its cause is fixed, and since which version, and the command that says so.
    Raises UsageError."""
    text = _check_text(reason, "say how it was fixed, and where a person sees that")
    failures.check_version(version)
    fingerprint = _find(workspace, failure)
    words = ["dlq", "failures", "resolve", fingerprint, "--reason", text]
    return _propose(workspace, fingerprint, [*words, *(["--in", version] if version else [])], text)


def propose_note(workspace: Workspace, failure: str, text: str, owner: str | None = None) -> Document:
    """Keep with a failure what an agent would note, or to whom it would give it (`owner`), and the command
    that does. Raises UsageError."""
    told = _check_text(text, "a note says something")
    fingerprint = _find(workspace, failure)
    if owner is None:
        words = ["dlq", "failures", "note", fingerprint, told]
    else:
        words = ["dlq", "failures", "assign", fingerprint, _check_text(owner, "to whom?"), "--reason", told]
    return _propose(workspace, fingerprint, words, told)


class Deed(NamedTuple):
    """What a proposed command does, in the words of the audit."""

    action: str
    """dismiss, note, assign or resolve."""
    value: str
    reason: str


class Proposal(NamedTuple):
    """A command that an agent has left with a failure."""

    id: str
    at: str
    by: str
    command: str
    deed: Deed | None
    """None: no tool of ours proposes this; it is for who runs it in a shell."""
    done_by: str | None
    """Who has done just that since; None: it waits."""


def list_proposals(workspace: Workspace, failure: str) -> list[Proposal]:
    """Return what agents have proposed for a failure (its whole fingerprint), the first first."""
    events = read_said(workspace)
    told = [one for one in events if one.action == "propose" and one.subject == failure]
    if not told:  # of most failures; what was done is read of every plan
        return []
    with closing(open_views(workspace, with_plans=True)) as connection:
        done = [*run(connection, _DONE).rows]
    return [_describe(one, done) for one in told]


_DONE = """
    SELECT action, value, reason, epoch_us(done_at), actor,
           CASE about WHEN 'letter' THEN fingerprint ELSE subject END
    FROM audit LEFT JOIN letters ON about = 'letter' AND record_id = subject
    WHERE action IN ('dismiss', 'note', 'assign', 'resolve') ORDER BY done_at"""
"""A letter that retention has removed may have been of any failure."""


def _describe(told: Event, done: Sequence[tuple[str, str, str, int, str, str | None]]) -> Proposal:
    """Return a proposal; a deed of the same words for its failure is this one, whether somebody did it here
    or in a shell."""
    deed, mine = _read_deed(told), (told.subject, None)
    by = [who for *words, at, who, of in done if at > told.at and of in mine and Deed(*words) == deed]
    return Proposal(told.id, iso(told.at), told.actor, told.value, deed, by[0] if by else None)


def _read_deed(told: Event) -> Deed | None:
    try:
        words = shlex.split(told.value)
    except ValueError:
        return None
    match words:
        case ["dlq", "dismiss", "--failure", failure, "--reason", reason] if failure == told.subject:
            return Deed("dismiss", "", reason)
        case ["dlq", "failures", "note", failure, reason] if failure == told.subject:
            return Deed("note", "", reason)
        case ["dlq", "failures", "assign", failure, owner, "--reason", reason] if failure == told.subject:
            return Deed("assign", owner, reason)
        case ["dlq", "failures", "resolve", failure, "--reason", reason, *version] if failure == told.subject:
            return Deed("resolve", "".join(version[1:]), reason)
    return None


def carry_out(workspace: Workspace, failure: str, proposal: str) -> str:
    """Do what an agent has proposed for a failure, as the user; what was done, in words. Raises
    UsageError where there is no such proposal, or somebody has done it."""
    found = next((one for one in list_proposals(workspace, failure) if one.id == proposal), None)
    if found is None or found.deed is None:
        raise UsageError(f"no agent has proposed {proposal} for failure {failure}; open the failure again")
    if found.done_by:
        raise UsageError(f"{found.done_by} has done that already; open the failure again")
    action, value, reason = found.deed
    if action == "note":
        failures.note_failure(workspace, failure, reason, proposal)
        return "The note is written down."
    if action == "assign":
        failures.assign_failure(workspace, failure, value, reason, proposal)
        return f"It is assigned to {value}."
    if action == "resolve":
        failures.resolve_failure(workspace, failure, reason, value, proposal)
        return "It is resolved."
    closed = dismiss_letters(workspace, [], Selection(failure=failure), reason)
    return f"{closed['dismissed']:,} dismissed; {closed['known']:,} were left alone."


def _find(workspace: Workspace, failure: str) -> str:
    return str(failures.show_failure(workspace, failure)["fingerprint"])


def _check_open(workspace: Workspace) -> None:
    """Check how many proposals are open. Raises UsageError for an agent that has proposed much of late at
    which no person has looked."""
    since = now() - _OPEN_DAYS * 86_400_000_000
    events = read_said(workspace)
    approved = {one.subject for one in events if one.action == "approve"}
    told = [
        one for one in events if one.action == "propose" and one.actor == workspace.actor and one.at > since
    ]
    with closing(open_views(workspace, with_plans=True)) as connection:
        done = [*run(connection, _DONE).rows]
    waiting = sum(_describe(one, done).done_by is None for one in told)
    plans = [
        one
        for one in planfile.list_makers(workspace.store)
        if one.actor == workspace.actor and one.at > since
    ]
    if waiting + sum(one.subject not in approved for one in plans) >= _MOST_OPEN:
        raise UsageError(
            f"{_MOST_OPEN} proposals of {workspace.actor} wait for a person; no more may: ask one to look"
        )


def _propose(workspace: Workspace, fingerprint: str, words: Sequence[str], reason: str) -> Document:
    _check_open(workspace)
    event = make_event(now(), workspace.actor, fingerprint, "propose", shlex.join(words), reason)
    with ledger.opened(workspace.settings.ledger, workspace.store) as book:
        book.append([event])
    return {
        "proposal": event.id,
        "at": iso(event.at),
        "by": event.actor,
        "failure": fingerprint,
        "command": event.value,
        "waits_for": "a person who runs this command",
    }


def _check_text(text: str, missing: str) -> str:
    """Return one line of printable text that is no option, so that the command that holds it does what it
    shows."""
    line = encodable(" ".join(text.split()))
    if not line:
        raise UsageError(missing)
    if len(line) > _LONGEST or not line.isprintable():
        raise UsageError(f"a text has at most {_LONGEST:,} characters, all of them printable; cut it")
    if line.startswith("-"):
        raise UsageError(
            "a text does not begin with -: a command would take it for an option; put a word before it"
        )
    return line
