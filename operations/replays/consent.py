"""What somebody who approves plans has to know: which wait for them, and what the letters died of."""

from collections.abc import Sequence
from contextlib import closing
from itertools import islice

from dlq.archive.user_sql import run
from dlq.core.clock import now
from dlq.core.documents import Document
from dlq.core.errors import DlqError, UsageError
from dlq.core.failures import Event
from dlq.operations.reading.views import open_views, read_said
from dlq.operations.workspace import Workspace
from dlq.replay import ledger
from dlq.replay.actor import is_agent
from dlq.replay.plans import approvals, planfile
from dlq.replay.plans.planfile import Header
from dlq.replay.plans.wanted import DEFAULT_TARGET

LOOKED_AT = 10_000
"""Letters of a plan, the first ones, of which it is told what they died of."""
_KINDS = 10
_DIED_OF = f"""
    SELECT fingerprint, cause, advice, count(*) AS letters, min(record_id) AS example,
           arg_min(proof, record_id) AS proof, arg_min(exception_class, record_id) AS exception_class,
           arg_min(exception_message, record_id) AS exception_message,
           arg_min(outer_exception, record_id) AS outer_exception, arg_min(origin, record_id) AS origin,
           list_sort(list(DISTINCT broker_kind)) AS broker_kinds
    FROM letters WHERE record_id IN (SELECT unnest(?))
    GROUP BY fingerprint, cause, advice ORDER BY letters DESC, example LIMIT {_KINDS}"""


def list_deaths(workspace: Workspace, plan: str) -> list[Document]:
    """Return what the letters of a plan died of, the most first: failure, cause, advice, how many of the
    LOOKED_AT first ones, and an `example`."""
    ids = [letter.record_id for letter in islice(planfile.letters(workspace.store, plan), LOOKED_AT)]
    with closing(open_views(workspace)) as connection:
        return [*run(connection, _DIED_OF, [ids]).objects()]


def is_target_of_agent(header: Header) -> bool:
    """Return whether an agent has chosen where the letters go."""
    return is_agent(header.actor or "") and header.to != DEFAULT_TARGET


def list_waiting(workspace: Workspace, unsent: Sequence[Header]) -> list[Document]:
    """Return those of the plans (`list_unsent`) that wait for the consent of the user, the newest first:
    `plan, letters, actor, reason, targets, agents_target`."""
    said = read_said(workspace)
    found = [header for header in unsent if _why_not_approve(workspace, header, said) is None]
    return [
        {
            "plan": header.plan,
            "letters": header.letters,
            "actor": header.actor,
            "reason": header.reason,
            "targets": ", ".join(header.targets),
            "agents_target": is_target_of_agent(header),
        }
        for header in sorted(found, key=lambda header: header.created_at, reverse=True)
    ]


def list_unsent(workspace: Workspace) -> list[Header]:
    """Return the plans that ask for somebody's consent, and of which something is left to send."""
    found = []
    with ledger.opened_if_any(workspace.settings.ledger, workspace.store) as book:
        every = book.counts_of_all() if book else {}
        for plan in planfile.ids(workspace.store):
            try:
                header = planfile.load(workspace.store, plan)
            except DlqError:  # the list of plans names it
                continue
            known = every.get(plan, {})
            sent = sum(known.values()) - known.get("planned", 0)
            if sent < header.letters and approvals.is_needed(header, workspace.settings.replay):
                found.append(header)
    return found


def why_not_approve(workspace: Workspace, plan: str) -> DlqError | None:
    """Return what an approval by who sits at the workspace would be refused for, or that it is given; None:
    nothing."""
    try:
        header = planfile.load_checked(workspace.store, plan)
        said = read_said(workspace)
    except DlqError as error:
        return error
    return _why_not_approve(workspace, header, said)


def _why_not_approve(workspace: Workspace, header: Header, said: Sequence[Event]) -> DlqError | None:
    settings = workspace.settings.replay
    try:
        approvals.approval(header, workspace.actor, "", now(), settings)
    except DlqError as error:
        return error
    try:
        approvals.check(header, said, settings, now())
    except DlqError:
        return None
    return UsageError(f"plan {header.plan} is approved already")
