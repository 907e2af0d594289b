"""ActiveMQ Classic: what `dlqDeliveryFailureCause` says over all client versions, and what its absence says.

The text is a `Throwable.toString()` made by the client (Java, NMS, CMS) or by the broker; people and
consoles hand it on without its class, wrapped, quoted and cut. It is never cleared, so that a letter that
died again without a cause carries an old one. STOMP NACK and AMQP reject leave none.
"""

import re
from typing import NamedTuple

from dlq.analyzers.rules.letter import (
    Facts,
    Finding,
    Letter,
    Rule,
    first,
    is_whole,
    once_per_letter,
    part,
    plus,
    whole,
)
from dlq.core.causes import MOVED

_LONGEST_TEXT = 65_536
"""Characters of a failure's text that are looked at."""

_NAME = r"[A-Za-z_$][\w$]*(?:(?:\.|::)[A-Za-z_$][\w$]*)*"


def _pattern(text: str, flags: re.RegexFlag = re.NOFLAG) -> re.Pattern[str]:
    """Compile a pattern whose \\w and \\d mean what Java's do."""
    return re.compile(text, flags | re.ASCII)


def _begins(text: str) -> re.Pattern[str]:
    """Return a failure's text that begins so. It reaches people wrapped and cut: a blank is any run of white
    space, and what stands behind the words that nothing else says is optional."""
    return _pattern("^" + text.replace(" ", r"\s+"), re.DOTALL)


_AROUND = " \t\r\n\"'`\u00a0\u00ab\u00bb\u2018\u2019\u200b\u201c\u201d\ufeff"
"""What consoles and people put around a text."""
_BEFORE = "> \u201e"
_PAIRS = {"(": ")", "[": "]", "<": ">", "*": "*", "\\": "\\", "\u300c": "\u300d", "\u300e": "\u300f"}
"""The same, where a text may end with it by itself."""
_BLANKS = {**dict.fromkeys((0xA0, 0x2007, 0x202F, 0x3000), " "), 0xFEFF: None, 0x200B: None}
"""What word processors and pages put in place of a blank, and what nobody sees."""
_LINE_ENDS = _pattern(r"\\r?\\n|\\n|<br\s{0,3}/?>|\n\s{0,8}>")
"""The end of a line as pages, programs and mails write it."""
_LABEL = _pattern(
    r"^(?:dlqDeliveryFailureCause|(?:(?:delivery |dlq )?failure |dlq )?(?:cause|reason)|caused by"
    r"|exception in thread \S{1,80})(?:\s*[:=]|\s)\s*",
    re.IGNORECASE,
)
"""What stands before a text where it was copied with its name."""
_THROWABLE = ("java.lang.Throwable", "Throwable")
_WRAPPERS = (*_THROWABLE, "javax.jms.JMSException", "jakarta.jms.JMSException", "JMSException")
"""Classes that say nothing, and stand before one another."""
_MOST_WRAPPERS = 4
_TO_STRING = _pattern(rf"^({_NAME})(?::\s+(.*))?$", re.DOTALL)
_THROWN = _pattern(r"^([A-Za-z_$][\w$]*(?:\.[A-Za-z_$][\w$]*)+)(?:: ([^\n]*))?(?:\n|$)")
_MAXIMUM = _pattern(r"\bmaximumRedeliveries\s*=\s*(-?\d+)")
_OF_CONSUMER = _pattern(r"^(.+):-?\d+:-?\d+$")
_OF_SESSION = _pattern(r"^(.+):-?\d+$")
_AUDIT = _begins(
    r"(?:Suppressing duplicate delivery(?: on connection,(?: consumer)?)?"
    r"|Duplicate non transacted delivery(?: to)?)(?: (ID:\S+))?"
)
_AUDIT_OTHER = _begins(
    r"Duplicate dispatch with transacted redeliver"
    r"(?: pending on another consumer,(?: connection:)?(?: (ID:\S+))?)?"
)
_AUDIT_SESSION = _begins(r"Duplicate delivery to ActiveMQSession(?: \{id=([^,\s]+))?")
_ROLLBACK = _begins(r"(?:Delivery\[(\d+)\] exceeds|Exceeded) redelivery policy")
_RESOURCE_ADAPTER = _begins(r"Exceeded ra redelivery policy")
_OTHER_CLIENTS = _begins(
    r"Exceeded RedeliveryPolicy (?:max redelivery )?limit(?:: (-?\d+)(?: cause: (?:Exception -> )?(.*))?)?"
)
_BEFORE_DISPATCH = _begins(
    r"(?:listener |)[Dd]ispatch(?:\[(\d+)\] to (ID:\S+)| to (\S+) exceeds (?:redelivery|RedeliveryPolicy))"
)
_LIMIT = _pattern(r"limit:\s{0,4}(-?\d+)")
_EXPIRED = _begins(r"Message Expired(?:\.|$)")
_EXPIRED_AT = _begins(rf"(?:{_NAME}: )?Message Expired\. Expiration:\s*(\d+)$")
_STORED_TWICE = _begins(r"duplicate (?:from store|paged in from (?:store|cursor))\b")
_NAMED_PLACE = _pattern(r"\b(queue|topic)://([^\s,;\])'\"]{1,300})")
_DISCARDED = _begins(
    r"(?:(?:TopicSubDiscard|Subscription discard)\b(?:\.(?: ID:(\S+))?)?|Message discarded(?:[.\u2026\n]|$))"
)
_WRAPPED = _pattern(r"^[A-Za-z_$][\w$]*(?:\.[A-Za-z_$][\w$]*)+(?:: |$)")
"""An exception whose class the broker does not have arrives as a Throwable that says its name. Any other
Throwable is made by client or broker: with an unknown text it proves nothing."""
_CLASS = _pattern(r"[.:]|(?:Exception|Error|Throwable)$")
"""What tells a class from a word."""
_OLD = _pattern(r"^(?:4|5\.[0-8])(?:\.|$)")

