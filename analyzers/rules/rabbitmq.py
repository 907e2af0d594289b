"""RabbitMQ: what a letter's death history (x-death) and its envelope prove, in the order to ask.

In a retry loop over a TTL queue the newest entry is the wait queue's `expired`; the `rejected` entry
tells why. One that was refused once, and waited once, may as well have gone on from its dead-letter queue:
what came back was refused or waited twice, or was sent with the key of its own queue again.
"""

from collections.abc import Mapping

from dlq.analyzers.rules.deaths import death_text, history, text_of
from dlq.analyzers.rules.frameworks import counted_deaths, is_superseded
from dlq.analyzers.rules.letter import Facts, Finding, Letter, Rule, once_per_letter
from dlq.core.headers.failure_headers import attempts_of_retries
from dlq.core.record import Death

_NOTHING: Mapping[str, str] = {}


def _last_reason(letter: Letter) -> str | None:
    last = history(letter).last
    return last.reason if last else None


def _report(letter: Letter) -> Finding:
    last = history(letter).last
    return Finding(death_text(letter), origin=last.queue if last else None)


def _parked_by_hand(letter: Letter, facts: Facts) -> Finding | None:
    """published to the dead-letter queue itself; the queue of its last death does not dead-letter there

    The envelope names the default exchange and the dead-letter queue, and the queue of its last death
    dead-letters to a named exchange, so it was not the broker that put it there.
    """
    last = history(letter).last
    if letter.exchange != "" or letter.routing_key != letter.dead_letter_queue or last is None:
        return None
    if not facts.dead_letter_exchanges.get(facts.place_of(letter), _NOTHING).get(last.queue or ""):
        return None
    evidence = f"published to this queue itself; an earlier hop was: {death_text(letter)}"
    return Finding(evidence, stale_evidence=True)


def _came_by_its_last_death(letter: Letter, facts: Facts) -> bool:
    """Return whether the queue of its last death dead-letters to the exchange that it came by. What an
    application parks at the end of a retry loop comes by another way than out of the wait queue."""
    last = history(letter).last
    exchanges = facts.dead_letter_exchanges.get(facts.place_of(letter), _NOTHING)
    exchange = exchanges.get(last.queue or "") if last else None
    return bool(exchange) and exchange == letter.exchange


def _retry_loop(letter: Letter, facts: Facts) -> Finding | None:
    """x-death has rejected and expired entries, and it came back to its consumer between them: a retry loop
    over a TTL queue"""
    last, rejected, expired, _limited, first_reason = history(letter)
    if last is None or last.reason not in ("rejected", "expired") or expired is None or rejected is None:
        return None
    is_refused = (rejected.count or 0) > 1 or (first_reason == "rejected" and _came_back(letter))
    if not is_refused and not _has_waited_often(letter, facts):
        return None
    evidence = f"rejected{_times(rejected)}, waited in {_wait_queue(expired)}{_times(expired)}"
    return Finding(evidence, attempts=_loop_attempts(letter), origin=rejected.queue or last.queue)


def _came_back(letter: Letter) -> bool:
    """Return whether what was refused once waited and reached its consumer again."""
    last, rejected, expired, _limited, _first = history(letter)
    if last is None or rejected is None or expired is None:
        return False
    refusals = sum(death.reason == "rejected" for death in letter.deaths)
    own_again = letter.routing_key in rejected.routing_keys and letter.routing_key not in expired.routing_keys
    return last.reason == "rejected" or (expired.count or 0) > 1 or refusals > 1 or own_again


def _loop_attempts(letter: Letter) -> int | None:
    """Return its deliveries: a wait, but for the first of a delayed message, is between two; what an
    application does at the last leaves no entry. A history that is shown without its envelope may be that of
    a message which is still under way."""
    last, rejected, _expired, _limited, first_reason = history(letter)
    if last is None or rejected is None or rejected.count is None:
        return None
    waits = sum(
        death.count or 0
        for death in letter.deaths
        if death.reason == "expired" and death.queue != rejected.queue
    )
    is_told = waits < rejected.count or (waits == rejected.count and last.reason == "rejected")
    if is_told or letter.exchange is None:
        return rejected.count
    return waits + 1 if first_reason == "rejected" else None


def _times(death: Death) -> str:
    return "" if death.count is None else f" {death.count} x"


def _wait_queue(expired: Death) -> str:
    return "?" if expired.queue is None else expired.queue


