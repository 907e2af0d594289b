"""Artemis: there is no cause on a dead letter but what an OpenWire client said. It tells where it died, and
whether it had expired.

A reject, a limit, an operator's move, a send to the dead-letter address and a divert leave the same four
properties, and no protocol shows how often a letter was delivered: what these say is likely at best.
`_AMQ_ACTUAL_EXPIRY` and an OpenWire client's words are never cleared, so that a later death is told by them.
What each way leaves was looked at on 2.56.0.

Sources: Message#referenceOriginalMessage and QueueImpl#sendToDeadLetterAddress; AMQP messages carry the
same as annotations (AMQPMessageSupport#toAnnotationName). What no queue takes goes to the dead-letter address
where `send-to-dla-on-no-route` is set, and then names no queue, or an empty one
(PostOfficeImpl#maybeSendToDLA). To clients of HornetQ Artemis gives the same under HornetQ's names
(HQPropertiesConverter).
"""

import re

from dlq.analyzers.rules.activemq import (
    OF_ANY_DEATH,
    OF_CLIENTS,
    amq_listener_exception,
    has_moved_since,
    is_of_core,
)
from dlq.analyzers.rules.letter import Facts, Finding, Letter, Rule, first, is_whole, second_of, whole
from dlq.core.causes import MOVED


def _names(of_core: str, of_amqp: str) -> tuple[str, ...]:
    """Return what a fact is called: by core and STOMP; as AMQP's annotation, by AMQP and by the other
    protocols; and in consoles, which put the section of the message before it."""
    in_consoles = (f"extraProperties.{of_core}", f"messageAnnotations.{of_amqp}")
    return (of_core, of_amqp, f"JMS_AMQP_MA_{of_amqp}", *in_consoles)


_DEAD_LETTERS = re.compile(
    r"(?:^|[._-])(?:dlq|dla|dead[._-]?letters?|expiry(?:queue)?)(?:[._-]|$)", re.IGNORECASE
)
"""In names of the places to which dead letters go."""

_ADDRESS = _names("_AMQ_ORIG_ADDRESS", "x-opt-ORIG-ADDRESS")
# HornetQ's name of the address is not among them: applications write it, too, and then it proves nothing.
_QUEUE = (*_names("_AMQ_ORIG_QUEUE", "x-opt-ORIG-QUEUE"), "_HQ_ORIG_QUEUE")
_MESSAGE_ID = _names("_AMQ_ORIG_MESSAGE_ID", "x-opt-ORIG-MESSAGE-ID")
_EXPIRY = (*_names("_AMQ_ACTUAL_EXPIRY", "x-opt-ACTUAL-EXPIRY"), "_HQ_ACTUAL_EXPIRY")
_CLOCKS_DIFFER = 600_000_000
"""Microseconds by which a producer's clock may be ahead of ours."""
_OWN_ERRORS = ("errorReason", "errorMessage", "failureReason", "exceptionMessage", "lastError")
"""Properties in which applications say what failed; JMS allows no hyphens."""


def _address(letter: Letter) -> str | None:
    return first(letter.headers, *_ADDRESS)


def _queue(letter: Letter) -> str | None:
    return first(letter.headers, *_QUEUE) or None


def _quote_first(letter: Letter, *names: str) -> str:
    """Return the first of these that is there, as `name value`."""
    return next((f"{name} {letter.headers[name]}" for name in names if name in letter.headers), "")


def _report(letter: Letter, facts: Facts, evidence: str) -> Finding:
    """Return a finding that says where it was: a divert's name is no queue, and then the address is."""
    queue, address = letter.origin or _queue(letter), _address(letter)
    is_divert = _queue(letter) in facts.diverts.get(facts.place_of(letter), ())
    origin = address if is_divert or queue is None else queue
    return Finding(evidence, origin=origin, origin_kind=letter.origin_kind or "queue")


def _artemis_from_itself(letter: Letter, _: Facts) -> Finding | None:
    """it was moved from the dead-letter queue to itself: reads that were broken off used up its attempts"""
    if letter.dead_letter_queue not in (_queue(letter), _address(letter)):
        return None
    return Finding(f"{_quote_first(letter, *_ADDRESS, *_QUEUE)}: the true origin is lost")


def _artemis_carried(letter: Letter, facts: Facts) -> Finding | None:
    """a divert put it here, or it was brought here out of a dead-letter queue, or to where its address sends
    neither the dead nor the expired: it did not die of that"""
    queue, address = _queue(letter), _address(letter)
    if queue is not None and queue in facts.diverts.get(facts.place_of(letter), ()):
        return _report(letter, facts, f"the divert {queue} put it here")
    if _DEAD_LETTERS.search(letter.dead_letter_queue):
        return None
    if any(_DEAD_LETTERS.search(name or "") for name in (queue, address)):
        return Finding(f"{_quote_first(letter, *_ADDRESS, *_QUEUE)}: it was brought here from there")
    places = facts.places_of_the_dead.get(facts.place_of(letter), {}).get(address or "")
    lies_at = letter.headers.get("destination")
    if places is None or lies_at is None or lies_at in places:
        return None
    return _report(letter, facts, f"the dead of {address} go to {places[0]}: it was brought here")


