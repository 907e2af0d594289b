"""What frameworks leave on a letter when they park it; names are those of the frameworks' sources.

Framework evidence wins over an older death history, which then still gives attempts and origin.
"""

import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from urllib.parse import unquote_plus

from dlq.analyzers.rules.deaths import death_text, history
from dlq.analyzers.rules.letter import (
    Facts,
    Finding,
    Letter,
    Rule,
    body_field,
    body_of,
    body_text,
    first,
    join_all,
    once_per_letter,
    part,
    plus,
    whole,
    whole_characters,
)
from dlq.analyzers.rules.stack import STACK_FOLLOWS
from dlq.core.clock import to_micros
from dlq.core.envelopes import Stamps, read_stamps, read_task
from dlq.core.failure_headers import decode_name

_MASSTRANSIT_QUEUE = re.compile(r"^(.+)_(?:error|skipped)$")
_MASSTRANSIT_FAULT = ("MT-Fault-Message", "MT-Fault-ExceptionType")
_NSERVICEBUS = ("NServiceBus.ExceptionInfo.Message", "NServiceBus.ExceptionInfo.ExceptionType")
_NO_ENVELOPE = re.compile(r"\boccurr?ed while deserializing the message")
"""What MassTransit says of a body that it could not read (its message deserializers)."""
_NO_LOGICAL_MESSAGE = re.compile(r"\bwhile attempting to extract logical messages from\b")
"""The same of NServiceBus (DeserializeMessageConnector; ExtractLogicalMessagesBehavior before 5)."""
_UNMARSHALLED = re.compile(r"\b(?:cannot|can't|failed to|could not|error) unmarshal|^(?:json|proto|xml): ")
_SNEAKERS = {"error", "num_attempts", "failed_at"}
_SNEAKERS_QUEUE = re.compile(r"^(.+)-error$")
_DELAYED = ".DQ"
_STAMP = "X-Message-Stamp-Symfony\\Component\\Messenger\\Stamp\\"
"""What the headers of Symfony's stamps begin with; each holds those of one class, oldest first, as JSON."""
_SYMFONY_QUEUE = "failed"
"""Its failure transport in every recipe."""
_SYMFONY_RETRY = re.compile(r"\Adelay_(.+)_\d{1,12}_retry\Z", re.ASCII)
_LONGEST_ERROR = 65_536
_RABBIT_QUEUE = re.compile(r"^(.+)_dlq$")


def as_named(letter: Letter) -> Letter:
    """The letter with its headers called as they were before Camel sent it over JMS."""
    if _are_as_they_were(tuple(letter.headers)):
        return letter
    named = letter._replace(headers={decode_name(name): value for name, value in letter.headers.items()})
    named.fetch_body = letter.fetch_body
    return named


@lru_cache(4096)
def _are_as_they_were(names: tuple[str, ...]) -> bool:
    return all(decode_name(name) is name for name in names)