def _has_waited_often(letter: Letter, facts: Facts) -> bool:
    """Return whether it went round over a TTL queue, and did not end there."""
    expired = history(letter).expired
    return expired is not None and (expired.count or 0) > 1 and not _came_by_its_last_death(letter, facts)


def _retry_loop_by_hand(letter: Letter, facts: Facts) -> Finding | None:
    """x-death has expired more than once, and neither rejected nor delivery_limit: its consumer sent it to
    the wait queue itself, and here at the end"""
    last, rejected, expired, limited, _first = history(letter)
    if last is None or last.reason != "expired" or expired is None or rejected or limited:
        return None
    if not _has_waited_often(letter, facts):
        return None
    return Finding(f"waited in {_wait_queue(expired)} {expired.count or 0} x", origin=last.queue)


@once_per_letter
def counted_retries(letter: Letter) -> int | None:
    """Return the attempts by headers that say by themselves that they count them."""
    return attempts_of_retries(letter.headers)


def _reject(letter: Letter, _: Facts) -> Finding | None:
    """the last death is rejected (reject or nack without requeue; also AMQP 1.0, and a hand in the UI), or it
    expired later in a queue that it went on to"""
    last, rejected, _expired, _limited, first_reason = history(letter)
    if last is None:
        return None
    went_on = rejected if last.reason == "expired" and first_reason == "rejected" else None
    died = went_on or last
    if died.reason != "rejected":
        return None
    counts = [n for n in (died.count, counted_retries(letter)) if n is not None]
    attempts = max(counts, default=counted_deaths(letter))
    return Finding(text_of(died), is_superseded(letter), attempts, died.queue)


def _delivery_limit(letter: Letter, facts: Facts) -> Finding | None:
    """the last death is delivery_limit, or it expired later in a queue that it went on to"""
    last, rejected, _expired, limited, first_reason = history(letter)
    if last is None:
        return None
    went_round = limited is not None and _has_waited_often(letter, facts)
    went_on = last.reason == "expired" and (first_reason == "delivery_limit" or went_round)
    if last.reason != "delivery_limit" and not went_on:
        return None
    queue = (limited.queue if limited else None) or last.queue
    limit = facts.delivery_limits.get(facts.place_of(letter), {}).get(queue or "")
    # An exported letter brings along what was known where it was pulled; else a record counts its refusals.
    told = letter.attempts if rejected is None else None
    attempts = told if limit is None else max(limit, 0) + 1  # -1 is no limit on 4.x, and 0 before
    return Finding(death_text(letter), is_superseded(letter), attempts, queue)


def _ttl(letter: Letter, _: Facts) -> Finding | None:
    """the last death is expired (its own TTL or the queue's: the headers do not tell them apart); where only
    the first is known, that may have been its delay"""
    last = history(letter).last
    if last is None or last.reason != "expired":
        return None
    told = [text for text in (death_text(letter), last.original_expiration) if text is not None]
    is_last = bool(letter.deaths) or "x-last-death-reason" in letter.headers
    also = None if is_last else ("poison_ack", "redelivery_exhausted")
    return Finding(", original expiration ".join(told), origin=last.queue, also_possible=also)


def _maxlen(letter: Letter, _: Facts) -> Finding | None:
    """the last death is maxlen (drop-head kills the oldest; also reject-publish-dlx)"""
    return _report(letter) if _last_reason(letter) == "maxlen" else None


def _alternate_exchange(letter: Letter, facts: Facts) -> Finding | None:
    """no death, the exchange it was published to, and a queue that is fed by an alternate exchange"""
    alternates = facts.alternate_exchanges.get(facts.place_of(letter))
    exchange = letter.exchange
    if alternates is None or not exchange or exchange in alternates or history(letter).last is not None:
        return None
    return Finding(
        f"exchange {exchange}, routing key {letter.routing_key or ''}",
        origin=exchange,
        origin_kind="exchange",
    )


RULES: tuple[Rule, ...] = (
    Rule(_retry_loop, "poison_ack", "retry_loop"),
    Rule(_retry_loop_by_hand, "poison_ack", "retry_loop", ("application_error", "expired")),
    Rule(_parked_by_hand, "unknown", "none"),
    Rule(_reject, "poison_ack", "reject"),
    Rule(_delivery_limit, "redelivery_exhausted", "delivery_limit"),
    Rule(_ttl, "expired", "ttl"),
    Rule(_maxlen, "overflow", "maxlen"),
    Rule(_alternate_exchange, "unroutable", "alternate_exchange"),
)
