"""What frameworks leave on a letter when they park it: rows of `frameworks` in core, and what no row tells.

Framework evidence wins over an older death history, which then still gives attempts and origin.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache, wraps
from typing import Any

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
from dlq.core.clock import to_micros
from dlq.core.headers import frameworks as rows
from dlq.core.headers.envelopes import Stamps, read_stamps, read_task
from dlq.core.headers.failure_headers import decode_name
from dlq.core.headers.frameworks import Framework, Told

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
    """Return the letter with its headers called as they were before Camel sent it over JMS."""
    if _are_as_they_were(tuple(letter.headers)):
        return letter
    named = letter._replace(headers={decode_name(name): value for name, value in letter.headers.items()})
    named.fetch_body = letter.fetch_body
    return named


@lru_cache(4096)
def _are_as_they_were(names: tuple[str, ...]) -> bool:
    return all(decode_name(name) is name for name in names)


_TIMES: Mapping[str, Callable[[str], datetime]] = {
    "MT-Fault-Timestamp": datetime.fromisoformat,
    "NServiceBus.TimeOfFailure": lambda text: datetime.strptime(text, "%Y-%m-%d %H:%M:%S:%f %z"),
}


def counted_deaths(letter: Letter) -> int | None:
    """Return a count of attempts of an application's own, which names it after the broker's."""
    return whole(letter.headers.get("x-death-count"))


@once_per_letter
def _failed_at(letter: Letter) -> int | None:
    """Return when the framework gave up, in microseconds, where it says so."""
    for name, read in _TIMES.items():
        with suppress(ValueError):
            if text := letter.headers.get(name):
                moment = read(text)
                return to_micros(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
    return None


@once_per_letter
def is_superseded(letter: Letter) -> bool:
    """Return whether a consumer refused it after it was parked (and someone had sent it back): the
    framework's headers are then the older evidence. Only the first death of a pair has its time."""
    last = history(letter).last
    if last is None or last.time is None or last.count != 1:
        return False
    if last.reason not in ("rejected", "delivery_limit"):
        return False
    parked_at = _failed_at(letter)
    return parked_at is not None and last.time > parked_at + 1_000_000


def complete_parked(letter: Letter, found: Finding) -> Finding:
    """Complete the finding of a parked letter: refusals before that still tell attempts and origin."""
    refused = history(letter).rejected
    attempts, queue = (plus(refused.count, 1), refused.queue) if refused else (None, None)
    attempts = attempts if found.attempts is None else found.attempts
    return found._replace(attempts=attempts, origin=found.origin or queue)


def _reject(
    ask: Callable[[Letter], tuple[str, int | None] | None],
) -> Callable[[Letter, Facts], Finding | None]:
    """Return the rule of a framework that leaves nothing but a refusal: whose letter it is, and how often it
    was tried."""

    @wraps(ask)
    def find(letter: Letter, _: Facts) -> Finding | None:
        told = ask(letter)
        if told is None or not _is_rejected(letter):
            return None
        last = history(letter).last
        evidence = join_all(told[0], death_text(letter))
        return Finding(evidence, attempts=told[1], origin=last.queue if last else None)

    return find


def _is_rejected(letter: Letter) -> bool:
    last = history(letter).last
    return last is not None and last.reason == "rejected"


def _last_count(letter: Letter) -> int | None:
    last = history(letter).last
    return last.count if last else None


def read_count(texts: Mapping[str, str], told: Told) -> int | None:
    """Return what these headers, or properties, say there, as a number."""
    return plus(whole(told.read(texts)), told.added)


def quote_first(texts: Mapping[str, str], names: Sequence[str]) -> str | None:
    """Return the first of these that holds something, as `name: value`."""
    for name in names:
        if text := texts.get(name):
            return f"{name}: {text}"
    return None


def outer_class(texts: Mapping[str, str], classes: Told) -> str | None:
    """Return what wraps the root cause, where that has a name of its own."""
    names = classes.names
    is_told = len(names) > 1 and "cause" in names[0] and bool(texts.get(names[0]))
    return texts.get(names[1]) if is_told else None


