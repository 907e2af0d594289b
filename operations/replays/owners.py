"""What the owners of consumers know: their word about letters, and which replayed messages were processed."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from itertools import islice
from typing import NamedTuple

from dlq.archive.user_sql import run
from dlq.core.documents import Document
from dlq.core.errors import UsageError
from dlq.core.settings import Consumer
from dlq.core.values.units import seconds
from dlq.operations.brokers.connecting import warn_of_ledger
from dlq.operations.outcome import ExitCode
from dlq.operations.programs import ask_program
from dlq.operations.reading.views import open_views
from dlq.operations.workspace import Workspace
from dlq.replay import ledger
from dlq.replay.plans import planfile
from dlq.replay.plans.owners import Owners

_BATCH = 10_000
"""Letters of a plan whose states are asked for at once."""


class Checked(NamedTuple):
    """What `check_replay` found, as `dlq replay check` prints it, and how it ended."""

    document: Document
    code: ExitCode


class _Sent(NamedTuple):
    record_id: str
    source: str
    key: str | None


def check_replay(workspace: Workspace, prefix: str) -> Checked:
    """Ask the consumers of a plan's letters (`verify`) which of those that the broker confirmed they have
    processed. Letters of a program that fails are unknown; the listener hears why. Raises UsageError."""
    plan = planfile.find(workspace.store, prefix)
    warn_of_ledger(workspace)
    sent = _find_sent(workspace, plan)
    owners, checked = Owners(workspace.settings), []
    for consumer in workspace.settings.consumers.values():
        mine = [one for one in sent if consumer in owners.find(one.source)]
        if consumer.verify and mine:
            checked.append(_check(workspace, consumer, mine))
    asked = {one["consumer"] for one in checked}
    unasked = sum(asked.isdisjoint(known.name for known in owners.find(one.source)) for one in sent)
    is_done = not unasked and not any(one["not_processed"] or one["unknown"] for one in checked)
    document = {"plan": plan, "confirmed": len(sent), "consumers": checked, "unasked": unasked}
    return Checked(document, ExitCode.DONE if is_done else ExitCode.PARTLY)


def _find_sent(workspace: Workspace, plan: str) -> list[_Sent]:
    """Return the letters of a plan that a broker has confirmed, by this plan or by another with the same
    key."""
    confirmed: list[str] = []
    with ledger.opened_if_any(workspace.settings.ledger, workspace.store) as book:
        letters = planfile.letters(workspace.store, plan)
        while some := list(islice(letters, _BATCH)):
            states = book.states([letter.key for letter in some]) if book else {}
            confirmed += [letter.record_id for letter in some if states.get(letter.key) == "confirmed"]
    with closing(open_views(workspace)) as connection:
        return [_Sent(*row) for row in run(connection, _SENT, [confirmed]).rows]


_SENT = """
    SELECT DISTINCT record_id, coalesce(source, ''), key
    FROM (SELECT unnest($1) AS record_id) LEFT JOIN letters USING (record_id)"""
"""Nothing but its id is known of a letter that retention has removed."""


def _check(workspace: Workspace, consumer: Consumer, sent: Sequence[_Sent]) -> Document:
    """Return what one consumer answers: how many letters are processed, which are not, how many nobody knows
    of."""
    keys = list(dict.fromkeys(one.key for one in sent if one.key))
    processed: Mapping[str, bool] = {}
    error = None
    try:
        processed = _read(
            consumer, keys, ask_program(consumer.verify, keys, seconds(consumer.verify_timeout))
        )
    except UsageError as failure:
        error = str(failure)
        workspace.listener.complain(f"consumers.{consumer.name}.verify: {error}")
    missing = [one.record_id for one in sent if one.key and processed.get(one.key) is False]
    done = sum(processed.get(one.key, False) for one in sent if one.key)
    unknown = len(sent) - done - len(missing)
    counts = {"processed": done, "not_processed": sorted(missing), "unknown": unknown}
    return {"consumer": consumer.name, **counts, "error": error}


def _read(consumer: Consumer, keys: Sequence[str], answer: object) -> Mapping[str, bool]:
    """Map ids to whether they are processed: a list names all that are; of what an object leaves out
    nothing is known. Raises UsageError."""
    if isinstance(answer, list) and all(isinstance(one, str) for one in answer):
        return {**dict.fromkeys(keys, False), **dict.fromkeys(answer, True)}
    if isinstance(answer, dict) and all(isinstance(one, bool) for one in answer.values()):
        return answer
    raise UsageError(
        f"{consumer.verify[0]} must print a JSON list of ids, or an object of id: true or false; correct it"
    )
