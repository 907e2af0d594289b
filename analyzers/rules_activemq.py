"""ActiveMQ Classic: what `dlqDeliveryFailureCause` says over all client versions, and what its absence says.

The text is a `Throwable.toString()` made by the client (Java, NMS, CMS) or by the broker. It is never
cleared, so that a letter that died again without a cause carries an old one. STOMP NACK and AMQP reject
leave none. Sources: RegionBroker#sendToDeadLetterQueue and the callers named beside each rule.
"""

from collections.abc import Mapping

from dlq.analyzers.rule import Rule, header, literal, part_of

_TO_STRING = r"(?s)^([A-Za-z_$][\w$]*(?:\.[A-Za-z_$][\w$]*)*)(?:: (.*))?$"
_POLICY = r"RedeliveryPolicy \{[^}]*\}"
_MAXIMUM = r"\bmaximumRedeliveries = (-?\d+)"
_NUMBERED = r"^(.+-\d+-\d+-\d+:\d+:-?\d+:-?\d+):(\d+)$"
_OF_CONSUMER = r"^(.+):-?\d+:-?\d+$"

_AUDIT = r"^(?:Suppressing duplicate delivery on connection, consumer |Duplicate non transacted delivery to )(\S+)$"
_AUDIT_OTHER = (
    r"^Duplicate dispatch with transacted redeliver pending on another consumer, connection: (\S+)$"
)
_AUDIT_SESSION = r"(?s)^Duplicate delivery to ActiveMQSession \{id=([^,]+),started="
_ROLLBACK = rf"(?s)^(?:Delivery\[(\d+)\] exceeds|Exceeded) redelivery policy limit:{_POLICY}, cause:(.*)$"
_RESOURCE_ADAPTER = rf"(?s)^Exceeded ra redelivery policy limit:{_POLICY}$"
_OTHER_CLIENTS = (
    r"(?s)^Exceeded RedeliveryPolicy (?:max redelivery )?limit: (-?\d+)(?: cause: (?:Exception -> )?(.*))?$"
)
_BEFORE_DISPATCH = (
    r"(?s)^(?:listener dispatch|[Dd]ispatch)(?:\[(\d+)\])? to (\S+) exceeds "
    rf"(?:redelivery policy limit:|RedeliveryPolicy limit: )(?:{_POLICY}|(-?\d+))$"
)
_EXPIRED = r"^Message Expired\. Expiration:(\d+)$"
_STORED_TWICE = (
    r"^duplicate (?:from store|paged in from (?:store|cursor)) for (?:temp-)?(?:queue|topic)://.+$"
)
_DISCARDED = r"^(?:(?:TopicSubDiscard|Subscription discard)\. ID:(\S+)|Message discarded)$"

_WRAPPED = r"^[A-Za-z_$][\w$]*(?:\.[A-Za-z_$][\w$]*)+(?:: |$)"
"""An exception whose class the broker does not have arrives as a Throwable that says its name. Any other
Throwable is made by client or broker: with an unknown text it proves nothing."""


def _says(pattern: str) -> str:
    return f"amq_text RLIKE {literal(pattern)}"


_EXPIRED_AT = part_of("failure_text", r"^[^:]*: Message Expired\. Expiration:(\d+)$")
_STALE = f"coalesce({_EXPIRED_AT} <> {header('originalExpiration')}, false)"
_LIMIT = f"try_cast({part_of('amq_text', _MAXIMUM)} AS int)"

DERIVED: Mapping[str, str] = {
    "amq_stale": f"broker_kind = 'activemq' AND {_STALE}",
    "amq_text": f"CASE WHEN broker_kind = 'activemq' AND NOT {_STALE} THEN trim(coalesce({part_of('failure_text', _TO_STRING, 2)}, '')) END",
    "amq_class": f"CASE WHEN broker_kind = 'activemq' AND NOT {_STALE} THEN {part_of('failure_text', _TO_STRING)} END",
}

_ORIGIN = {
    # After a JMX retry or move `original-destination` names the DLQ: the true origin is lost.
    "origin": "nullif(origin, dead_letter_queue)",
    "origin_kind": "CASE WHEN origin <> dead_letter_queue THEN origin_kind END",
    "stale_evidence": "amq_stale",
    "producer_id": part_of("message_id", _NUMBERED),
    "producer_seq": f"try_cast({part_of('message_id', _NUMBERED, 2)} AS bigint)",
}


def _died(name: str, words: str, when: str, cause: str, mechanism: str, **fields: str) -> Rule:
    return Rule(name, words, when, cause, mechanism, {"evidence": "failure_text", **_ORIGIN, **fields})


def _by_consumer(consumer: str) -> dict[str, str]:
    return {"consumer_id": consumer, "connection_id": part_of(consumer, _OF_CONSUMER)}


_WITHOUT_TEXT = "(trim(coalesce(failure_text, '')) = '' OR amq_stale)"
_DIED_HERE = f"({header('original-destination')} IS NOT NULL OR origin IS NOT NULL)"
_OLD = r"^(?:4|5\.[0-8])(?:\.|$)"

