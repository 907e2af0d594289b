"""Failures: listed, one with all that was said of it, and what people say of them."""

from collections.abc import Collection, Iterable, Sequence
from contextlib import closing
from hashlib import sha256

from dlq.core.clock import from_iso, iso, now
from dlq.core.documents import Document
from dlq.core.errors import UsageError
from dlq.core.failures import ORDER, Action, Event, check_length, make_event, until_letters, until_time
from dlq.core.text import encodable
from dlq.core.values.suggestions import suggest
from dlq.core.values.units import seconds
from dlq.core.values.versions import is_version
from dlq.operations.brokers.connecting import warn_of_ledger
from dlq.operations.reading.views import open_views, read_said
from dlq.operations.workspace import Workspace
from dlq.replay import ledger
from dlq.reports.failures import COLUMNS, Row, alike, find, find_all, gather, tell

_OF_OTHERS = ("fingerprint", "state", "owner", "waiting", "letters", "cause", "origins")
"""What is shown of other failures that have the same exception."""


def list_failures(workspace: Workspace, states: Collection[str] = (), owner: str | None = None) -> list[Row]:
    """Return failures in one of these states (none given: any), that this person has; what needs a person
    first. Of each the COLUMNS of reports.failures, and its `broker_kinds` and `events`. Raises UsageError for
    a state that is none."""
    check_states(states)
    return choose_failures(_gather(workspace), states, owner)


def find_failures(workspace: Workspace) -> list[Row]:
    """Return all failures, as if nobody had spoken of any: what `tell_failures` begins with."""
    with closing(open_views(workspace)) as connection:
        return find_all(connection)


def tell_failures(workspace: Workspace, found: Sequence[Row]) -> list[Row]:
    """Return all failures as `list_failures` has them; of those that nobody spoke of nothing is worked out
    anew."""
    with closing(open_views(workspace)) as connection:
        return tell(connection, found, _read_events(workspace), now(), workspace.settings)


def check_states(states: Collection[str]) -> None:
    """Check states. Raises UsageError for a state that is none."""
    for one in states:
        if one not in ORDER:
            raise UsageError(f"--state {one}: not a state{suggest(one, ORDER)}; known are {', '.join(ORDER)}")


def choose_failures(rows: Iterable[Row], states: Collection[str], owner: str | None) -> list[Row]:
    """Return those failures that are in one of these states (none given: any), and that this person has."""
    return [
        row
        for row in rows
        if (not states or row["state"] in states) and (owner is None or row["owner"] == owner)
    ]


def show_failure(workspace: Workspace, prefix: str) -> Document:
    """Return the failure whose fingerprint begins so, and all that was ever said of it. Raises UsageError for
    none or several."""
    return tell_failure(_gather(workspace), prefix)


def assign_failure(
    workspace: Workspace, prefix: str, owner: str, reason: str = "", proposal: str | None = None
) -> Document:
    """Say who works on a failure, `""`: nobody; the failure as it stands then. Who carries out a `proposal`
    says it once, however many do at once. Raises UsageError."""
    return _add(workspace, prefix, "assign", owner, reason, proposal)


def note_failure(workspace: Workspace, prefix: str, text: str, proposal: str | None = None) -> Document:
    """Write something down for the others; a `proposal` as `assign_failure`. Raises UsageError."""
    return _add(workspace, prefix, "note", "", _require(text, "a note says something"), proposal)


def snooze_failure(
    workspace: Workspace, prefix: str, until: str | None, letters: int | None, reason: str
) -> Document:
    """Let a failure raise no alarm until a time (ISO 8601, or for how long), or until it has so many letters:
    one of the two. Raises UsageError."""
    if (until is None) == (letters is None):
        raise UsageError("a snooze needs one end; give either --until TIME or --letters N")
    end = until_letters(letters) if letters is not None else until_time(_read_future(str(until)))
    return _add(workspace, prefix, "snooze", end, _require(reason, 'say why it may wait: --reason "…"'))


def check_version(version: str) -> None:
    """Raise UsageError for what is neither a version nor empty."""
    if version and not is_version(version):
        raise UsageError(f"--in {version}: not a version; write it like 2.4.1, v2.4.1 or 2.4.1-rc1")


