"""What to do now: the commands that a report ends with, the most urgent first."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from dlq.reports.incidents import next_step

Document = Mapping[str, Any]

_RISKY = "select plan, count(*) as replays from replays where state in ('in_doubt', 'sending') group by plan"


class _Step(NamedTuple):
    counted: Callable[[Mapping[str, int], Mapping[str, int]], int]
    """(all counts, letters that wait by advice) -> how many letters this step is about."""
    command: str
    why: str


_UNJUDGED = "{letters} without a verdict of an analysis; plans and thresholds rest on those"
_STEPS = (
    _Step(
        lambda n, _waiting: n["in_doubt"] + n["sending"],
        f'dlq query "{_RISKY}"',
        "{n} replays may or may not have arrived: reconcile their plans before anything is sent again",
    ),
    _Step(lambda n, _waiting: n["no_verdict"], "dlq analyze", _UNJUDGED),
    _Step(
        lambda _n, waiting: waiting.get("replay", 0),
        "dlq replay plan --where \"advice = 'replay'\"",
        "{letters} may go back; planning sends nothing",
    ),
    _Step(
        lambda _n, waiting: waiting.get("fix_first", 0),
        "dlq ls --where \"advice = 'fix_first'\"",
        "{letters} go back once their cause is mended: dlq replay plan --fixed",
    ),
    _Step(
        lambda _n, waiting: waiting.get("check_first", 0),
        "dlq ls --where \"advice = 'check_first'\"",
        "{letters} need a look before they go back; dlq show says at what, for each",
    ),
    _Step(
        lambda n, _waiting: n["unknown"],
        "dlq ls --where \"cause = 'unknown'\"",
        "{letters} carry no evidence; a rule of your own in dlq.toml can name their cause",
    ),
    _Step(
        lambda n, _waiting: n["confirmed"],
        "dlq verify",
        "{letters} went back: prove that nothing is lost or doubled",
    ),
)


def next_steps(document: Document, waiting: Mapping[str, int]) -> list[dict[str, str]]:
    """`{command, why}` for everything that is left to do; each command can be copied as it stands.

    `waiting`: how many letters wait, by the advice of an analysis.
    """
    counted = [(step, step.counted(document["counts"], waiting)) for step in _STEPS]
    steps = [
        {"command": step.command, "why": step.why.format(n=f"{n:,}", letters=_letters(n))}
        for step, n in counted
        if n
    ]
    incident = [next_step(row) for row in document["incidents"][:1]]
    return _look_at_the_top(document["fingerprints"]) + incident + steps


def _letters(count: int) -> str:
    return "1 letter" if count == 1 else f"{count:,} letters"


def _look_at_the_top(fingerprints: Sequence[Document]) -> list[dict[str, str]]:
    if not fingerprints:
        return []
    top = fingerprints[0]
    why = f"an example of the most frequent failure, {_letters(top['letters'])}"
    return [{"command": f"dlq show {top['example'][:12]}", "why": why}]