_FORMAT_EXCEPTION = "org.apache.activemq.ActiveMQMessageFormatException"
_NO_DESTINATION = "org.apache.activemq.DestinationDoesNotExistException"


class _DeliveryFailure(NamedTuple):
    """The failure's text, taken apart: `class: text`."""

    of_class: str | None
    text: str | None
    """None where an older death left it."""
    is_stale: bool


_OF_OPENWIRE = "__HDR_dlqDeliveryFailureCause"
"""Where Artemis keeps what an OpenWire client said of a letter (OpenWireConstants)."""


OF_ANY_DEATH = ("redelivery_exhausted", "poison_ack", MOVED)
"""What a later death may have been that says nothing of itself."""
_BIRTHMARKS = ("__AMQ_CID", "__HDR_")
"""Begin what core and OpenWire clients leave on a message of Artemis'."""
_ROUTED = ("_AMQ_ROUTING_TYPE", "destination-type")
"""Names of the routing type; what those clients send has none until it goes on from where it first died."""


def is_of_core(letter: Letter) -> bool:
    """Return whether a core or OpenWire client sent it, so that its routing type tells whether it has
    moved."""
    return any(name.startswith(_BIRTHMARKS) for name in letter.headers)


def has_moved_since(letter: Letter) -> bool:
    """Return whether it certainly was moved, retried or diverted on Artemis: what an earlier death left on it
    is old."""
    return is_of_core(letter) and first(letter.headers, *_ROUTED) is not None


def _failure_text(letter: Letter) -> str | None:
    """Return the text of client or broker. On Artemis a property of the producer's may be called like
    Classic's."""
    return letter.headers.get(_OF_OPENWIRE) if letter.broker_kind == "artemis" else letter.failure_text


def _bare(text: str) -> str:
    """Return a text without quotation marks and brackets around it."""
    text = text.strip(_AROUND).lstrip(_BEFORE)
    for _ in range(_MOST_WRAPPERS):
        if len(text) > 1 and _PAIRS.get(text[0]) == text[-1]:
            text = text[1:-1].strip(_AROUND)
    return text


