"""The death history of a RabbitMQ letter (x-death, x-first-death-*, x-last-death-*).

A death entry stands for a (queue, reason) pair: `count` grows, `time` is the FIRST death of the pair.
Sources: rabbit_dead_letter.erl and mc_amqpl.erl of 3.8 to 4.3, docs/dlx.
"""

import re
from typing import NamedTuple

from dlq.analyzers.rules.letter import Letter, once_per_letter, second_of
from dlq.core.record import Death

_OLD_BROKER = re.compile(r"3\.(?:[0-9]|1[0-2])\.")


class _History(NamedTuple):
    """The deaths of a letter that tell something; None where there is no such death."""

    last: Death | None
    rejected: Death | None
    expired: Death | None
    limited: Death | None
    first_reason: str | None


@once_per_letter
def history(letter: Letter) -> _History:
    """Return the death history, with x-last-death-* and x-first-death-*."""
    of_reason: dict[str | None, Death] = {}
    for death in letter.deaths:
        of_reason.setdefault(death.reason, death)
    first_reason = letter.headers.get("x-first-death-reason")
    return _History(
        _last_death(letter),
        of_reason.get("rejected"),
        of_reason.get("expired"),
        of_reason.get("delivery_limit"),
        first_reason or (letter.deaths[-1].reason if letter.deaths else None),
    )


def _last_death(letter: Letter) -> Death | None:
    """x-last-death-* exists since 3.13; an older broker leaves what a newer one wrote. Where the history has
    no such entry, the history is the newer of the two."""
    headers, deaths = letter.headers, letter.deaths
    reason, queue = headers.get("x-last-death-reason"), headers.get("x-last-death-queue")
    if not deaths:
        return _named_death(letter, "last") or _named_death(letter, "first")
    if reason is None or _OLD_BROKER.match(letter.broker_version or ""):
        return deaths[0]
    return next((d for d in deaths if d.reason == reason and d.queue == queue), deaths[0])


def _named_death(letter: Letter, which: str) -> Death | None:
    reason, queue, exchange = (
        letter.headers.get(f"x-{which}-death-{part}") for part in ("reason", "queue", "exchange")
    )
    # The broker writes all three, and people show some of them. What an application sets is less: a reason
    # alone, or without an exchange on a letter that was published to this very queue.
    is_published_here = letter.exchange == "" and letter.routing_key == letter.dead_letter_queue
    if reason is None or queue is None or (exchange is None and is_published_here):
        return None
    return Death(reason, queue, exchange)


@once_per_letter
def death_text(letter: Letter) -> str | None:
    """Return the last death in words."""
    last = history(letter).last
    return None if last is None else text_of(last)


def text_of(death: Death) -> str | None:
    """Return a death in words; None where it has no reason."""
    if death.reason is None:
        return None
    queue = "a queue without name" if death.queue is None else death.queue
    times = "" if death.count is None else f", {death.count} x"
    first = "" if death.time is None else f", first at {second_of(death.time)}"
    return f"{death.reason} from {queue}{times}{first}"
