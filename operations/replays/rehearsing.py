"""A plan is rehearsed: a sample of it goes to a private place, and what its consumer does there is told."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from dlq.analyzers import topology
from dlq.analyzers.rules import judge
from dlq.archive import user_sql
from dlq.connectors.base import Connector, Outgoing, Target
from dlq.core.causes import cause_in_words
from dlq.core.documents import Document
from dlq.core.errors import BrokerError, DlqError, UsageError
from dlq.core.text import sql_literal
from dlq.operations.outcome import ExitCode
from dlq.operations.progress import Line
from dlq.operations.reading.views import open_views
from dlq.operations.replays.applying import open_brokers
from dlq.operations.replays.plans import PlanWanted
from dlq.operations.triage import describe_failure
from dlq.operations.workspace import Workspace
from dlq.replay.plans import edits, planfile
from dlq.replay.plans.destinations import is_allowed
from dlq.replay.plans.planfile import Checked, Header
from dlq.replay.plans.wanted import names_ids
from dlq.replay.runs import rehearsal
from dlq.replay.runs.load import Loader
from dlq.replay.runs.ordering import InOrder
from dlq.replay.runs.pace import Stop, stopping_on_signals
from dlq.replay.runs.rehearsal import Book, Found, Stage

_WARNING = "side effects of a rehearsal are real: let the consumer under test work against test systems"
_HINT = (
    "without a count of acknowledgements (RabbitMQ: management_url) only a consumer that has stopped shows it"
)
_NAMED = ("cause", "exception_class", "exception_message", "evidence")
_BY_DEATH = f"""
    SELECT record_id, coalesce(fingerprint, ''), {", ".join(_NAMED)} FROM letters
    WHERE record_id IN (SELECT unnest($1)) ORDER BY coalesce(dead_at, captured_at), record_id"""


@dataclass(frozen=True)
class Wanted:
    """How large the sample is, and how many seconds its consumer has."""

    limit: int = 200
    per_failure: int = 20
    seconds: float = 600.0


@dataclass(frozen=True)
class Rehearsed:
    """What became of the copies, as `dlq replay rehearse` prints it, and how it ended."""

    document: Document
    code: ExitCode


def rehearse_plan(workspace: Workspace, prefix: str, wanted: Wanted) -> Rehearsed:
    """Send copies of a sample to a private place, wait for the consumer under test, and tell what passed,
    died or hung. All that is private is removed at the end. Raises UsageError, Busy, BrokerError."""
    checked = planfile.check(workspace.store, planfile.find(workspace.store, prefix))
    plan, stop = checked.header.plan, Stop(workspace.store, f"{checked.header.plan}.rehearsal")
    with _staged(workspace, checked) as (connector, last, target):
        stage = last.at_run(last.run + 1) if rehearsal.load(workspace.store, plan) else last
        _check_target(workspace, stage.private.target)
        chosen, names = _sample(workspace, checked, wanted)
        book = Book(rehearsal.new_id(plan), stage.private.target.name, stage.dead_place, run=stage.run)
        copies = rehearsal.copies_of(workspace.store, checked, chosen, stage.private.target, book.rehearsal)
        before = _depth(connector, target)
        last.remove()  # what a killed run has left
        rehearsal.write(workspace.store, plan, book)
        try:
            with stopping_on_signals(stop):
                found = _perform(workspace, stage, copies, chosen, wanted, stop)
        finally:
            book = replace(book, removed=_remove(workspace, plan, stage))
            rehearsal.write(workspace.store, plan, book)
        after = _depth(connector, target)
    rehearsal.write(workspace.store, plan, replace(book, failures=found.failures))
    document = {
        **vars(book),
        "failures": _tell(workspace, stage.broker.kind, found, chosen, names),
        "untold": found.untold,
        "target": {"name": str(target), "before": before, "after": after},
    }
    passed = sum(one.passed for one in found.failures)
    code = ExitCode.DONE if passed == len(copies) else ExitCode.PARTLY
    return Rehearsed(document, ExitCode.INTERRUPTED if stop.signalled else code)


def clean_rehearsal(workspace: Workspace, prefix: str) -> Rehearsed:
    """Remove what killed rehearsals of the plan have left, and consumers made again since. Raises UsageError,
    Busy, BrokerError."""
    checked = planfile.check(workspace.store, planfile.find(workspace.store, prefix))
    plan = checked.header.plan
    with _staged(workspace, checked) as (_, stage, _target):
        for run in range(1, stage.run + 1):
            stage.at_run(run).remove()
        known = rehearsal.load(workspace.store, plan) or Book("", stage.private.target.name, stage.dead_place)
        book = replace(known, removed=True)
        rehearsal.write(workspace.store, plan, book)
    return Rehearsed({**vars(book), "failures": []}, ExitCode.DONE)


@contextmanager
def _staged(workspace: Workspace, checked: Checked) -> Iterator[tuple[Connector, Stage, Target]]:
    """Stage it with the places of the last rehearsal; of the first, where there was none."""
    plan = checked.header.plan
    broker, target = rehearsal.only_place(checked.header)
    with workspace.store.lock(f"rehearsal-{plan}"), open_brokers(workspace) as brokers:
        connector = brokers.get(broker)
        known = rehearsal.load(workspace.store, plan)
        stage = Stage(connector, workspace.settings.brokers[broker], plan, known.run if known else 1)
        yield connector, stage, target


def _check_target(workspace: Workspace, target: Target) -> None:
    patterns = workspace.settings.replay.targets
    if not is_allowed(target, patterns):
        raise UsageError(f"[replay] targets allows only {', '.join(patterns)}; add {target} there")


def _sample(workspace: Workspace, checked: Checked, wanted: Wanted) -> tuple[dict[str, str], dict[str, str]]:
    """Record id -> failure, of those that are chosen; and failure -> what it is, in a line."""
    ids = [letter.record_id for letter in checked.letters()]
    names: dict[str, str] = {}

    def failures(rows: Iterable[Sequence[Any]]) -> Iterator[tuple[str, str]]:
        for record_id, failure, *told in rows:
            if failure and failure not in names:
                names[failure] = describe_failure(dict(zip(_NAMED, told, strict=True)))
            yield record_id, failure

    with closing(open_views(workspace)) as connection:
        rows = user_sql.run(connection, _BY_DEATH, [ids]).rows
        return rehearsal.sample(failures(rows), wanted.per_failure, wanted.limit), names


def _depth(connector: Connector, target: Target) -> int | None:
    """Return how many letters wait at the plan's own target; None where nobody tells."""
    try:
        seen = connector.consumption([target]).get(target)
    except BrokerError:
        return None
    return sum(one.waiting for one in seen) if seen else None


