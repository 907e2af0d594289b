"""Artemis: there is no cause on a dead letter but what an OpenWire client said. It tells where it died, and
whether it had expired.

Sources: Message#referenceOriginalMessage and QueueImpl#sendToDeadLetterAddress; AMQP messages carry the
same as annotations (AMQPMessageSupport#toAnnotationName). What no queue takes goes to the dead-letter address
where `send-to-dla-on-no-route` is set, and then names no queue, or an empty one
(PostOfficeImpl#maybeSendToDLA). To clients of HornetQ Artemis gives the same under HornetQ's names
(HQPropertiesConverter).
"""

from dlq.analyzers.rules.activemq import OF_CLIENTS
from dlq.analyzers.rules.letter import Facts, Finding, Letter, Rule, first, whole


def _names(of_core: str, of_amqp: str) -> tuple[str, ...]:
    """What a fact is called; a console puts the section of an AMQP message before it."""
    return (of_core, of_amqp, f"extraProperties.{of_core}", f"messageAnnotations.{of_amqp}")


_ADDRESS = _names("_AMQ_ORIG_ADDRESS", "x-opt-ORIG-ADDRESS")
# HornetQ's name of the address is not among them: applications write it, too, and then it proves nothing.
_QUEUE = (*_names("_AMQ_ORIG_QUEUE", "x-opt-ORIG-QUEUE"), "_HQ_ORIG_QUEUE")
_MESSAGE_ID = _names("_AMQ_ORIG_MESSAGE_ID", "x-opt-ORIG-MESSAGE-ID")
_EXPIRY = (*_names("_AMQ_ACTUAL_EXPIRY", "x-opt-ACTUAL-EXPIRY"), "_HQ_ACTUAL_EXPIRY")
_OWN_ERRORS = ("errorReason", "errorMessage", "failureReason", "exceptionMessage", "lastError")
"""Properties in which applications say what failed; JMS allows no hyphens."""


def _address(letter: Letter) -> str | None:
    return first(letter.headers, *_ADDRESS)


def _queue(letter: Letter) -> str | None:
    return first(letter.headers, *_QUEUE) or None


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
    expiry = whole(first(letter.headers, *_EXPIRY), 64)
    return _died(letter, f"_AMQ_ACTUAL_EXPIRY {expiry}") if expiry is not None else None


def artemis_no_route(letter: Letter, _: Facts) -> Finding | None:
    """it names an address and its id there, but no queue: no queue took it (send-to-dla-on-no-route)"""
    address = _address(letter)
    if not address or _queue(letter) is not None or first(letter.headers, *_MESSAGE_ID) is None:
        return None
    return _died(letter, f"_AMQ_ORIG_ADDRESS {address}, without _AMQ_ORIG_QUEUE")


def artemis_parked(letter: Letter, _: Facts) -> Finding | None:
    """an application wrote the broker's names and an error of its own (errorReason, errorMessage, …): the
    broker writes _AMQ_ORIG_MESSAGE_ID, too"""
    told = first(letter.headers, *_OWN_ERRORS)
    if not told or first(letter.headers, *_ADDRESS, *_QUEUE) is None or first(letter.headers, *_MESSAGE_ID):
        return None
    return _died(letter, told)._replace(error_text=told)


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
    Rule(artemis_parked, "application_error", "framework"),
    Rule(artemis_no_route, "unroutable", "none"),
    Rule(artemis_dead_letter, "redelivery_exhausted", "redelivery_policy"),
)