def _unwrap(told: str) -> str:
    """Return a text as the client or the broker wrote it, without what copying it has added. The exception
    that it ends in stays as it is."""
    text = _bare(_LABEL.sub("", _bare(told[:_LONGEST_TEXT]), count=1))
    words, mark, cause = text.partition("cause:")
    return _LINE_ENDS.sub("\n", words.translate(_BLANKS)) + mark + cause


def _taken_apart(text: str) -> tuple[str | None, str]:
    """Return class and text of `class: text`; of several classes that say nothing the last."""
    of_class, rest = None, text
    for _ in range(_MOST_WRAPPERS):
        of_class, rest = part(_TO_STRING, text), part(_TO_STRING, text, 2) or ""
        if of_class not in _WRAPPERS or part(_TO_STRING, rest) not in _WRAPPERS:
            break
        text = rest
    return (None, text) if of_class is None else (of_class, rest)


@once_per_letter
def _failure(letter: Letter) -> _DeliveryFailure:
    """Return its dlqDeliveryFailureCause. That of an expiry is stale where originalExpiration says another
    time."""
    told = _failure_text(letter)
    text = "" if told is None else _unwrap(told)
    expired_at, original = part(_EXPIRED_AT, text), letter.headers.get("originalExpiration")
    if expired_at is not None and original is not None and expired_at != original:
        return _DeliveryFailure(None, None, True)
    return _DeliveryFailure(*_taken_apart(text), False)


def _match(pattern: re.Pattern[str], letter: Letter) -> re.Match[str] | None:
    text = _failure(letter).text
    return None if text is None else pattern.search(text)


def _limit(letter: Letter) -> int | None:
    return whole(part(_MAXIMUM, _failure(letter).text))


def _report(letter: Letter) -> Finding:
    """Return a finding that says whose message it was, and where it died. After a JMX retry or move
    `original-destination` names the dead-letter queue: the true origin is lost."""
    lost = letter.origin is None or letter.origin == letter.dead_letter_queue
    has_moved = letter.broker_kind == "artemis" and has_moved_since(letter)
    return Finding(
        _failure_text(letter),
        stale_evidence=_failure(letter).is_stale or has_moved,
        also_possible=OF_ANY_DEATH if has_moved else None,
        origin=None if lost else letter.origin,
        origin_kind=None if lost else letter.origin_kind,
    )


def _report_consumer(letter: Letter, consumer: str | None, connection: str | None) -> Finding:
    return _report(letter)._replace(consumer_id=consumer, connection_id=connection)


def _amq_audit(letter: Letter, _: Facts) -> Finding | None:
    """the client's connection audit took it for a duplicate after a failover
    (ActiveMQMessageConsumer#dispatch)"""
    told = _match(_AUDIT, letter)
    return _report_consumer(letter, told[1], part(_OF_CONSUMER, told[1])) if told else None


def _amq_audit_other_consumer(letter: Letter, _: Facts) -> Finding | None:
    """the same while a transacted redelivery waited on another consumer (clients 5.6 to 5.10)"""
    told = _match(_AUDIT_OTHER, letter)
    return _report_consumer(letter, None, told[1]) if told else None


def _amq_audit_session(letter: Letter, _: Facts) -> Finding | None:
    """the same in a server session or resource adapter (ActiveMQSession#run)"""
    told = _match(_AUDIT_SESSION, letter)
    return _report_consumer(letter, None, part(_OF_SESSION, told[1])) if told else None


def _amq_redelivery_policy(letter: Letter, _: Facts) -> Finding | None:
    """rolled back more often than the client's redelivery policy allows (ActiveMQMessageConsumer#rollback)"""
    told = _match(_ROLLBACK, letter)
    if not told:
        return None
    deliveries = whole(told[1])
    attempts = deliveries if deliveries is not None else plus(_limit(letter), 1)
    cause = (_failure(letter).text or "").partition("cause:")[2].strip()
    if cause in ("", "null"):
        return _report(letter)._replace(attempts=attempts)
    # Here stands a Throwable's text, so that a dotted name is its class, whatever it ends with.
    named = _THROWN.match(cause)
    return _report(letter)._replace(
        attempts=attempts, error_class=named and named[1], error_message=named and named[2], error_text=cause
    )