def _perform(
    workspace: Workspace,
    stage: Stage,
    copies: Sequence[Outgoing],
    chosen: Mapping[str, str],
    wanted: Wanted,
    stop: Stop,
) -> Found:
    """Make the places, fill them, and wait. Raises BrokerError."""
    stage.private.make()
    place = stage.private.target
    workspace.listener.warn(_WARNING)
    workspace.listener.say(f"{len(copies):,} copies go to {place}; what dies must go to {stage.dead_place}")
    for how in stage.private.point:
        workspace.listener.say(f"  {how}")
    sent = _send(workspace, stage, copies)
    line = Line(place.name, "the broker")

    def tell(left: int | None) -> None:
        said = _HINT if left is None else f"{left:,} of {len(sent):,} copies are not consumed yet"
        line.news(lambda _elapsed: f"{said}; Ctrl-C ends the rehearsal")

    with workspace.listener.follow([line]):
        left = rehearsal.wait(stage, len(sent), wanted.seconds, stop, tell)
    if not stage.is_whole():
        workspace.listener.complain("a private place is gone: nobody knows what became of the copies in it")
        left = None
    return rehearsal.look(stage, chosen, sent, left)


def _send(workspace: Workspace, stage: Stage, copies: Sequence[Outgoing]) -> set[str]:
    """Return the ids of letters whose copies are there. Raises BrokerError where none is."""
    ids = {one.number: one.record.record_id for one in copies}
    answers = stage.send(copies)
    sent = {ids[one.number] for one in answers if one.outcome == "confirmed"}
    why = Counter(one.detail or one.outcome for one in answers if one.outcome != "confirmed")
    if why and not sent:
        raise BrokerError(f"no copy could be sent: {next(iter(why))}")
    for reason, count in why.items():
        workspace.listener.complain(f"{count:,} copies were not sent: {reason}")
    return sent


