"""What frameworks leave on a letter when they park it; names are those of the frameworks' sources.

Spring AMQP RepublishMessageRecoverer, Spring Cloud Stream's RabbitMessageChannelBinder, MassTransit
MessageHeaders, NServiceBus FaultsHeaderKeys, EasyNetQ SystemMessages.Error, Rebus Headers, Celery
worker.request, Dramatiq middleware.retries, Camel exchange properties, shine-mq DistributedTransAspect.
Framework evidence wins over an older death history, which then still gives attempts and origin.
"""

from collections.abc import Mapping

from dlq.analyzers.rule import Rule, count_header, first_header, header, literal, part_of

_ERROR_HEADER = "^[Xx]-([Ee]rror|[Ee]xception)"
DERIVED: Mapping[str, str] = {
    "failed_at": (
        f"coalesce(try_cast({header('MT-Fault-Timestamp')} AS timestamp), try_to_timestamp("
        f"{header('NServiceBus.TimeOfFailure')}, 'yyyy-MM-dd HH:mm:ss:SSSSSS X'))"
    ),
    # All names at once first: few letters have such a header, and a lambda for each header is slow.
    "error_headers": (
        f"CASE WHEN array_join(map_keys(headers), '\\n') RLIKE '(?m){_ERROR_HEADER}' "
        f"THEN map_filter(headers, (name, value) -> name RLIKE '{_ERROR_HEADER}') END"
    ),
    "retries": count_header(
        "x-retry-count", "x-retries", "x-retry", "x-retry-attempts", "x-retry-attempt", "x-retrycount"
    ),
}
"""Columns for the rules below. `failed_at` is when the framework gave up, where it says so."""

# A consumer refused it after the framework had parked it (and someone had sent it back): the
# framework's headers are then the older evidence. Only the first death of a pair has its time.
SUPERSEDED = (
    "coalesce(last_death.reason IN ('rejected', 'delivery_limit') AND last_death.count = 1 "
    "AND last_death.time > failed_at + INTERVAL 1 SECOND, false)"
)

_REFUSED_QUEUE = "rejected.queue"
_REFUSALS_AND_PARKED = "CAST(rejected.count + 1 AS int)"
_SPRING = first_header("x-exception-message", "x-exception-stacktrace")
_SPRING_ORIGINAL = first_header("x-original-exchange", "x-original-routingKey")
_SPRING_ORIGIN = f"CASE WHEN {header('x-original-exchange')} = '' THEN {header('x-original-routingKey')} END"
_STREAM_QUEUE = "CASE WHEN dead_letter_queue = concat(routing_key, '.dlq') THEN routing_key END"
_EASYNETQ = (
    "properties['type'] LIKE 'EasyNetQ.SystemMessages.Error%' "
    "OR dead_letter_queue = 'EasyNetQ_Default_Error_Queue' OR exchange LIKE 'ErrorExchange\\\\_%'"
)
_SHINE = f"{header('__TypeId__')} LIKE '%.EventMessage'"
_DRAMATIQ = "dead_letter_queue LIKE '%.XQ'"
_DRAMATIQ_QUEUE = "regexp_replace(last_death.queue, '\\\\.DQ$', '')"
_MT_FAULT = first_header("MT-Reason", "MT-Fault-Message", "MT-Fault-ExceptionType")
_MT_RETRIES = f"(coalesce({count_header('MT-Fault-RetryCount')}, 0) + 1)"
_MT_ROUNDS = f"(coalesce({count_header('MT-Redelivery-Count')}, 0) + 1)"
_MT_ADDRESS = f"substring_index(substring_index({header('MT-Fault-InputAddress')}, '?', 1), '/', -1)"
_MT_SUFFIX = part_of("dead_letter_queue", "^(.+)_(?:error|skipped)$")
_NSB = ("NServiceBus.ExceptionInfo.Message", "NServiceBus.ExceptionInfo.ExceptionType")
_ERROR_NAMES = ("message", "description", "reason", "msg", "detail", "details", "text")
_ORIGINALS = ("x-original-queue", "x-original-exchange", "x-original-routing-key")
_CLASS_NAMES = ("class", "type", "name", "classname", "fqcn")
_TRACE_NAMES = ("stacktrace", "stack", "stack-trace", "trace", "traceback")


def _hand_written(*endings: str) -> str:
    return first_header(*(f"x-{start}-{end}" for end in endings for start in ("exception", "error")))