def _amq_redelivery_policy_ra(letter: Letter, _: Facts) -> Finding | None:
    """the same in a resource adapter"""
    if not _match(_RESOURCE_ADAPTER, letter):
        return None
    return _report(letter)._replace(attempts=plus(_limit(letter), 1))


def _amq_redelivery_policy_other_client(letter: Letter, _: Facts) -> Finding | None:
    """the same in a .NET (NMS) or C++ (CMS) client"""
    told = _match(_OTHER_CLIENTS, letter)
    if not told:
        return None
    return _report(letter)._replace(attempts=plus(whole(told[1]), 1), error_message=told[2] or None)


def _amq_dispatch_check(letter: Letter, _: Facts) -> Finding | None:
    """its counter was above the limit before it reached the application: earlier crashes or kills
    raised it"""
    told = _match(_BEFORE_DISPATCH, letter)
    if not told:
        return None
    limits = (_limit(letter), whole(part(_LIMIT, _failure(letter).text)))
    known = (whole(told[1]), *(plus(limit, 1) for limit in limits))
    return _report(letter)._replace(
        attempts=next((n for n in known if n is not None), None),
        consumer_id=told[2] or told[3],
        connection_id=part(_OF_CONSUMER, told[2] or told[3]),
    )


def _amq_expired(letter: Letter, _: Facts) -> Finding | None:
    """the broker found it expired, at the time that originalExpiration confirms
    (RegionBroker#messageExpired)"""
    return _report(letter) if _match(_EXPIRED, letter) else None


def _amq_duplicate_from_store(letter: Letter, _: Facts) -> Finding | None:
    """the broker found its id twice in store or cursor; since 5.17 it removes such a message by default"""
    if not _match(_STORED_TWICE, letter):
        return None
    found = _report(letter)
    place = _NAMED_PLACE.search(_failure(letter).text or "")
    if found.origin is not None or place is None:
        return found
    return found._replace(origin=place[2], origin_kind=place[1])


def _amq_discard(letter: Letter, _: Facts) -> Finding | None:
    """a topic subscriber was too slow: its pending limit or the temporary store was full"""
    told = _match(_DISCARDED, letter)
    if not told:
        return None
    return _report(letter)._replace(consumer_id=told[1], connection_id=part(_OF_CONSUMER, told[1]))


def _amq_format(letter: Letter, _: Facts) -> Finding | None:
    """the broker could not unmarshal it (5.19.8, 6.2.7 and later)"""
    if _failure(letter).of_class != _FORMAT_EXCEPTION:
        return None
    return _report(letter)._replace(error_text=_failure(letter).text)


def _amq_bridge(letter: Letter, _: Facts) -> Finding | None:
    """a network bridge wanted to forward it to a temporary destination that is gone"""
    return _report(letter) if _failure(letter).of_class == _NO_DESTINATION else None


def amq_listener_exception(letter: Letter, _: Facts) -> Finding | None:
    """a poison ack with the application's own exception (clients to 5.8: the listener threw at the limit)"""
    of_class = _failure(letter).of_class
    if of_class is None or not _CLASS.search(of_class):
        return None
    if of_class in _THROWABLE and not _match(_WRAPPED, letter):
        return None
    return _report(letter)._replace(error_text=_failure_text(letter))


def _has_no_cause(letter: Letter) -> bool:
    """Return whether nothing says why this time, but that it died here."""
    is_silent = _failure(letter).is_stale or not (letter.failure_text or "").strip(" ")
    is_named = letter.headers.get("original-destination") is not None or letter.origin is not None
    return is_silent and is_named and not _was_carried(letter)