def _remove(workspace: Workspace, plan: str, stage: Stage) -> bool:
    try:
        stage.remove()
    except DlqError as error:
        workspace.listener.complain(
            f"what is private could not be removed: {error}; dlq replay rehearse {plan} --clean tries again"
        )
        return False
    return True


def _tell(
    workspace: Workspace, kind: str, found: Found, of: Mapping[str, str], names: Mapping[str, str]
) -> list[Document]:
    """Return what became of each failure (`of`: a letter's), and what its copies died of, by the rules for
    all."""
    deaths: dict[str, Counter[tuple[str, str]]] = defaultdict(Counter)
    facts = topology.facts(workspace.store, workspace.settings)
    for record_id, record in found.died.items():
        verdict = judge(record, facts)._asdict()
        cause = cause_in_words(verdict["cause"], [kind], verdict["proof"])
        deaths[of[record_id]][cause, describe_failure(verdict)] += 1
    return [
        {
            **one._asdict(),
            "failure": one.failure or None,
            "what": names.get(one.failure),
            "died_of": [
                {"cause": cause, "failure": text, "copies": count}
                for (cause, text), count in deaths[one.failure].most_common()
            ],
        }
        for one in found.failures
    ]


def take_passed(workspace: Workspace, prefix: str, wanted: PlanWanted) -> PlanWanted:
    """Narrow a new plan to failures that passed entirely when the plan was rehearsed whose id begins so, and
    make it as that was; that they passed is the word that they are fixed. Raises UsageError."""
    header = planfile.load_checked(workspace.store, planfile.find(workspace.store, prefix))
    passed = _list_passed(workspace, header.plan)
    if wanted.ids:
        raise UsageError("--rehearsed chooses the letters; leave out the ids, or leave out --rehearsed")
    if len(edits.load(workspace.store, header).changed) != header.unwrapped:
        raise UsageError(
            f"plan {header.plan} has edits, which --rehearsed does not take along; make "
            "a plan of the letters that passed with --edit"
        )
    conditions = [f"fingerprint IN ({', '.join(map(sql_literal, passed))})"]
    conditions += [f"({one}\n)" for one in (header.where, wanted.selection.where) if one]
    checks = wanted.how.check_superseded
    how = replace(
        wanted.how,
        to=header.to,
        rate=wanted.how.rate or header.rate,
        any_advice=wanted.how.any_advice or header.any_advice or names_ids(header.where),
        fixed=True,
        keep_headers=wanted.how.keep_headers or header.keep_headers,
        unwrap=header.unwrapped > 0,
        in_order=wanted.how.in_order or _order_asked_for(workspace, header),
        again=wanted.how.again or header.again,
        witness=wanted.how.witness or header.witness is True,
        check_superseded=header.check_superseded if checks is None else checks,
        place=rehearsal.only_place(header),
    )
    return PlanWanted((), wanted.selection._replace(where=" AND ".join(conditions)), how)


def _order_asked_for(workspace: Workspace, header: Header) -> InOrder | None:
    """Return the order in which a plan goes; None where its sources' own settings say that, of theirs."""
    names = Loader(workspace.store).sources(header.segments)
    is_set = any(one.in_order for name, one in workspace.settings.sources.items() if name in names)
    return None if is_set and header.in_order == "consumed" else header.in_order


def _list_passed(workspace: Workspace, plan: str) -> list[str]:
    book = rehearsal.load(workspace.store, plan)
    if book is None or not book.failures:
        raise UsageError(f"plan {plan} has no finished rehearsal; run dlq replay rehearse {plan}")
    passed = [one.failure for one in book.failures if one.has_passed and one.failure]
    if not passed:
        raise UsageError(
            f"no failure of plan {plan} passed its rehearsal entirely; fix the consumer, and run "
            f"dlq replay rehearse {plan} again"
        )
    return passed