def _body(path: str) -> str:
    return f"get_json_object(body_text, {literal(path)})"


_DRAMATIQ_ATTEMPTS = f"try_cast({_body('$.options.retries')} AS int) + 1"


def _evidence(*names: str) -> str:
    """The first of these headers that is there, as `name: value`."""
    shown = [f"concat({literal(f'{name}: ')}, {header(name)})" for name in names]
    return f"coalesce({', '.join(shown)})" if len(shown) > 1 else shown[0]


def _parked(name: str, words: str, when: str, body_if: str = "", **fields: str) -> Rule:
    own_attempts, own_origin = fields.pop("attempts", "NULL"), fields.pop("origin", "NULL")
    fields["attempts"] = f"coalesce({own_attempts}, {_REFUSALS_AND_PARKED})"
    fields["origin"] = f"coalesce(nullif({own_origin}, ''), {_REFUSED_QUEUE})"
    return Rule(name, words, when, "application_error", "framework", fields, body_if)


RULES: tuple[Rule, ...] = (
    _parked(
        "spring-cloud-stream",
        "x-exception-* of the Spring Cloud Stream binder: retry-count, or a queue <destination>.<group>.dlq",
        f"{_SPRING} IS NOT NULL AND ({header('retry-count')} IS NOT NULL OR {_STREAM_QUEUE} IS NOT NULL)",
        evidence=_evidence("x-exception-message", "x-exception-stacktrace"),
        error_message=header("x-exception-message"),
        error_text=header("x-exception-stacktrace"),
        attempts=f"{count_header('retry-count')} + 1",
        origin=f"coalesce({_STREAM_QUEUE}, {_SPRING_ORIGIN})",
    ),
    _parked(
        "spring-amqp",
        "x-exception-message or x-exception-stacktrace with x-original-exchange and x-original-routingKey",
        f"{_SPRING} IS NOT NULL AND {_SPRING_ORIGINAL} IS NOT NULL",
        evidence=_evidence("x-exception-message", "x-exception-stacktrace"),
        error_message=header("x-exception-message"),
        error_text=header("x-exception-stacktrace"),
        origin=_SPRING_ORIGIN,
    ),
    _parked(
        "masstransit-skipped",
        "MT-Reason is dead-letter: no consumer for the message type",
        f"{header('MT-Reason')} = 'dead-letter' AND NOT {SUPERSEDED}",
        evidence="'MT-Reason: dead-letter (no consumer for this message type)'",
        origin=f"coalesce(nullif(try_url_decode({_MT_ADDRESS}), ''), {_MT_SUFFIX})",
    ),
    _parked(
        "masstransit-fault",
        "MT-Reason is fault, or an MT-Fault-* header",
        f"{_MT_FAULT} IS NOT NULL AND NOT {SUPERSEDED}",
        evidence=_evidence("MT-Fault-Message", "MT-Fault-ExceptionType", "MT-Reason"),
        error_class=header("MT-Fault-ExceptionType"),
        error_message=header("MT-Fault-Message"),
        error_text=header("MT-Fault-StackTrace"),
        # MT-Fault-RetryCount is there only above 0, and each redelivery went through all retries again.
        attempts=f"{_MT_RETRIES} * {_MT_ROUNDS}",
        origin=f"coalesce(nullif(try_url_decode({_MT_ADDRESS}), ''), {_MT_SUFFIX})",
    ),
    _parked(
        "nservicebus",
        "NServiceBus.FailedQ or NServiceBus.ExceptionInfo.*",
        f"{first_header('NServiceBus.FailedQ', *_NSB)} IS NOT NULL AND NOT {SUPERSEDED}",
        evidence=_evidence(*_NSB, "NServiceBus.FailedQ"),
        error_class=header("NServiceBus.ExceptionInfo.ExceptionType"),
        error_message=header("NServiceBus.ExceptionInfo.Message"),
        error_text=header("NServiceBus.ExceptionInfo.StackTrace"),
        origin=f"substring_index({header('NServiceBus.FailedQ')}, '@', 1)",
    ),
    _parked(
        "easynetq",
        "an EasyNetQ Error in the body: type, error queue or ErrorExchange_*",
        f"({_EASYNETQ}) AND {_body('$.Exception')} IS NOT NULL",
        body_if=_EASYNETQ,
        evidence=_body("$.Exception"),
        error_text=_body("$.Exception"),
        origin=_body("$.Queue"),
    ),
    _parked(
        "rebus",
        "rbs2-error-details",
        f"{header('rbs2-error-details')} IS NOT NULL",
        evidence=_evidence("rbs2-error-details"),
        error_text=header("rbs2-error-details"),
        attempts=f"{count_header('rbs2-delivery-count')} + 1",
        origin=header("rbs2-source-queue"),
    ),
    _parked(
        "dramatiq",
        "a Dramatiq dead-letter queue (<queue>.XQ) and options.traceback in the body (of the attempt before)",
        f"{_DRAMATIQ} AND {_body('$.options.traceback')} IS NOT NULL",
        body_if=_DRAMATIQ,
        evidence=f"concat('traceback of the attempt before the last: ', {_body('$.options.traceback')})",
        stale_evidence="true",
        error_text=_body("$.options.traceback"),
        attempts=_DRAMATIQ_ATTEMPTS,
        origin=f"coalesce({_DRAMATIQ_QUEUE}, {_body('$.queue_name')})",
    ),
    _parked(
        "camel",
        "CamelExceptionCaught or CamelFailure* copied into headers by the route",
        f"{first_header('CamelExceptionCaught', 'CamelFailureEndpoint', 'CamelFailureRouteId')} IS NOT NULL",
        evidence=_evidence("CamelExceptionCaught", "CamelFailureEndpoint", "CamelFailureRouteId"),
        error_text=header("CamelExceptionCaught"),
    ),
    _parked(
        "hand-written-error",
        "any x-exception* or x-error* header",
        "size(error_headers) > 0",
        evidence="concat(map_keys(error_headers)[0], ': ', map_values(error_headers)[0])",
        error_class=_hand_written(*_CLASS_NAMES),
        error_message=f"coalesce({_hand_written(*_ERROR_NAMES)}, {first_header('x-exception', 'x-error')})",
        error_text=f"coalesce({_hand_written(*_TRACE_NAMES)}, {first_header('x-exception', 'x-error')})",
        attempts="retries + 1",
        origin=first_header("x-original-queue", "x-error-queue", "x-source-queue"),
    ),
    _parked(
        "hand-written-retries",
        "x-retry* above 0 beside x-original-*, and no death since: the application gave up and parked it",
        f"retries > 0 AND size(deaths) = 0 AND {first_header(*_ORIGINALS)} IS NOT NULL",
        evidence="concat('x-retry-count: ', retries)",
        attempts="retries + 1",
        origin=header("x-original-queue"),
    ),
    Rule(
        "dramatiq-reject",
        "a Dramatiq dead-letter queue (<queue>.XQ) without a traceback: the first failure was the last",
        f"{_DRAMATIQ} AND last_death.reason = 'rejected'",
        "poison_ack",
        "reject",
        {
            "evidence": "death_text",
            "attempts": f"coalesce({_DRAMATIQ_ATTEMPTS}, CAST(last_death.count AS int))",
            "origin": _DRAMATIQ_QUEUE,
        },
    ),
    Rule(
        "celery-reject",
        "headers task and id of Celery, and the last death is a rejection; Celery leaves no exception",
        f"{header('task')} IS NOT NULL AND {header('id')} IS NOT NULL AND last_death.reason = 'rejected'",
        "poison_ack",
        "reject",
        {
            "evidence": f"concat('Celery task ', {header('task')}, ', ', death_text)",
            "attempts": f"coalesce({count_header('retries')} + 1, CAST(last_death.count AS int))",
            "origin": "last_death.queue",
        },
    ),
    Rule(
        "shine-mq",
        "a shine-mq EventMessage (__TypeId__), refused after its retries; their count is only in its Redis",
        f"{_SHINE} AND last_death.reason = 'rejected'",
        "poison_ack",
        "reject",
        {
            "evidence": "concat('shine-mq EventMessage, ', death_text)",
            "attempts": "NULL",
            "origin": "last_death.queue",
        },
        body_if=_SHINE,
    ),
)

COORDINATED = f"""CASE WHEN {_SHINE} THEN to_json(named_struct(
    'coordinator', {_body("$.coordinator")},
    'work', coalesce({_body("$.data.checkBackId")}, {_body("$.msg.checkBackId")}))) END"""
"""Of a shine-mq message: its producer's coordinator, and the work (checkBackId) that it told of."""