def _nservicebus_time(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%d %H:%M:%S:%f %z")


_TIMES: Mapping[str, Callable[[str], datetime]] = {
    "MT-Fault-Timestamp": datetime.fromisoformat,
    "NServiceBus.TimeOfFailure": _nservicebus_time,
}


def counted_deaths(letter: Letter) -> int | None:
    """A count of attempts of an application's own, which names it after the broker's."""
    return whole(letter.headers.get("x-death-count"))


@once_per_letter
def _failed_at(letter: Letter) -> int | None:
    """When the framework gave up, in microseconds, where it says so."""
    for name, read in _TIMES.items():
        text = letter.headers.get(name)
        if not text:
            continue
        try:
            moment = read(text)
        except ValueError:
            continue
        return to_micros(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
    return None


@once_per_letter
def is_superseded(letter: Letter) -> bool:
    """A consumer refused it after the framework had parked it (and someone had sent it back): the framework's
    headers are then the older evidence. Only the first death of a pair has its time."""
    last = history(letter).last
    if last is None or last.time is None or last.count != 1:
        return False
    if last.reason not in ("rejected", "delivery_limit"):
        return False
    parked_at = _failed_at(letter)
    return parked_at is not None and last.time > parked_at + 1_000_000


def parked_finding(
    letter: Letter,
    evidence: str | None,
    attempts: int | None = None,
    origin: str | None = None,
    error_class: str | None = None,
    error_message: str | None = None,
    error_text: str | None = None,
) -> Finding:
    """Parked by a framework; refusals before that still tell attempts and origin."""
    refused = history(letter).rejected
    return Finding(
        evidence,
        attempts=attempts if attempts is not None else plus(refused.count if refused else None, 1),
        origin=origin or (refused.queue if refused else None),
        error_class=error_class,
        error_message=error_message,
        error_text=error_text,
    )


def _rejected(
    letter: Letter, evidence: str | None, attempts: int | None = None, origin: str | None = None
) -> Finding:
    last = history(letter).last
    return Finding(evidence, attempts=attempts, origin=origin or (last.queue if last else None))


def _is_rejected(letter: Letter) -> bool:
    last = history(letter).last
    return last is not None and last.reason == "rejected"


def _last_count(letter: Letter) -> int | None:
    last = history(letter).last
    return last.count if last else None


def _shown(letter: Letter, *names: str) -> str | None:
    """The first of these headers that is there, as `name: value`."""
    return next(
        (f"{name}: {letter.headers[name]}" for name in names if letter.headers.get(name) is not None), None
    )


_DELIVERY_ATTEMPT = re.compile(r"deliveryAttempt=(\d{1,9})\b")
"""In the text of the failed message; retry-count counts how often the binder has parked it."""
_CONSUMED = re.compile(r"amqp_consumerQueue=([^\s,;{}\[\]]{1,255})")
"""In the text of the failed message: the queue that it was consumed from."""
READS_FOR_FUNCTION = "FunctionInvocationWrapper.convertInput"
"""The frames in which Spring Cloud Function makes of a message what a function takes, before it is called."""
_UNCONVERTED = (
    "MessageConversionException", "Failed to convert message", "Cannot convert from [", READS_FOR_FUNCTION,
)  # fmt: skip
_WHOLE_MESSAGE = " for GenericMessage ["


def attempts_of_binder(letter: Letter) -> int | None:
    """How often a binder of Spring Cloud Stream had called its function, by the trace that it leaves."""
    return whole(part(_DELIVERY_ATTEMPT, letter.headers.get("x-exception-stacktrace")))


def _spring_origin(letter: Letter) -> str | None:
    """The default exchange routes to the queue of that name; any other routing key names no queue."""
    headers = letter.headers
    told = part(_CONSUMED, headers.get("x-exception-stacktrace")) or part(
        _CONSUMED, headers.get("x-exception-message")
    )
    direct = headers.get("x-original-routingKey") if headers.get("x-original-exchange") == "" else None
    return told or direct


def _stream_queue(letter: Letter) -> str | None:
    key = letter.routing_key
    return key if key is not None and letter.dead_letter_queue == f"{key}.dlq" else None


def _is_unconverted(letter: Letter) -> bool:
    return any(mark in (_of_spring(letter) or "") for mark in _UNCONVERTED)


def _of_spring(letter: Letter) -> str | None:
    """The trace, else the message, that Spring leaves."""
    return first(letter.headers, "x-exception-stacktrace", "x-exception-message")


def _spring_cloud_stream(letter: Letter, _: Facts) -> Finding | None:
    """x-exception-* of the Spring Cloud Stream binder: retry-count, or a queue <destination>.<group>.dlq
    (RabbitMessageChannelBinder)"""
    headers = letter.headers
    if first(headers, "x-exception-message", "x-exception-stacktrace") is None:
        return None
    if headers.get("retry-count") is None and _stream_queue(letter) is None:
        return None
    return None if _is_unconverted(letter) else _of_stream(letter)


def _of_stream(letter: Letter) -> Finding:
    headers = letter.headers
    return parked_finding(
        letter,
        _shown(letter, "x-exception-message", "x-exception-stacktrace"),
        attempts=attempts_of_binder(letter),
        origin=_stream_queue(letter) or _spring_origin(letter),
        error_message=headers.get("x-exception-message"),
        error_text=headers.get("x-exception-stacktrace"),
    )


def _spring_amqp(letter: Letter, _: Facts) -> Finding | None:
    """x-exception-message or x-exception-stacktrace with x-original-exchange and x-original-routingKey
    (Spring AMQP's RepublishMessageRecoverer)"""
    headers = letter.headers
    if not any(headers.get(name) for name in ("x-exception-message", "x-exception-stacktrace")):
        return None
    if first(headers, "x-original-exchange", "x-original-routingKey") is None or _is_unconverted(letter):
        return None
    return parked_finding(
        letter,
        _shown(letter, "x-exception-message", "x-exception-stacktrace"),
        origin=_spring_origin(letter),
        error_message=headers.get("x-exception-message"),
        error_text=headers.get("x-exception-stacktrace"),
    )


def _spring_unread(letter: Letter, _: Facts) -> Finding | None:
    """x-exception-* of Spring with a MessageConversionException or a frame of a function's conversion: the
    listener was not called, since it could not make of the message what it takes"""
    if _of_spring(letter) is None or not _is_unconverted(letter):
        return None
    found = _of_stream(letter)
    return found._replace(error_text=(found.error_text or "").partition(_WHOLE_MESSAGE)[0] or None)


def _whole_trace(text: str | None) -> str | None:
    """A stack trace that says something; people cut it to its first frame, or to dots."""
    first_line = (text or "").lstrip().partition("\n")[0]
    return None if first_line.startswith(("at ", "...", "\u2026")) and ": " not in first_line else text


def _masstransit_origin(letter: Letter) -> str | None:
    address = letter.headers.get("MT-Fault-InputAddress") or ""
    queue = unquote_plus(address.partition("?")[0].rpartition("/")[2])
    return queue or part(_MASSTRANSIT_QUEUE, letter.dead_letter_queue)


def _masstransit_skipped(letter: Letter, _: Facts) -> Finding | None:
    """MT-Reason is dead-letter: the endpoint has no consumer for this message type, and nothing failed
    (MassTransit's DeadLetterTransportFilter); on ActiveMQ the same headers are properties"""
    if letter.headers.get("MT-Reason") != "dead-letter" or is_superseded(letter):
        return None
    # What a fault left before is copied along: its exception and its attempts are not this death's.
    queue = part(_MASSTRANSIT_QUEUE, letter.dead_letter_queue) or _masstransit_origin(letter)
    return Finding("MT-Reason: dead-letter (no consumer for this message type)", origin=queue or None)


def _masstransit_fault(letter: Letter, _: Facts) -> Finding | None:
    """MT-Reason is fault, or an MT-Fault-* header (MassTransit's ExceptionUtil); on ActiveMQ the same
    headers are properties"""
    headers = letter.headers
    if headers.get("MT-Reason") != "fault" and first(headers, *_MASSTRANSIT_FAULT) is None:
        return None
    if is_superseded(letter):
        return None
    # MT-Fault-RetryCount is there only above 0, and each redelivery went through all retries again.
    retried = (whole(headers.get("MT-Fault-RetryCount")) or 0) + 1
    rounds = (whole(headers.get("MT-Redelivery-Count")) or 0) + 1
    return parked_finding(
        letter,
        _shown(letter, "MT-Fault-Message", "MT-Fault-ExceptionType", "MT-Reason"),
        attempts=retried * rounds,
        origin=_masstransit_origin(letter),
        error_class=headers.get("MT-Fault-ExceptionType"),
        error_message=headers.get("MT-Fault-Message"),
        error_text=_whole_trace(headers.get("MT-Fault-StackTrace")),
    )


def _masstransit_unread(letter: Letter, facts: Facts) -> Finding | None:
    """the MT-Fault-Message says that the message could not be deserialized: no consumer was called"""
    is_unread = _NO_ENVELOPE.search(letter.headers.get("MT-Fault-Message") or "")
    return _masstransit_fault(letter, facts) if is_unread else None


def _nservicebus_unread(letter: Letter, facts: Facts) -> Finding | None:
    """a MessageDeserializationException of NServiceBus, or its text: no handler was called"""
    headers = letter.headers
    of_class = headers.get("NServiceBus.ExceptionInfo.ExceptionType") or ""
    text = headers.get("NServiceBus.ExceptionInfo.Message") or ""
    is_unread = of_class.endswith(".MessageDeserializationException") or _NO_LOGICAL_MESSAGE.search(text)
    return _nservicebus(letter, facts) if is_unread else None


def _nservicebus(letter: Letter, _: Facts) -> Finding | None:
    """NServiceBus.FailedQ or NServiceBus.ExceptionInfo.* (FaultsHeaderKeys)"""
    headers = letter.headers
    if first(headers, "NServiceBus.FailedQ", *_NSERVICEBUS) is None or is_superseded(letter):
        return None
    return parked_finding(
        letter,
        _shown(letter, *_NSERVICEBUS, "NServiceBus.FailedQ"),
        origin=(headers.get("NServiceBus.FailedQ") or "").partition("@")[0],
        error_class=headers.get("NServiceBus.ExceptionInfo.ExceptionType"),
        error_message=headers.get("NServiceBus.ExceptionInfo.Message"),
        error_text=_whole_trace(headers.get("NServiceBus.ExceptionInfo.StackTrace")),
    )


def _easynetq(letter: Letter, _: Facts) -> Finding | None:
    """an EasyNetQ Error in the body: type, error queue or ErrorExchange_* (SystemMessages.Error)"""
    is_error = (
        (letter.properties.get("type") or "").startswith("EasyNetQ.SystemMessages.Error")
        or letter.dead_letter_queue == "EasyNetQ_Default_Error_Queue"
        or (letter.exchange or "").startswith("ErrorExchange_")
    )
    error = body_field(letter, "Exception") if is_error else None
    if error is None:
        return None
    # Its older versions name where the message was published, and no queue.
    key, exchange = body_field(letter, "RoutingKey"), body_field(letter, "Exchange")
    queue = body_field(letter, "Queue") or (key if exchange == "" else None)
    place = f"published to {exchange}/{key}: " if exchange and key and not queue else ""
    found = parked_finding(letter, f"{place}{error}", origin=queue, error_text=error)
    return found._replace(origin_exchange=exchange, origin_routing_key=key)


def _rebus(letter: Letter, _: Facts) -> Finding | None:
    """rbs2-error-details (Rebus' Headers)"""
    headers = letter.headers
    if headers.get("rbs2-error-details") is None:
        return None
    return parked_finding(
        letter,
        _shown(letter, "rbs2-error-details"),
        attempts=plus(whole(headers.get("rbs2-delivery-count")), 1),
        origin=headers.get("rbs2-source-queue"),
        error_text=headers["rbs2-error-details"],
    )


def _wolverine(letter: Letter, _: Facts) -> Finding | None:
    """exception-type with exception-message (Wolverine's DeadLetterQueueConstants)"""
    headers = letter.headers
    if headers.get("exception-type") is None or headers.get("exception-message") is None:
        return None
    address = (headers.get("original-destination") or "").partition("?")[0]
    return parked_finding(
        letter,
        _shown(letter, "exception-message"),
        attempts=whole(headers.get("attempts")),
        origin=unquote_plus(address.rpartition("/")[2]),
        error_class=headers["exception-type"],
        error_message=headers["exception-message"],
        error_text=headers.get("exception-stack"),
    )


def _watermill_unread(letter: Letter, facts: Facts) -> Finding | None:
    """reason_poisoned says that the message could not be unmarshalled: the handler was not called"""
    is_unread = _UNMARSHALLED.search(letter.headers.get("reason_poisoned") or "")
    return _watermill(letter, facts) if is_unread else None


def _watermill(letter: Letter, _: Facts) -> Finding | None:
    """reason_poisoned with topic_poisoned or handler_poisoned (Watermill's PoisonQueue)"""
    headers = letter.headers
    reason, topic = headers.get("reason_poisoned"), headers.get("topic_poisoned")
    if reason is None or first(headers, "topic_poisoned", "handler_poisoned") is None:
        return None
    found = parked_finding(
        letter,
        _shown(letter, "reason_poisoned"),
        origin=topic,
        error_message=reason.partition(STACK_FOLLOWS)[0],
        error_text=reason,
    )
    # Over AMQP its topic is the queue that it subscribes to.
    return found._replace(origin_kind="topic") if topic and letter.broker_kind != "rabbitmq" else found


def _stamps(letter: Letter, name: str) -> list[Mapping[str, object]]:
    """Symfony's stamps of a class, oldest first."""
    try:
        found = json.loads(letter.headers.get(_STAMP + name) or "[]")
    except (ValueError, RecursionError):
        return []
    return [stamp for stamp in found if isinstance(stamp, dict)] if isinstance(found, list) else []


def _last_error(letter: Letter, field: str) -> str | None:
    value = next((stamp.get(field) for stamp in reversed(_stamps(letter, "ErrorDetailsStamp"))), None)
    return whole_characters(value) if isinstance(value, str) else None


def _stamps_in_headers(letter: Letter) -> Stamps | None:
    """What Symfony's own serializer, or that of JSON, leaves in headers."""
    if not any(name.startswith(_STAMP) for name in letter.headers):
        return None
    counts = [stamp.get("retryCount") for stamp in _stamps(letter, "RedeliveryStamp")]
    return Stamps(
        bool(_stamps(letter, "SentToFailureTransportStamp")),
        _last_error(letter, "exceptionClass"),
        _last_error(letter, "exceptionMessage"),
        # The last stamp is that of the parking, and counts from 0 again.
        max((count for count in counts if type(count) is int), default=None),
    )


@once_per_letter
def _stamps_in_body(letter: Letter) -> Stamps | None:
    """What PHP's serializer leaves in the body."""
    is_asked = _is_of_php(letter) or letter.dead_letter_queue == _SYMFONY_QUEUE
    return read_stamps(body_of(letter)) if is_asked else None


def _is_of_php(letter: Letter) -> bool:
    """php-amqp calls all that it sends text/plain, and says no encoding."""
    properties = letter.properties
    return properties.get("content_type") == "text/plain" and "content_encoding" not in properties


def _symfony(letter: Letter, _: Facts) -> Finding | None:
    """a SentToFailureTransportStamp of Symfony Messenger, or an ErrorDetailsStamp in a queue called failed;
    each retry has the stamp of an error, too"""
    return _failed_by_symfony(letter, _stamps_in_headers(letter))


def _symfony_in_body(letter: Letter, _: Facts) -> Finding | None:
    """the same stamps in a body that PHP serialized (PhpSerializer), which is read and never unserialized"""
    return _failed_by_symfony(letter, _stamps_in_body(letter))


def _failed_by_symfony(letter: Letter, stamps: Stamps | None) -> Finding | None:
    if stamps is None or not (stamps.is_failed or _is_in_failed(letter, stamps)):
        return None
    return parked_finding(
        letter,
        f"Symfony's failure transport, {stamps.error_message or 'no message'}",
        attempts=plus(stamps.retries, 1),
        origin=_symfony_queue(letter),
        error_class=stamps.error_class,
        error_message=stamps.error_message,
    )


def _is_in_failed(letter: Letter, stamps: Stamps) -> bool:
    is_told = stamps.error_class is not None or stamps.error_message is not None
    return is_told and letter.dead_letter_queue == _SYMFONY_QUEUE


def _symfony_queue(letter: Letter) -> str | None:
    """A retry goes to the queue that it came from, by its name; the queue in which it waits is called after
    exchange, queue and milliseconds (Connection::getRoutingKeyForDelay), and the letter has that key, too."""
    key = letter.routing_key
    waited = (part(_SYMFONY_RETRY, death.queue) for death in letter.deaths if death.reason == "expired")
    return key if key and any(name.endswith(f"_{key}") for name in waited if name) else None


def _symfony_reject(letter: Letter, _: Facts) -> Finding | None:
    """stamps of Symfony Messenger, and the last death is a rejection: without a failure transport it rejects
    what failed as often as it may"""
    stamps = _stamps_in_headers(letter)
    if (stamps is None and not _is_of_php(letter)) or not _is_rejected(letter):
        return None
    stamps = stamps or _stamps_in_body(letter)
    retried = stamps.retries if stamps else None
    if retried is None:
        return None
    return _rejected(letter, join_all("Symfony message, ", death_text(letter)), attempts=retried + 1)


def _rabbit_queue(letter: Letter, _: Facts) -> Finding | None:
    """a header errors with name, message and stack, and no death since: its handler failed as often as it may
    (rabbit-queue's BaseQueueHandler)"""
    told = letter.headers.get("errors")
    if told is None or "x-death" in letter.headers or '"stack"' not in told[:_LONGEST_ERROR]:
        return None
    try:
        error = json.loads(told)
    except (ValueError, RecursionError):
        return None
    fields = error.items() if isinstance(error, dict) else ()
    texts = {name: whole_characters(text) for name, text in fields if isinstance(text, str)}
    if not texts.keys() >= {"name", "message", "stack"}:
        return None
    return parked_finding(
        letter,
        join_all("errors: ", texts["name"], ": ", texts["message"]),
        origin=part(_RABBIT_QUEUE, letter.dead_letter_queue),
        error_class=texts["name"],
        error_message=texts["message"],
        error_text=texts["stack"],
    )


@once_per_letter
def _sneakers_failure(letter: Letter) -> Mapping[str, object]:
    """What Sneakers' Maxretry says of the newest failure: in `retry_info`, newest first where it failed
    before, or in a body that wraps the message (to 2018). Empty where nothing says it, or it died later."""
    told = letter.headers.get("retry_info")
    if told is None and part(_SNEAKERS_QUEUE, letter.dead_letter_queue):
        told = body_text(letter)
    if told is None or letter.deaths:
        return {}
    try:
        found = json.loads(told)
    except (ValueError, RecursionError):
        return {}
    newest = found[0] if isinstance(found, list) and found else found
    return newest if isinstance(newest, dict) and newest.keys() >= _SNEAKERS else {}


def _sneakers_parked(letter: Letter, failure: Mapping[str, object]) -> Finding:
    """Its error queue is called `<queue>-error`, where no option says otherwise."""
    said_of = {name: whole_characters(text) for name, text in failure.items() if isinstance(text, str)}
    attempts = failure["num_attempts"]
    return parked_finding(
        letter,
        join_all("retry_info: ", said_of.get("error", "no error")),
        attempts=attempts if isinstance(attempts, int) else None,
        origin=part(_SNEAKERS_QUEUE, letter.dead_letter_queue),
        error_class=said_of.get("error_class"),
        error_message=said_of.get("error_message"),
    )


def _sneakers(letter: Letter, _: Facts) -> Finding | None:
    """error, num_attempts and error_class in retry_info or the body (Sneakers' handlers/maxretry.rb; also
    Kicks)"""
    failure = _sneakers_failure(letter)
    return _sneakers_parked(letter, failure) if failure.get("error_class") else None


def _sneakers_reject(letter: Letter, _: Facts) -> Finding | None:
    """the same without error_class: the worker called reject! once more than retry_max_times allows"""
    failure = _sneakers_failure(letter)
    return _sneakers_parked(letter, failure) if failure else None


def _brighter(letter: Letter, _: Facts) -> Finding | None:
    """rejectionReason with originalTopic: Brighter's own dead-letter channel on RocketMQ
    (RocketMessageConsumer); to RabbitMQ it only rejects"""
    properties = letter.properties
    reason, topic = properties.get("rejectionReason"), properties.get("originalTopic")
    if reason is None or topic is None:
        return None
    found = parked_finding(
        letter,
        join_all("rejectionReason: ", reason),
        attempts=plus(whole(properties.get("HandledCount")), 1),
        origin=topic,
        error_message=properties.get("rejectionMessage"),
    )
    return found._replace(origin_kind="topic")


def _is_dramatiq(letter: Letter) -> bool:
    return letter.dead_letter_queue.endswith(".XQ")


def _dramatiq_attempts(letter: Letter) -> int | None:
    return plus(whole(body_field(letter, "options", "retries")), 1)


def _dramatiq_queue(letter: Letter) -> str | None:
    last = history(letter).last
    return last.queue.removesuffix(_DELAYED) if last and last.queue is not None else None


def _dramatiq(letter: Letter, _: Facts) -> Finding | None:
    """a Dramatiq dead-letter queue (<queue>.XQ) and options.traceback in the body, which is that of the
    attempt before the last (middleware.retries)"""
    trace = body_field(letter, "options", "traceback") if _is_dramatiq(letter) else None
    if trace is None:
        return None
    found = parked_finding(
        letter,
        f"traceback of the attempt before the last: {trace}",
        attempts=_dramatiq_attempts(letter),
        origin=_dramatiq_queue(letter) or body_field(letter, "queue_name"),
        error_text=trace,
    )
    return found._replace(stale_evidence=True)


def _camel(letter: Letter, _: Facts) -> Finding | None:
    """CamelExceptionCaught or CamelFailure* copied into headers by the route (Camel's exchange properties)"""
    shown = _shown(letter, "CamelExceptionCaught", "CamelFailureEndpoint", "CamelFailureRouteId")
    if shown is None:
        return None
    return parked_finding(letter, shown, error_text=letter.headers.get("CamelExceptionCaught"))


def _dramatiq_reject(letter: Letter, _: Facts) -> Finding | None:
    """a Dramatiq dead-letter queue (<queue>.XQ) without a traceback: the first failure was the last"""
    if not _is_dramatiq(letter) or not _is_rejected(letter):
        return None
    attempts = _dramatiq_attempts(letter)
    return _rejected(
        letter,
        death_text(letter),
        attempts=attempts if attempts is not None else _last_count(letter),
        origin=_dramatiq_queue(letter),
    )


def _celery_reject(letter: Letter, _: Facts) -> Finding | None:
    """headers task and id of Celery, and the last death is a rejection; Celery leaves no exception
    (worker.request)"""
    headers = letter.headers
    if headers.get("task") is None or headers.get("id") is None or not _is_rejected(letter):
        return None
    attempts = plus(whole(headers.get("retries")), 1)
    return _rejected(
        letter,
        join_all("Celery task ", headers["task"], ", ", death_text(letter)),
        attempts=attempts if attempts is not None else _last_count(letter),
    )


def _celery_in_body(letter: Letter, _: Facts) -> Finding | None:
    """a task of Celery's first protocol in the body, and the last death is a rejection; its retries are
    counted there (as_task_v1)"""
    is_of_kombu = {"correlation_id", "content_encoding"} <= letter.properties.keys()
    if not is_of_kombu or "task" in letter.headers or not _is_rejected(letter):
        return None
    task = read_task(body_of(letter))
    name, retries = (task.get("task"), task.get("retries")) if task else (None, None)
    if not isinstance(name, str) or type(retries) is not int:
        return None
    told = join_all("Celery task ", whole_characters(name), ", ", death_text(letter))
    return _rejected(letter, told, attempts=retries + 1)


def _laravel_attempts(letter: Letter) -> int | None:
    try:
        told = json.loads(letter.headers.get("laravel") or "null")
    except (ValueError, RecursionError):
        return None
    earlier = told.get("attempts") if isinstance(told, dict) else None
    return earlier + 1 if isinstance(earlier, int) else None


def _laravel_reject(letter: Letter, _: Facts) -> Finding | None:
    """a header laravel with attempts, those before this one, and the last death is a rejection
    (laravel-queue-rabbitmq's RabbitMQJob); the exception is only in failed_jobs"""
    attempts = _laravel_attempts(letter)
    if attempts is None or not _is_rejected(letter):
        return None
    return _rejected(letter, join_all("Laravel job, ", death_text(letter)), attempts=attempts)


def _brighter_reject(letter: Letter, _: Facts) -> Finding | None:
    """HandledCount (the deliveries that were requeued) and a MessageType MT_*, and the last death is a
    rejection (Brighter's RmqMessageConsumer, which keeps the reason for its log)"""
    headers = letter.headers
    handled = whole(headers.get("HandledCount"))
    if (
        handled is None
        or not (headers.get("MessageType") or "").startswith("MT_")
        or not _is_rejected(letter)
    ):
        return None
    return _rejected(letter, join_all("Brighter message, ", death_text(letter)), attempts=handled + 1)


def _is_shine(letter: Letter) -> bool:
    return (letter.headers.get("__TypeId__") or "").endswith(".EventMessage")


def _shine_mq(letter: Letter, _: Facts) -> Finding | None:
    """a shine-mq EventMessage (__TypeId__), refused after its retries; their count is only in its Redis
    (DistributedTransAspect)"""
    if not _is_shine(letter) or not _is_rejected(letter):
        return None
    return _rejected(letter, join_all("shine-mq EventMessage, ", death_text(letter)))


@once_per_letter
def find_coordinator(letter: Letter) -> tuple[str | None, str | None] | None:
    """Of a shine-mq message: its producer's coordinator, and the work (checkBackId) that it told of."""
    if not _is_shine(letter):
        return None
    work = body_field(letter, "data", "checkBackId") or body_field(letter, "msg", "checkBackId")
    return body_field(letter, "coordinator"), work


RULES: tuple[Rule, ...] = (
    Rule(_spring_cloud_stream, "application_error", "framework"),
    Rule(_spring_amqp, "application_error", "framework"),
    Rule(_spring_unread, "unreadable", "deserialization"),
    Rule(_masstransit_skipped, "unroutable", "framework"),
    Rule(_masstransit_unread, "unreadable", "deserialization"),
    Rule(_masstransit_fault, "application_error", "framework"),
    Rule(_nservicebus_unread, "unreadable", "deserialization"),
    Rule(_nservicebus, "application_error", "framework"),
    Rule(_easynetq, "application_error", "framework"),
    Rule(_rebus, "application_error", "framework"),
    Rule(_wolverine, "application_error", "framework"),
    Rule(_watermill_unread, "unreadable", "deserialization"),
    Rule(_watermill, "application_error", "framework"),
    Rule(_symfony, "application_error", "framework"),
    Rule(_symfony_in_body, "application_error", "framework"),
    Rule(_rabbit_queue, "application_error", "framework"),
    Rule(_sneakers, "application_error", "framework"),
    Rule(_sneakers_reject, "poison_ack", "framework"),
    Rule(_brighter, "application_error", "framework"),
    Rule(_dramatiq, "application_error", "framework"),
    Rule(_camel, "application_error", "framework"),
)

REJECTS: tuple[Rule, ...] = (
    Rule(_dramatiq_reject, "poison_ack", "reject"),
    Rule(_celery_reject, "poison_ack", "reject"),
    Rule(_celery_in_body, "poison_ack", "reject"),
    Rule(_symfony_reject, "poison_ack", "reject"),
    Rule(_laravel_reject, "poison_ack", "reject"),
    Rule(_brighter_reject, "poison_ack", "reject"),
    Rule(_shine_mq, "poison_ack", "reject"),
)
