"""Artemis: there is no cause on a dead letter but what an OpenWire client said. It tells where it died, and
whether it had expired.

Sources: Message#referenceOriginalMessage and QueueImpl#sendToDeadLetterAddress; AMQP messages carry the
same as annotations (AMQPMessageSupport#toAnnotationName).
"""

from dlq.analyzers.rules.activemq import OF_CLIENTS
from dlq.analyzers.rules.letter import Facts, Finding, Letter, Rule, first


def _address(letter: Letter) -> str | None:
    return first(letter.headers, "_AMQ_ORIG_ADDRESS", "x-opt-ORIG-ADDRESS")


def _queue(letter: Letter) -> str | None:
    return first(letter.headers, "_AMQ_ORIG_QUEUE", "x-opt-ORIG-QUEUE")


def _died(letter: Letter, evidence: str) -> Finding:
    origin = next((o for o in (letter.origin, _queue(letter), _address(letter)) if o is not None), None)
    return Finding(evidence, origin=origin, origin_kind=letter.origin_kind or "queue")


def artemis_from_itself(letter: Letter, _: Facts) -> Finding | None:
    """it was moved from the dead-letter queue to itself: reads that were broken off used up its attempts"""
    if letter.dead_letter_queue not in (_queue(letter), _address(letter)):
        return None
    address = _address(letter) or _queue(letter)
    return Finding(f"_AMQ_ORIG_ADDRESS {address}: the true origin is lost")


def artemis_expired(letter: Letter, _: Facts) -> Finding | None:
    """_AMQ_ACTUAL_EXPIRY says when it expired"""
    expiry = first(letter.headers, "_AMQ_ACTUAL_EXPIRY", "x-opt-ACTUAL-EXPIRY")
    return _died(letter, f"_AMQ_ACTUAL_EXPIRY {expiry}") if expiry is not None else None


def artemis_dead_letter(letter: Letter, _: Facts) -> Finding | None:
    """it names where it died and no expiry: its delivery attempts were used up, or a consumer rejected it"""
    address = _address(letter) if _address(letter) is not None else _queue(letter)
    if address is None:
        return None
    evidence = f"_AMQ_ORIG_ADDRESS {address}: attempts used up, or rejected"
    return _died(letter, evidence)


RULES: tuple[Rule, ...] = (
    Rule(artemis_from_itself, "unknown", "none"),
    Rule(artemis_expired, "expired", "expiry"),
    *OF_CLIENTS,
    Rule(artemis_dead_letter, "redelivery_exhausted", "redelivery_policy"),
)