def resolve_failure(
    workspace: Workspace, prefix: str, reason: str, version: str = "", proposal: str | None = None
) -> Document:
    """Mark a failure as fixed: a letter of it that dies from now on makes it regressed, with the `version` of
    the fix unless it is of an older one; a `proposal` as `assign_failure`. Raises UsageError."""
    version = version.strip()
    check_version(version)
    if not version:
        _require(reason, 'say how it was fixed: --reason "…", or in which version: --in 2.4.1')
    told = _add(workspace, prefix, "resolve", version, reason, proposal)
    known = {one.name for one in workspace.settings.sources.values() if one.version}
    for source in told["sources"] if version else ():
        if source not in known:
            workspace.listener.complain(
                f"sources.{source} has no version setting: any letter of it that dies later makes the "
                'failure regressed; write there where letters have it, like version = "header:app-version"'
            )
    return told


def reopen_failure(workspace: Workspace, prefix: str, reason: str) -> Document:
    """Open a failure that was snoozed or resolved, or has regressed. Raises UsageError."""
    return _add(workspace, prefix, "reopen", "", _require(reason, 'say why: --reason "…"'))


def _require(reason: str, wanted: str) -> str:
    if not reason.strip():
        raise UsageError(wanted)
    return reason


def _read_future(text: str) -> int:
    """Return a time, or how long from now, in microseconds since the epoch."""
    at = from_iso(text)
    try:
        moment = at if at is not None else now() + round(seconds(text) * 1_000_000)
    except UsageError as error:
        raise UsageError(
            f"--until {text}: neither a time (2026-11-02T03:00:00Z) nor a duration (3d); write one"
        ) from error
    if moment <= now():
        raise UsageError(f"--until {text}: that time has passed; give a later one")
    return moment


def _read_events(workspace: Workspace) -> Sequence[Event]:
    warn_of_ledger(workspace)
    return read_said(workspace)


def _gather(workspace: Workspace) -> list[Row]:
    events = _read_events(workspace)
    with closing(open_views(workspace)) as connection:
        return gather(connection, events, now(), workspace.settings)


def _add(
    workspace: Workspace, prefix: str, action: Action, value: str, reason: str, proposal: str | None = None
) -> Document:
    value, reason, who = (encodable(text.strip()) for text in (value, reason, workspace.actor))
    check_length(value, reason, who)
    events = _read_events(workspace)
    with closing(open_views(workspace)) as connection:
        found = find_all(connection) if workspace.failures is None else workspace.failures
        rows = tell(connection, found, events, now(), workspace.settings)
        before = find(rows, prefix)
        if action == "assign" and before["owner"] not in (None, value):
            workspace.listener.complain(f"until now it was assigned to {before['owner']}")
        with ledger.opened(workspace.settings.ledger, workspace.store) as book:
            event = make_event(now(), who, before["fingerprint"], action, value, reason)
            book.append([event if proposal is None else event._replace(id=_id_of_deed(proposal))])
            said = [one for one in book.events() if one.subject == before["fingerprint"]]
        others = [row for row in rows if row is not before]
        (now_is,) = tell(
            connection,
            [one for one in found if one["fingerprint"] == before["fingerprint"]],
            said,
            now(),
            workspace.settings,
        )
        return tell_failure([now_is, *others], before["fingerprint"])


def _id_of_deed(proposal: str) -> str:
    """Return the id of what carries a proposal out: no ledger keeps two events of one id."""
    return sha256(f"carried out {proposal}".encode()).hexdigest()[:32]


def tell_failure(rows: Sequence[Row], prefix: str) -> Document:
    """Tell a failure as `show_failure` does, of the rows of `list_failures`."""
    row = find(rows, prefix)
    others = [{name: one[name] for name in _OF_OTHERS} for one in alike(rows, row)]
    return {**tell_alone(row), "same_exception": others}


def tell_alone(row: Row) -> Document:
    """Tell a failure without the others that have its exception, which may be thousands."""
    history = [
        {"at": iso(one.at), **{name: getattr(one, name) for name in ("actor", "action", "value", "reason")}}
        for one in row["events"]
    ]
    return {**{name: row[name] for name in COLUMNS}, "history": history}