def _was_carried(letter: Letter) -> bool:
    """Return whether a hand or a virtual topic brought it where it lies. The broker stamps all that it kills
    with originalExpiration, or gives it the expiration of its dead-letter strategy; of a letter that was
    shown in part neither need be there."""
    headers = letter.headers
    if "originalExpiration" in headers or (whole(headers.get("expires"), 64) or 0) > 0:
        return False
    is_live = letter.origin_kind == "topic" and letter.dead_letter_queue.endswith(letter.origin or "\0")
    return is_live or is_whole(letter)


def _amq_carried(letter: Letter, _: Facts) -> Finding | None:
    """original-destination without originalExpiration: somebody moved or copied it here, or a virtual topic
    did; the broker did not kill it"""
    is_silent = _failure(letter).is_stale or not (letter.failure_text or "").strip(" ")
    was = letter.headers.get("original-destination")
    if was is None or not is_silent or not _was_carried(letter):
        return None
    return _report(letter)._replace(evidence=f"original-destination {was}, without originalExpiration")


def _amq_redelivery_plugin(letter: Letter, _: Facts) -> Finding | None:
    """no cause, but redeliveryDelay: the broker's redelivery plugin gave up"""
    delay = letter.headers.get("redeliveryDelay")
    if delay is None or not _has_no_cause(letter):
        return None
    return _report(letter)._replace(evidence=f"redeliveryDelay {delay}, no cause")


def _amq_expired_old(letter: Letter, _: Facts) -> Finding | None:
    """no cause, from a broker to 5.8, which gave expired messages none"""
    expiration = letter.headers.get("originalExpiration")
    is_old = _OLD.search(letter.broker_version or "")
    if not is_old or (whole(expiration, 64) or 0) <= 0 or not _has_no_cause(letter):
        return None
    return _report(letter)._replace(evidence=f"originalExpiration {expiration} on {letter.broker_version}")


def _amq_nack(letter: Letter, _: Facts) -> Finding | None:
    """no cause of its own: refused without a reason by STOMP NACK or AMQP reject; or an old client's attempts
    were used up"""
    if not _has_no_cause(letter) or letter.origin == letter.dead_letter_queue:
        return None
    is_stale = _failure(letter).is_stale
    evidence = f"an older death left: {letter.failure_text}" if is_stale else "no dlqDeliveryFailureCause"
    is_stamped = "originalExpiration" in letter.headers
    also = None if is_stamped else ("redelivery_exhausted", MOVED)
    return _report(letter)._replace(evidence=evidence, also_possible=also)


OF_CLIENTS: tuple[Rule, ...] = (
    Rule(_amq_audit, "suppressed_duplicate", "audit"),
    Rule(_amq_audit_other_consumer, "suppressed_duplicate", "audit"),
    Rule(_amq_audit_session, "suppressed_duplicate", "audit"),
    Rule(_amq_redelivery_policy, "redelivery_exhausted", "redelivery_policy"),
    Rule(_amq_redelivery_policy_ra, "redelivery_exhausted", "redelivery_policy"),
    Rule(_amq_redelivery_policy_other_client, "redelivery_exhausted", "redelivery_policy"),
    Rule(_amq_dispatch_check, "redelivery_exhausted", "dispatch_check"),
)
"""What clients say by OpenWire, on Artemis too."""
RULES: tuple[Rule, ...] = (
    *OF_CLIENTS,
    Rule(_amq_expired, "expired", "expiry"),
    Rule(_amq_duplicate_from_store, "duplicate_from_store", "store_audit"),
    Rule(_amq_discard, "overflow", "discard"),
    Rule(_amq_format, "unreadable", "format"),
    Rule(_amq_bridge, "unroutable", "none"),
    Rule(amq_listener_exception, "redelivery_exhausted", "redelivery_policy"),
    Rule(_amq_carried, "unknown", "none"),
    Rule(_amq_redelivery_plugin, "redelivery_exhausted", "redelivery_plugin"),
    Rule(_amq_expired_old, "expired", "expiry", ("poison_ack",)),
    Rule(_amq_nack, "poison_ack", "nack", ("redelivery_exhausted",)),
)