def is_told(texts: Mapping[str, str], row: Framework) -> bool:
    """Return whether what a framework leaves is there."""
    if first(texts, *row.needs[0]) is None:
        return False
    return len(row.needs) == 1 or all(first(texts, *more) is not None for more in row.needs[1:])


def is_unread(texts: Mapping[str, str], row: Framework) -> bool:
    """Return whether it says that the message could not be read."""
    for name, marks in row.unread:
        text = texts.get(name)
        if text is not None and any(mark in text for mark in marks):
            return True
    return False


def _read_row(
    letter: Letter,
    row: Framework,
    attempts: int | None = None,
    origin: str | None = None,
    texts: Mapping[str, str] | None = None,
) -> Finding | None:
    """Return what a framework says of a letter that it parked; None: nothing, or the letter died later.
    `attempts`, `origin`: what the row does not tell."""
    texts = letter.headers if texts is None else texts
    if not is_told(texts, row) or is_superseded(letter):
        return None
    found = Finding(
        quote_first(texts, row.evidence),
        attempts=read_count(texts, row.attempts) if attempts is None else attempts,
        origin=row.origin.read(texts) or part(row.dead_letters, letter.dead_letter_queue) or origin,
        error_class=row.classes.read(texts),
        error_message=row.messages.read(texts),
        error_text=row.stacks.read(texts),
        outer_error=outer_class(texts, row.classes),
    )
    return complete_parked(letter, found)


_Reading = Callable[[Letter, Framework], Finding | None]


def rules_of(row: Framework, failed: _Reading = _read_row, unread: _Reading | None = None) -> Sequence[Rule]:
    """Return the rule of a row, and before it that for what could not be read, where it has one."""
    own = _ask(row, unread or _unread_of(failed), row.unread_rule, row.unread_when)
    return [
        *([Rule(own, "unreadable", "deserialization")] if row.unread_rule else ()),
        Rule(_ask(row, failed, row.rule, row.when), "application_error", "framework"),
    ]


def _unread_of(failed: _Reading) -> _Reading:
    return lambda letter, row: failed(letter, row) if is_unread(letter.headers, row) else None


def _ask(
    row: Framework, reading: _Reading, rule: str, when: str
) -> Callable[[Letter, Facts], Finding | None]:
    def ask(letter: Letter, _: Facts) -> Finding | None:
        return reading(letter, row)

    ask.__name__, ask.__doc__ = rule, when
    return ask


def _of_topic(letter: Letter, found: Finding | None) -> Finding | None:
    """Name the origin a topic, but over AMQP, where it is the queue that the framework subscribes to."""
    if found is None or not found.origin or letter.broker_kind == "rabbitmq":
        return found
    return found._replace(origin_kind="topic")


def _document(text: str | None) -> Any:
    """Return a text of JSON; None for every other one."""
    try:
        return json.loads(text or "null")
    except (ValueError, RecursionError):
        return None


