"""Artemis: there is no cause on a dead letter. It tells where it died, and whether it had expired.

Sources: Message#referenceOriginalMessage and QueueImpl#sendToDeadLetterAddress; AMQP messages carry the
same as annotations (AMQPMessageSupport#toAnnotationName).
"""

from collections.abc import Mapping

from dlq.analyzers.rule import Rule, first_header

_ADDRESS = first_header("_AMQ_ORIG_ADDRESS", "x-opt-ORIG-ADDRESS")
_QUEUE = first_header("_AMQ_ORIG_QUEUE", "x-opt-ORIG-QUEUE")
_EXPIRY = first_header("_AMQ_ACTUAL_EXPIRY", "x-opt-ACTUAL-EXPIRY")

DERIVED: Mapping[str, str] = {}

_ORIGIN = {
    "origin": f"coalesce(origin, {_QUEUE}, {_ADDRESS})",
    "origin_kind": "coalesce(origin_kind, 'queue')",
}

RULES: tuple[Rule, ...] = (
    Rule(
        "artemis-from-itself",
        "it was moved from the dead-letter queue to itself: reads that were broken off used up its attempts",
        f"{_QUEUE} = dead_letter_queue OR {_ADDRESS} = dead_letter_queue",
        "unknown",
        "none",
        {"evidence": f"concat('_AMQ_ORIG_ADDRESS ', {_ADDRESS}, ': the true origin is lost')"},
    ),
    Rule(
        "artemis-expired",
        "_AMQ_ACTUAL_EXPIRY says when it expired",
        f"{_EXPIRY} IS NOT NULL",
        "expired",
        "expiry",
        {**_ORIGIN, "evidence": f"concat('_AMQ_ACTUAL_EXPIRY ', {_EXPIRY})"},
    ),
    Rule(
        "artemis-dead-letter",
        "it names where it died and no expiry: its delivery attempts were used up, or a consumer rejected it",
        f"coalesce({_ADDRESS}, {_QUEUE}) IS NOT NULL",
        "redelivery_exhausted",
        "redelivery_policy",
        {
            **_ORIGIN,
            "evidence": f"concat('_AMQ_ORIG_ADDRESS ', coalesce({_ADDRESS}, {_QUEUE}), ': attempts used up, or rejected')",
        },
    ),
)