RULES: tuple[Rule, ...] = (
    _died(
        "amq-audit",
        "the client's connection audit took it for a duplicate after a failover (ActiveMQMessageConsumer#dispatch)",
        _says(_AUDIT),
        "suppressed_duplicate",
        "audit",
        **_by_consumer(part_of("amq_text", _AUDIT)),
    ),
    _died(
        "amq-audit-other-consumer",
        "the same while a transacted redelivery waited on another consumer (clients 5.6 to 5.10)",
        _says(_AUDIT_OTHER),
        "suppressed_duplicate",
        "audit",
        connection_id=part_of("amq_text", _AUDIT_OTHER),
    ),
    _died(
        "amq-audit-session",
        "the same in a server session or resource adapter (ActiveMQSession#run)",
        _says(_AUDIT_SESSION),
        "suppressed_duplicate",
        "audit",
        connection_id=part_of(part_of("amq_text", _AUDIT_SESSION), r"^(.+):-?\d+$"),
    ),
    _died(
        "amq-redelivery-policy",
        "rolled back more often than the client's redelivery policy allows (ActiveMQMessageConsumer#rollback)",
        _says(_ROLLBACK),
        "redelivery_exhausted",
        "redelivery_policy",
        attempts=f"coalesce(try_cast({part_of('amq_text', _ROLLBACK)} AS int), {_LIMIT} + 1)",
        error_text=f"nullif({part_of('amq_text', _ROLLBACK, 2)}, 'null')",
    ),
    _died(
        "amq-redelivery-policy-ra",
        "the same in a resource adapter",
        _says(_RESOURCE_ADAPTER),
        "redelivery_exhausted",
        "redelivery_policy",
        attempts=f"{_LIMIT} + 1",
    ),
    _died(
        "amq-redelivery-policy-other-client",
        "the same in a .NET (NMS) or C++ (CMS) client",
        _says(_OTHER_CLIENTS),
        "redelivery_exhausted",
        "redelivery_policy",
        attempts=f"try_cast({part_of('amq_text', _OTHER_CLIENTS)} AS int) + 1",
        error_message=part_of("amq_text", _OTHER_CLIENTS, 2),
    ),
    _died(
        "amq-dispatch-check",
        "its counter was above the limit before it reached the application: earlier crashes or kills raised it",
        _says(_BEFORE_DISPATCH),
        "redelivery_exhausted",
        "dispatch_check",
        attempts=f"coalesce(try_cast({part_of('amq_text', _BEFORE_DISPATCH)} AS int), "
        f"{_LIMIT} + 1, try_cast({part_of('amq_text', _BEFORE_DISPATCH, 3)} AS int) + 1)",
        **_by_consumer(part_of("amq_text", _BEFORE_DISPATCH, 2)),
    ),
    _died(
        "amq-expired",
        "the broker found it expired, at the time that originalExpiration confirms (RegionBroker#messageExpired)",
        _says(_EXPIRED),
        "expired",
        "expiry",
    ),
    _died(
        "amq-duplicate-from-store",
        "the broker found its id twice in store or cursor; since 5.17 it removes such a message by default",
        _says(_STORED_TWICE),
        "duplicate_from_store",
        "store_audit",
    ),
    _died(
        "amq-discard",
        "a topic subscriber was too slow: its pending limit or the temporary store was full",
        _says(_DISCARDED),
        "overflow",
        "discard",
        **_by_consumer(part_of("amq_text", _DISCARDED)),
    ),
    _died(
        "amq-format",
        "the broker could not unmarshal it (5.19.8, 6.2.7 and later)",
        "amq_class = 'org.apache.activemq.ActiveMQMessageFormatException'",
        "unreadable",
        "format",
        error_text="amq_text",
    ),
    _died(
        "amq-bridge",
        "a network bridge wanted to forward it to a temporary destination that is gone",
        "amq_class = 'org.apache.activemq.DestinationDoesNotExistException'",
        "unroutable",
        "none",
    ),
    _died(
        "amq-listener-exception",
        "a poison ack with the application's own exception (clients to 5.8: the listener threw at the limit)",
        f"amq_class <> '' AND (amq_class <> 'java.lang.Throwable' OR {_says(_WRAPPED)})",
        "redelivery_exhausted",
        "redelivery_policy",
        error_text="failure_text",
    ),
    _died(
        "amq-redelivery-plugin",
        "no cause, but redeliveryDelay: the broker's redelivery plugin gave up",
        f"{_WITHOUT_TEXT} AND {_DIED_HERE} AND {header('redeliveryDelay')} IS NOT NULL",
        "redelivery_exhausted",
        "redelivery_plugin",
        evidence=f"concat('redeliveryDelay ', {header('redeliveryDelay')}, ', no cause')",
    ),
    _died(
        "amq-expired-old",
        "no cause, from a broker to 5.8, which gave expired messages none",
        f"{_WITHOUT_TEXT} AND {_DIED_HERE} AND try_cast({header('originalExpiration')} AS bigint) > 0 "
        f"AND broker_version RLIKE {literal(_OLD)}",
        "expired",
        "expiry",
        evidence=f"concat('originalExpiration ', {header('originalExpiration')}, ' on ', broker_version)",
    ),
    _died(
        "amq-nack",
        "no cause of its own: refused without a reason by STOMP NACK, AMQP reject or an old client",
        f"{_WITHOUT_TEXT} AND {_DIED_HERE} AND coalesce(origin <> dead_letter_queue, true)",
        "poison_ack",
        "nack",
        evidence="CASE WHEN amq_stale THEN concat('an older death left: ', failure_text) ELSE 'no dlqDeliveryFailureCause' END",
    ),
)