def _artemis_expired(letter: Letter, facts: Facts) -> Finding | None:
    """_AMQ_ACTUAL_EXPIRY says when it expired, or an operator let it expire; a letter that an AMQP or STOMP
    client sent may have moved and died again since"""
    expiry = whole(first(letter.headers, *_EXPIRY), 64)
    if expiry is None or _is_old_expiry(letter, facts):
        return None
    is_new = is_of_core(letter) or _lies_with_expired(letter, facts)
    found = _report(letter, facts, _quote_first(letter, *_EXPIRY))
    return found._replace(also_possible=() if is_new else None)


def _is_old_expiry(letter: Letter, facts: Facts) -> bool:
    """Return whether it is old, for the broker never clears it: where the letter has moved since, and where
    the dead lie in another queue than the expired."""
    places = facts.places_of_the_dead.get(facts.place_of(letter), {}).get(_address(letter) or "")
    lies_with_dead = places is not None and places[0] == letter.dead_letter_queue != places[1]
    return has_moved_since(letter) or lies_with_dead


def _lies_with_expired(letter: Letter, facts: Facts) -> bool:
    places = facts.places_of_the_dead.get(facts.place_of(letter), {}).get(_address(letter) or "")
    return places is not None and places[1] == letter.dead_letter_queue != places[0]


def _artemis_no_route(letter: Letter, facts: Facts) -> Finding | None:
    """it names an address and its id there, and an empty queue, or none: no queue took it
    (send-to-dla-on-no-route)"""
    address = _address(letter)
    if not address or _queue(letter) is not None or first(letter.headers, *_MESSAGE_ID) is None:
        return None
    is_proven = first(letter.headers, *_QUEUE) is not None or is_whole(letter)
    found = _report(letter, facts, f"{_quote_first(letter, *_ADDRESS)}, and no queue there")
    return found._replace(also_possible=() if is_proven else None)


def _artemis_parked(letter: Letter, facts: Facts) -> Finding | None:
    """an application wrote the broker's names and an error of its own (errorReason, errorMessage, …): the
    broker writes _AMQ_ORIG_MESSAGE_ID, too"""
    told = first(letter.headers, *_OWN_ERRORS)
    if not told or first(letter.headers, *_ADDRESS, *_QUEUE) is None or first(letter.headers, *_MESSAGE_ID):
        return None
    return _report(letter, facts, told)._replace(error_text=told)


def _artemis_forged(letter: Letter, _: Facts) -> Finding | None:
    """it has the broker's names, but all of its headers are shown, and not _AMQ_ORIG_MESSAGE_ID, which the
    broker writes, too: its sender wrote them"""
    names = _quote_first(letter, *_ADDRESS, *_QUEUE)
    if not names or not is_whole(letter) or first(letter.headers, *_MESSAGE_ID) is not None:
        return None
    return Finding(f"{names}, without _AMQ_ORIG_MESSAGE_ID")


def _artemis_moved(letter: Letter, facts: Facts) -> Finding | None:
    """its queue has sent nothing to where the dead go since before it was published, by the broker's own
    count: no consumer failed on it, someone moved it here"""
    names = _quote_first(letter, *_QUEUE)
    since = facts.killed_none.get(facts.place_of(letter), {}).get(_queue(letter) or "")
    if not names or since is None or (letter.published_at or 0) < since + _CLOCKS_DIFFER:
        return None
    return _report(letter, facts, f"{names}, where none died since {second_of(since)}: someone moved it")


def _artemis_refused(letter: Letter, facts: Facts) -> Finding | None:
    """the settings of its address never give up (max-delivery-attempts below 1): its consumer rejected it, or
    an operator put it here"""
    names, most = _quote_first(letter, *_ADDRESS, *_QUEUE), _most_attempts(letter, facts)
    if not names or most is None or most > 0:
        return None
    return _report(letter, facts, f"{names}, max-delivery-attempts {most}: no failures are too many")


def _most_attempts(letter: Letter, facts: Facts) -> int | None:
    return facts.most_attempts.get(facts.place_of(letter), {}).get(_address(letter) or "")


def _artemis_dead_letter(letter: Letter, facts: Facts) -> Finding | None:
    """it names where it died and no expiry: its delivery attempts were used up, or a consumer rejected it, or
    an operator or a divert put it here"""
    names = _quote_first(letter, *_ADDRESS, *_QUEUE)
    if not names:
        return None
    is_old = first(letter.headers, *_EXPIRY) is not None
    only = ", max-delivery-attempts 1: one failure is enough" if _most_attempts(letter, facts) == 1 else ""
    return _report(letter, facts, names + only)._replace(stale_evidence=is_old)


RULES: tuple[Rule, ...] = (
    Rule(_artemis_from_itself, "unknown", "none"),
    Rule(_artemis_carried, "unknown", "none"),
    Rule(_artemis_expired, "expired", "expiry", OF_ANY_DEATH),
    *OF_CLIENTS,
    Rule(amq_listener_exception, "redelivery_exhausted", "redelivery_policy"),
    Rule(_artemis_parked, "application_error", "framework", ("poison_ack", MOVED)),
    Rule(_artemis_forged, "unknown", "none"),
    Rule(_artemis_no_route, "unroutable", "none", OF_ANY_DEATH),
    Rule(_artemis_moved, "unknown", "none"),
    Rule(_artemis_refused, "poison_ack", "nack", (MOVED,)),
    Rule(_artemis_dead_letter, "redelivery_exhausted", "redelivery_policy", ("poison_ack", MOVED)),
)