def _dict(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str | None:
    return whole_characters(value) if isinstance(value, str) and value else None


_CONSUMED = re.compile(r"amqp_consumerQueue=([^\s,;{}\[\]]{1,255})")
"""In the text of the failed message: the queue that it was consumed from."""
_WHOLE_MESSAGE = " for GenericMessage ["


def _spring_origin(letter: Letter) -> str | None:
    """Return its queue: the default exchange routes to that of the key's name; any other key names none."""
    headers = letter.headers
    told = part(_CONSUMED, headers.get("x-exception-stacktrace")) or part(
        _CONSUMED, headers.get("x-exception-message")
    )
    direct = headers.get("x-original-routingKey") if headers.get("x-original-exchange") == "" else None
    return told or direct


def _stream_queue(letter: Letter) -> str | None:
    key = letter.routing_key
    return key if key is not None and letter.dead_letter_queue == f"{key}.dlq" else None


def _spring_cloud_stream(letter: Letter, _: Facts) -> Finding | None:
    """x-exception-* of the Spring Cloud Stream binder: retry-count, or a queue <destination>.<group>.dlq
    (RabbitMessageChannelBinder)"""
    headers = letter.headers
    if not is_told(headers, rows.SPRING_AMQP) or is_unread(headers, rows.SPRING_AMQP):
        return None
    is_of_stream = headers.get("retry-count") is not None or _stream_queue(letter) is not None
    return _of_stream(letter) if is_of_stream else None


def _of_stream(letter: Letter) -> Finding | None:
    attempts = read_count(letter.headers, rows.DELIVERY_ATTEMPT)
    return _read_row(letter, rows.SPRING_AMQP, attempts, _stream_queue(letter) or _spring_origin(letter))


def _spring_amqp(letter: Letter, _: Facts) -> Finding | None:
    """x-exception-message or x-exception-stacktrace with x-original-exchange and x-original-routingKey
    (Spring AMQP's RepublishMessageRecoverer)"""
    headers = letter.headers
    if first(headers, "x-original-exchange", "x-original-routingKey") is None:
        return None
    if quote_first(headers, rows.SPRING_AMQP.evidence) is None or is_unread(headers, rows.SPRING_AMQP):
        return None
    return _read_row(letter, rows.SPRING_AMQP, origin=_spring_origin(letter))


def _spring_unread(letter: Letter, _: Facts) -> Finding | None:
    """x-exception-* of Spring with a MessageConversionException or a frame of a function's conversion: the
    listener was not called, since it could not make of the message what it takes"""
    found = _of_stream(letter) if is_unread(letter.headers, rows.SPRING_AMQP) else None
    text = found and (found.error_text or "").partition(_WHOLE_MESSAGE)[0]
    return found and found._replace(error_text=text or None)


def _masstransit_skipped(letter: Letter, _: Facts) -> Finding | None:
    """MT-Reason is dead-letter: the endpoint has no consumer for this message type, and nothing failed
    (MassTransit's DeadLetterTransportFilter); on ActiveMQ the same headers are properties"""
    if letter.headers.get("MT-Reason") != "dead-letter" or is_superseded(letter):
        return None
    # What a fault left before is copied along: its exception and its attempts are not this death's.
    row = rows.MASSTRANSIT
    queue = part(row.dead_letters, letter.dead_letter_queue) or row.origin.read(letter.headers)
    return Finding("MT-Reason: dead-letter (no consumer for this message type)", origin=queue)


def _masstransit(letter: Letter, row: Framework) -> Finding | None:
    headers = letter.headers
    if headers.get("MT-Reason") != "fault" and first(headers, *row.evidence[:2]) is None:
        return None
    # MT-Fault-RetryCount is there only above 0, and each redelivery went through all retries again.
    retried = (whole(headers.get("MT-Fault-RetryCount")) or 0) + 1
    rounds = (whole(headers.get("MT-Redelivery-Count")) or 0) + 1
    return _read_row(letter, row, retried * rounds)


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
    found = Finding(
        f"{place}{error}", origin=queue, origin_exchange=exchange, origin_routing_key=key, error_text=error
    )
    return complete_parked(letter, found)


def _watermill(letter: Letter, row: Framework) -> Finding | None:
    return _of_topic(letter, _read_row(letter, row))


def _watermill_unread(letter: Letter, row: Framework) -> Finding | None:
    is_unmarshalled = _UNMARSHALLED.search(letter.headers.get("reason_poisoned") or "")
    return _watermill(letter, row) if is_unmarshalled else None


def _stamps(letter: Letter, name: str) -> list[Mapping[str, object]]:
    """Return Symfony's stamps of a class, oldest first."""
    found = _document(letter.headers.get(_STAMP + name))
    return [stamp for stamp in found if isinstance(stamp, dict)] if isinstance(found, list) else []


def _last_error(letter: Letter, field: str) -> str | None:
    value = next((stamp.get(field) for stamp in reversed(_stamps(letter, "ErrorDetailsStamp"))), None)
    return whole_characters(value) if isinstance(value, str) else None


def _stamps_in_headers(letter: Letter) -> Stamps | None:
    """Return what Symfony's own serializer, or that of JSON, leaves in headers."""
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
    """Return what PHP's serializer leaves in the body."""
    is_asked = _is_of_php(letter) or letter.dead_letter_queue == _SYMFONY_QUEUE
    return read_stamps(body_of(letter)) if is_asked else None


def _is_of_php(letter: Letter) -> bool:
    """Return whether php-amqp sent it, which calls all text/plain, and says no encoding."""
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
    if stamps is None:
        return None
    is_told = stamps.error_class is not None or stamps.error_message is not None
    if not stamps.is_failed and not (is_told and letter.dead_letter_queue == _SYMFONY_QUEUE):
        return None
    found = Finding(
        f"Symfony's failure transport, {stamps.error_message or 'no message'}",
        attempts=plus(stamps.retries, 1),
        origin=_symfony_queue(letter),
        error_class=stamps.error_class,
        error_message=stamps.error_message,
    )
    return complete_parked(letter, found)


def _symfony_queue(letter: Letter) -> str | None:
    """Return the queue to which a retry goes back, by its name; the one in which it waits is called after
    exchange, queue and milliseconds (Connection::getRoutingKeyForDelay), and the letter has that key, too."""
    key = letter.routing_key
    waited = (part(_SYMFONY_RETRY, death.queue) for death in letter.deaths if death.reason == "expired")
    return key if key and any(name.endswith(f"_{key}") for name in waited if name) else None


@_reject
def _symfony_reject(letter: Letter) -> tuple[str, int] | None:
    """stamps of Symfony Messenger, and the last death is a rejection: without a failure transport it rejects
    what failed as often as it may"""
    stamps = _stamps_in_headers(letter)
    if stamps is None and _is_of_php(letter) and _is_rejected(letter):
        stamps = _stamps_in_body(letter)
    return None if stamps is None or stamps.retries is None else ("Symfony message, ", stamps.retries + 1)


def _rabbit_queue(letter: Letter, _: Facts) -> Finding | None:
    """a header errors with name, message and stack, and no death since: its handler failed as often as it may
    (rabbit-queue's BaseQueueHandler)"""
    told = letter.headers.get("errors")
    if told is None or "x-death" in letter.headers or '"stack"' not in told[:_LONGEST_ERROR]:
        return None
    fields = _dict(_document(told)).items()
    texts = {name: whole_characters(text) for name, text in fields if isinstance(text, str)}
    if not texts.keys() >= {"name", "message", "stack"}:
        return None
    found = Finding(
        join_all("errors: ", texts["name"], ": ", texts["message"]),
        origin=part(_RABBIT_QUEUE, letter.dead_letter_queue),
        error_class=texts["name"],
        error_message=texts["message"],
        error_text=texts["stack"],
    )
    return complete_parked(letter, found)


@once_per_letter
def _sneakers_failure(letter: Letter) -> Mapping[str, object]:
    """Return what Sneakers' Maxretry says of the newest failure: in `retry_info`, newest first where it
    failed before, or in a body that wraps the message (to 2018). Empty where nothing says it, or it died
    later."""
    told = letter.headers.get("retry_info")
    if told is None and part(_SNEAKERS_QUEUE, letter.dead_letter_queue):
        told = body_text(letter)
    if told is None or letter.deaths:
        return {}
    found = _document(told)
    newest = found[0] if isinstance(found, list) and found else found
    return newest if isinstance(newest, dict) and newest.keys() >= _SNEAKERS else {}


def _sneakers_parked(letter: Letter, failure: Mapping[str, object]) -> Finding:
    """Return the finding; its error queue is called `<queue>-error`, where no option says otherwise."""
    said_of = {name: whole_characters(text) for name, text in failure.items() if isinstance(text, str)}
    attempts = failure["num_attempts"]
    found = Finding(
        join_all("retry_info: ", said_of.get("error", "no error")),
        attempts=attempts if isinstance(attempts, int) else None,
        origin=part(_SNEAKERS_QUEUE, letter.dead_letter_queue),
        error_class=said_of.get("error_class"),
        error_message=said_of.get("error_message"),
    )
    return complete_parked(letter, found)


def _sneakers(letter: Letter, _: Facts) -> Finding | None:
    """error, num_attempts and error_class in retry_info or the body (Sneakers' handlers/maxretry.rb; also
    Kicks)"""
    failure = _sneakers_failure(letter)
    return _sneakers_parked(letter, failure) if failure.get("error_class") else None


def _sneakers_reject(letter: Letter, _: Facts) -> Finding | None:
    """the same without error_class: the worker called reject! once more than retry_max_times allows"""
    failure = _sneakers_failure(letter)
    return _sneakers_parked(letter, failure) if failure else None


def _brighter(letter: Letter, row: Framework) -> Finding | None:
    return _of_topic(letter, _read_row(letter, row, texts=letter.properties))


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
    found = Finding(
        f"traceback of the attempt before the last: {trace}",
        stale_evidence=True,
        attempts=_dramatiq_attempts(letter),
        origin=_dramatiq_queue(letter) or body_field(letter, "queue_name"),
        error_text=trace,
    )
    return complete_parked(letter, found)


def _rascal(letter: Letter, _: Facts) -> Finding | None:
    """a header rascal with an error or a recovery: it was republished until its attempts were used up, or
    nacked for good (Rascal's SubscriberError)"""
    told = _dict(_document(letter.headers.get("rascal")))
    error, recovery = _dict(told.get("error")), _dict(told.get("recovery"))
    if not error and not recovery:
        return None
    queue = _text(told.get("originalQueue")) or next(iter(recovery), None)
    republished = _dict(recovery.get(queue or "")).get("republished")
    message, code = _text(error.get("message")), _text(error.get("code"))
    parts = (f"rascal: {message or 'no message'}", f"code {code}" if code else None)
    found = Finding(
        ", ".join(text for text in parts if text),
        attempts=plus(republished, 1) if type(republished) is int else None,
        origin=queue,
        origin_exchange=_text(told.get("originalExchange")),
        origin_routing_key=_text(told.get("originalRoutingKey")),
        error_class=_text(error.get("name")),
        error_message=message,
        error_text=_text(error.get("stack")),
    )
    return complete_parked(letter, found)


def _moleculer(letter: Letter, row: Framework) -> Finding | None:
    channel, group = letter.headers.get("x-original-channel"), letter.headers.get("x-original-group")
    found = _read_row(letter, row) if channel and group else None
    if found is None or letter.broker_kind != "rabbitmq":
        return _of_topic(letter, found)
    return found._replace(origin=f"{group}.{channel}")


def _over_jms(letter: Letter, row: Framework) -> Finding | None:
    # Who looks at a column is asked of every letter.
    return _read_row(letter, row, origin=letter.origin) if is_told(letter.headers, row) else None


def _mats_refused(letter: Letter, _: Facts) -> Finding | None:
    """mats_dlq_Refused: a stage of Mats3 refused it (MatsRefuseMessageException)"""
    is_refused = (letter.headers.get("mats_dlq_Refused") or "false").lower() != "false"
    return _over_jms(letter, rows.MATS) if is_refused else None


def _mats_failed(letter: Letter, _: Facts) -> Finding | None:
    """mats_dlq_Exception: a stage of Mats3 threw as often as it may, and moved it here by itself"""
    return _over_jms(letter, rows.MATS) if letter.headers.get("mats_dlq_Exception") else None


def _mats_received(letter: Letter, _: Facts) -> Finding | None:
    """mats_dlq_DeliveryCount without an exception: Mats3 found it delivered too often, before its stage saw
    it"""
    return _over_jms(letter, rows.MATS)


def _dramatiq_reject(letter: Letter, _: Facts) -> Finding | None:
    """a Dramatiq dead-letter queue (<queue>.XQ) without a traceback: the first failure was the last"""
    if not _is_dramatiq(letter) or not _is_rejected(letter):
        return None
    attempts = _dramatiq_attempts(letter)
    return Finding(
        death_text(letter),
        attempts=attempts if attempts is not None else _last_count(letter),
        origin=_dramatiq_queue(letter),
    )


@_reject
def _celery_reject(letter: Letter) -> tuple[str, int | None] | None:
    """headers task and id of Celery, and the last death is a rejection; Celery leaves no exception
    (worker.request)"""
    task = letter.headers.get("task")
    if task is None or letter.headers.get("id") is None:
        return None
    attempts = plus(whole(letter.headers.get("retries")), 1)
    return f"Celery task {task}, ", attempts if attempts is not None else _last_count(letter)


@_reject
def _celery_in_body(letter: Letter) -> tuple[str, int] | None:
    """a task of Celery's first protocol in the body, and the last death is a rejection; its retries are
    counted there (as_task_v1)"""
    is_of_kombu = {"correlation_id", "content_encoding"} <= letter.properties.keys()
    if not is_of_kombu or "task" in letter.headers or not _is_rejected(letter):
        return None
    task = read_task(body_of(letter)) or {}
    name, retries = task.get("task"), task.get("retries")
    if not isinstance(name, str) or type(retries) is not int:
        return None
    return f"Celery task {whole_characters(name)}, ", retries + 1


@_reject
def _laravel_reject(letter: Letter) -> tuple[str, int] | None:
    """a header laravel with attempts, those before this one, and the last death is a rejection
    (laravel-queue-rabbitmq's RabbitMQJob); the exception is only in failed_jobs"""
    earlier = _dict(_document(letter.headers.get("laravel"))).get("attempts")
    return ("Laravel job, ", earlier + 1) if isinstance(earlier, int) else None


@_reject
def _brighter_reject(letter: Letter) -> tuple[str, int | None] | None:
    """HandledCount (the deliveries that were requeued) and a MessageType MT_*, and the last death is a
    rejection (Brighter's RmqMessageConsumer, which keeps the reason for its log)"""
    attempts = read_count(letter.headers, rows.BRIGHTER.attempts)
    is_of_brighter = (letter.headers.get("MessageType") or "").startswith("MT_")
    return ("Brighter message, ", attempts) if attempts is not None and is_of_brighter else None


def _is_shine(letter: Letter) -> bool:
    return (letter.headers.get("__TypeId__") or "").endswith(".EventMessage")


@_reject
def _shine_mq(letter: Letter) -> tuple[str, None] | None:
    """a shine-mq EventMessage (__TypeId__), refused after its retries; their count is only in its Redis
    (DistributedTransAspect)"""
    return ("shine-mq EventMessage, ", None) if _is_shine(letter) else None


@once_per_letter
def find_coordinator(letter: Letter) -> tuple[str | None, str | None] | None:
    """Find a shine-mq message's coordinator at its producer, and the work (checkBackId) that it told of."""
    if not _is_shine(letter):
        return None
    work = body_field(letter, "data", "checkBackId") or body_field(letter, "msg", "checkBackId")
    return body_field(letter, "coordinator"), work


RULES: tuple[Rule, ...] = (
    Rule(_spring_cloud_stream, "application_error", "framework"),
    Rule(_spring_amqp, "application_error", "framework"),
    Rule(_spring_unread, "unreadable", "deserialization"),
    Rule(_masstransit_skipped, "unroutable", "framework"),
    *rules_of(rows.MASSTRANSIT, _masstransit),
    *rules_of(rows.NSERVICEBUS),
    Rule(_easynetq, "application_error", "framework"),
    *rules_of(rows.REBUS),
    *rules_of(rows.WOLVERINE),
    *rules_of(rows.WATERMILL, _watermill, _watermill_unread),
    Rule(_symfony, "application_error", "framework"),
    Rule(_symfony_in_body, "application_error", "framework"),
    Rule(_rabbit_queue, "application_error", "framework"),
    Rule(_sneakers, "application_error", "framework"),
    Rule(_sneakers_reject, "poison_ack", "framework"),
    *rules_of(rows.BRIGHTER, _brighter),
    Rule(_dramatiq, "application_error", "framework"),
    *rules_of(rows.CAMEL),
    Rule(_rascal, "application_error", "framework"),
    *rules_of(rows.MOLECULER, _moleculer),
    Rule(_mats_refused, "poison_ack", "framework"),
    Rule(_mats_failed, "application_error", "framework"),
    Rule(_mats_received, "redelivery_exhausted", "framework"),
    *rules_of(rows.SMALLRYE_JMS, _over_jms),
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
