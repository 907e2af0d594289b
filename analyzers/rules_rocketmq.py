"""RocketMQ: the ways into `%DLQ%<group>`, and the topics of transactions.

A dead letter says how it came: a consumer's send-back leaves ORIGIN_MESSAGE_ID and RETRY_TOPIC, a client
that fell back to sending leaves its retry counters, POP has a retry topic of its own. REAL_TOPIC says
nothing: after a delayed retry it is the retry topic. What a half message means shows only beside its op
records and copies, so `transactions` has the last word on those. Sources: AbstractSendMessageProcessor,
SendMessageProcessor, DefaultMQPushConsumerImpl, PopReviveService and
DefaultTransactionalMessageCheckListener of 4.9 and 5.x.
"""

from collections.abc import Mapping

from dlq.analyzers.rule import Rule, literal

HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
FINISHED = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
DISCARDED = "TRANS_CHECK_MAX_TIME_TOPIC"
DEFAULT_RESERVED_HOURS = 72


def _property(name: str) -> str:
    return f"properties[{literal(name)}]"


def _in_topic(topic: str) -> str:
    return f"dead_letter_queue = {literal(topic)}"


_DEAD = "dead_letter_queue LIKE '\\\\%DLQ\\\\%_%'"
_GROUP = "substring(dead_letter_queue, 6)"
_RETRY_TOPIC = f"coalesce({_property('DLQ_ORIGIN_TOPIC')}, {_property('RETRY_TOPIC')})"
_POP_RETRY = f"concat('%RETRY%', {_GROUP})"
_ORIGIN_ID = _property("ORIGIN_MESSAGE_ID")
_RECONSUMED = "try_cast(headers['reconsumeTimes'] AS int)"
_CHECKS = f"try_cast({_property('TRANSACTION_CHECK_TIMES')} AS int)"
_AGE_HOURS = "(unix_micros(dead_at) - unix_micros(published_at)) / 3.6e9"

DERIVED: Mapping[str, str] = {
    # %RETRY%<group>_<topic>, or with + (KeyBuilder.parseNormalTopic)
    "rocket_origin": (
        f"CASE WHEN broker_kind <> 'rocketmq' THEN NULL WHEN NOT {_DEAD} THEN {_property('REAL_TOPIC')} "
        f"WHEN startswith({_RETRY_TOPIC}, {_POP_RETRY}) "
        f"THEN nullif(substring({_RETRY_TOPIC}, length({_POP_RETRY}) + 2), '') "
        f"ELSE {_RETRY_TOPIC} END"
    ),
}

_ORIGIN = {"origin": "rocket_origin", "origin_kind": "CASE WHEN rocket_origin IS NOT NULL THEN 'topic' END"}
_RETRIED = {**_ORIGIN, "attempts": _RECONSUMED}


def _died(name: str, words: str, when: str, mechanism: str, evidence: str) -> Rule:
    return Rule(
        name,
        words,
        f"{_DEAD} AND {when}",
        "redelivery_exhausted",
        mechanism,
        {**_RETRIED, "evidence": evidence},
    )


RULES: tuple[Rule, ...] = (
    _died(
        "pop",
        "dead-lettered for a POP or gRPC consumer: its retry topic carries group and topic",
        f"({_property('1ST_POP_TIME')} IS NOT NULL OR startswith({_RETRY_TOPIC}, '%RETRY%'))",
        "pop",
        f"concat('RETRY_TOPIC ', {_RETRY_TOPIC}, ', reconsumeTimes ', {_RECONSUMED})",
    ),
    _died(
        "client-fallback",
        "the client sent it to the retry topic itself: an orderly consumer, or one whose send-back failed",
        f"({_property('RECONSUME_TIME')} IS NOT NULL OR {_ORIGIN_ID} = {_property('UNIQ_KEY')})",
        "client_fallback",
        f"concat_ws(', ', concat('RECONSUME_TIME ', {_property('RECONSUME_TIME')}), "
        f"concat('MAX_RECONSUME_TIMES ', {_property('MAX_RECONSUME_TIMES')}), 'sent by the consumer')",
    ),
    _died(
        "send-back",
        "the consumer sent it back and its attempts were used up, or it asked for no more",
        f"(coalesce({_ORIGIN_ID}, {_property('RETRY_TOPIC')}) IS NOT NULL OR {_RECONSUMED} > 0)",
        "send_back",
        f"concat('reconsumeTimes ', {_RECONSUMED})",
    ),
    Rule(
        "check-skipped",
        "a half message older than the broker's retention, which is not checked any more",
        f"{_in_topic(DISCARDED)} AND {_AGE_HOURS} > {DEFAULT_RESERVED_HOURS}",
        "check_skipped",
        "check_age",
        {**_ORIGIN, "evidence": f"concat('discarded ', round({_AGE_HOURS}), ' h after it was sent')"},
    ),
    Rule(
        "check-max",
        "a half message that was checked to the limit without an outcome",
        _in_topic(DISCARDED),
        "check_max_exceeded",
        "check",
        {**_ORIGIN, "evidence": f"concat('TRANSACTION_CHECK_TIMES ', {_CHECKS})"},
    ),
    Rule(
        "half",
        "a half message; its transaction's other records decide",
        _in_topic(HALF),
        "transaction_pending",
        "none",
        {**_ORIGIN, "evidence": "'a half message without an outcome'", "transaction_state": "'pending'"},
    ),
    Rule(
        "finished",
        "the broker's note that half messages have ended",
        _in_topic(FINISHED),
        "unknown",
        "none",
        {"evidence": "concat('ends the half messages at ', body_text)"},
        body_if=f"broker_kind = 'rocketmq' AND {_in_topic(FINISHED)}",
    ),
)

CONTEXT = f"""CASE WHEN broker_kind = 'rocketmq' THEN to_json(named_struct(
    'offset', coalesce(try_cast(headers['queueOffset'] AS bigint), offset),
    'position', try_cast(headers['commitLogOffset'] AS bigint),
    'prepared', try_cast(headers['preparedTransactionOffset'] AS bigint),
    'born_host', headers['bornHost'],
    'flags', coalesce(flags, try_cast(headers['sysFlag'] AS int)),
    'checks', {_CHECKS},
    'immunity', try_cast({_property("CHECK_IMMUNITY_TIME_IN_SECONDS")} AS bigint),
    'producer_group', {_property("PGROUP")},
    'origin_id', {_property("ORIGIN_MESSAGE_ID")},
    'sent_back_by_client', {_property("RECONSUME_TIME")} IS NOT NULL,
    'replayed', {_property("dlq_replay_id")} IS NOT NULL,
    'keys', {_property("KEYS")},
    'tag', {_property("TAGS")},
    'finished', CASE WHEN {_in_topic(FINISHED)} THEN body_text END)) END"""
"""What comparisons between RocketMQ records need, in one column."""

CONTEXT_TYPE = (
    "offset bigint, position bigint, prepared bigint, born_host string, flags int, checks int, "
    "immunity bigint, producer_group string, origin_id string, sent_back_by_client boolean, "
    "replayed boolean, keys string, tag string, finished string"
)
