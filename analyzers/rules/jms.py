"""What frameworks over JMS leave on a letter, whose names may hold no hyphens: Mats3 and SmallRye.

Mats3 moves what its stages refuse to the dead-letter queue by itself (its MatsRefuseMessageException and
redelivery handling); SmallRye's names are those of its JMS connector's dead-letter queue.
"""

import re

from dlq.analyzers.rules.frameworks import parked_finding
from dlq.analyzers.rules.letter import Facts, Finding, Letter, Rule, first, part, whole

_OF_MATS = re.compile(r"^DLQ\.(.+)$")


def _mats(letter: Letter) -> Finding | None:
    headers = letter.headers
    trace, count = headers.get("mats_dlq_Exception"), headers.get("mats_dlq_DeliveryCount")
    if trace is None and count is None and headers.get("mats_dlq_Refused") is None:
        return None
    evidence = next(
        (
            f"{name}: {headers[name]}"
            for name in ("mats_dlq_Exception", "mats_dlq_Refused", "mats_dlq_DeliveryCount")
            if headers.get(name)
        ),
        None,
    )
    return parked_finding(
        letter,
        evidence,
        attempts=whole(count),
        origin=part(_OF_MATS, letter.dead_letter_queue) or letter.origin,
        error_text=trace,
    )


def _mats_refused(letter: Letter, _: Facts) -> Finding | None:
    """mats_dlq_Refused: a stage of Mats3 refused it (MatsRefuseMessageException)"""
    return _mats(letter) if (letter.headers.get("mats_dlq_Refused") or "false").lower() != "false" else None


def _mats_failed(letter: Letter, _: Facts) -> Finding | None:
    """mats_dlq_Exception: a stage of Mats3 threw as often as it may, and moved it here by itself"""
    return _mats(letter) if letter.headers.get("mats_dlq_Exception") else None


def _mats_received(letter: Letter, _: Facts) -> Finding | None:
    """mats_dlq_DeliveryCount without an exception: Mats3 found it delivered too often, before its stage saw
    it"""
    return _mats(letter)


def _smallrye_jms(letter: Letter, _: Facts) -> Finding | None:
    """dead_letter_exception_class_name, or dead_letter_reason: nacked (SmallRye's JMS connector)"""
    headers = letter.headers
    names = ("dead_letter_reason", "dead_letter_exception_class_name", "dead_letter_cause")
    told = next((f"{name}: {headers[name]}" for name in names if headers.get(name)), None)
    if told is None or first(headers, *names[:2]) is None:
        return None
    return parked_finding(
        letter,
        told,
        origin=letter.origin,
        error_class=first(headers, "dead_letter_cause_class_name", "dead_letter_exception_class_name"),
        error_message=first(headers, "dead_letter_cause", "dead_letter_reason"),
    )._replace(outer_error=headers.get("dead_letter_exception_class_name"))


RULES: tuple[Rule, ...] = (
    Rule(_mats_refused, "poison_ack", "framework"),
    Rule(_mats_failed, "application_error", "framework"),
    Rule(_mats_received, "redelivery_exhausted", "framework"),
    Rule(_smallrye_jms, "application_error", "framework"),
)
