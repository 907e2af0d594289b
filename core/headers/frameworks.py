"""What frameworks leave on a letter that they gave up: a row each, which rules read and replays take away.

Names are those of the frameworks' sources. What no row can tell (a record inside of a header, a body) is a
function in `dlq.analyzers.rules`; what a replay takes away of it stands here all the same.
"""

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple
from urllib.parse import unquote_plus

from dlq.core.headers import kafka_headers as kafka
from dlq.core.headers.kafka_headers import TRACE_OF_BINDER, OriginHeaders

_Names = tuple[str, ...]


class Inside(NamedTuple):
    """What of a header is taken away and what is set back to 0, as keys from its value inwards (`*` is any,
    none the value itself); the rest of it stays."""

    gone: tuple[_Names, ...] = ()
    zero: tuple[_Names, ...] = ()

    def join(self, other: "Inside") -> "Inside":
        """Return what either takes away or sets back."""
        return Inside(self.gone + other.gone, self.zero + other.zero)

    def is_gone(self, at: _Names) -> bool:
        """Return whether the value there is taken away."""
        return _meets(self.gone, at)

    def is_zero(self, at: _Names) -> bool:
        """Return whether the number there is set back."""
        return _meets(self.zero, at)

    def __str__(self) -> str:
        """Return the paths inside, for people."""
        told = (".".join(path) for path in dict.fromkeys((*self.gone, *self.zero)))
        return f"without {', '.join(told)}"


def _meets(paths: Sequence[_Names], at: _Names) -> bool:
    return any(
        len(path) == len(at) and all(x in ("*", y) for x, y in zip(path, at, strict=True)) for path in paths
    )


_ITSELF = Inside(zero=((),))


class Trace(NamedTuple):
    """Headers that a replay takes away."""

    names: str
    """A pattern of their whole names."""
    inside: Inside | None = None
    """None: they go."""
    beside: _Names = ()
    """Headers without which such a name is not the framework's."""
    always: bool = False
    """What it is compared with is a broker's and always goes, so it goes with it."""

    def is_of(self, name: str) -> bool:
        """Return whether a header of this name is meant."""
        return re.fullmatch(self.names, name, re.DOTALL) is not None


class Told(NamedTuple):
    """Where something is said: of several headers the first that holds something."""

    names: _Names
    part: re.Pattern[str] | None = None
    """What of the value counts, its first group."""
    is_uri: bool = False
    """Of the value the last part of its path counts."""
    added: int = 0
    """To a number."""

    def read(self, texts: Mapping[str, str]) -> str | None:
        """Return what these headers, or properties, say there."""
        for name in self.names:
            if text := texts.get(name):
                return text if self.part is None and not self.is_uri else self._part_of(text)
        return None

    def _part_of(self, text: str) -> str | None:
        if self.is_uri:
            return unquote_plus(text.partition("?")[0].rpartition("/")[2]) or None
        found = self.part.search(text) if self.part else None
        return (found[1] or None) if found else None


def _as_told(names: str | Told) -> Told:
    return Told(tuple(names.split())) if isinstance(names, str) else names


class Framework:
    """One framework; nothing where it does not tell, or a rule of its own reads it."""

    def __init__(
        self,
        rule: str = "",
        when: str = "",
        unread_rule: str = "",
        unread_when: str = "",
        *,
        classes: str = "",
        messages: str | Told = "",
        stacks: str | Told = "",
        evidence: str = "",
        needs: str = "",
        unread: Mapping[str, _Names] = MappingProxyType({}),
        attempts: str | Told = "",
        origin: str | Told = "",
        dead_letters: str = r"\Z.",
        places: Sequence[OriginHeaders] = (),
        gone: str | Sequence[Trace] = (),
    ) -> None:
        self.rule, self.when = rule, when
        """When a rule speaks is told to people."""
        self.unread_rule, self.unread_when = unread_rule, unread_when
        self.classes, self.messages, self.stacks = _as_told(classes), _as_told(messages), _as_told(stacks)
        said = (*self.messages.names, *self.classes.names, *self.stacks.names)
        self.evidence = tuple(evidence.split()) or tuple(dict.fromkeys(said))
        self.needs = tuple(tuple(group.split("|")) for group in needs.split()) or (self.evidence,)
        """Of each of these groups one header is there."""
        self.unread = tuple(unread.items())
        """Header -> texts in it which mean that the message could not be read, and nobody was called."""
        self.attempts, self.origin = _as_told(attempts), _as_told(origin)
        self.dead_letters = re.compile(dead_letters)
        """What its queues of dead letters are called; the first group is where the letter came from."""
        self.places = places
        """Where records of Kafka's died."""
        self.traces = (Trace(gone),) if isinstance(gone, str) else gone
        """What a replay takes away."""


# --- Of any broker ---

_WHOLE_TRACE = re.compile(r"\A(?!\s*(?:at |\.\.\.|\u2026)(?:(?!: )[^\n])*(?:\n|\Z))(.*)", re.DOTALL)
"""A stack trace that says something; people cut it to its first frame, or to dots."""
_READS_FOR_FUNCTION = "FunctionInvocationWrapper.convertInput"
"""The frames in which Spring Cloud Function makes of a message what a function takes, before it is called."""
DELIVERY_ATTEMPT = Told((TRACE_OF_BINDER,), re.compile(r"deliveryAttempt=(\d{1,9})\b"))
"""In the text of the failed message; retry-count counts how often the binder has parked it."""
_OF_NSB = "NServiceBus.ExceptionInfo."

SPRING_AMQP = Framework(
    messages="x-exception-message", stacks=TRACE_OF_BINDER,
    unread=dict.fromkeys((TRACE_OF_BINDER, "x-exception-message"), (
        "MessageConversionException", "Failed to convert message", "Cannot convert from [",
        _READS_FOR_FUNCTION)),
    gone=r"x-exception-.*|x-original-.*|x-retry.*|retry-count|deliveryAttempt|x-shovelled.*",
)  # fmt: skip
MASSTRANSIT = Framework(
    "masstransit-fault", "MT-Reason is fault, or an MT-Fault-* header (MassTransit's ExceptionUtil); on "
    "ActiveMQ the same headers are properties",
    "masstransit-unread", "the MT-Fault-Message says that the message could not be deserialized: no consumer "
    "was called",
    classes="MT-Fault-ExceptionType", messages="MT-Fault-Message",
    stacks=Told(("MT-Fault-StackTrace",), _WHOLE_TRACE),
    evidence="MT-Fault-Message MT-Fault-ExceptionType MT-Reason",
    unread={"MT-Fault-Message": (
        "occurred while deserializing the message", "occured while deserializing the message")},
    origin=Told(("MT-Fault-InputAddress",), is_uri=True), dead_letters=r"^(.+)_(?:error|skipped)$",
    gone=r"MT-Fault-.*|MT-Reason|MT-Redelivery-Count",
)  # fmt: skip
NSERVICEBUS = Framework(
    "nservicebus", "NServiceBus.FailedQ or NServiceBus.ExceptionInfo.* (FaultsHeaderKeys)",
    "nservicebus-unread", "a MessageDeserializationException of NServiceBus, or its text: no handler was "
    "called",
    classes=f"{_OF_NSB}ExceptionType", messages=f"{_OF_NSB}Message",
    stacks=Told((f"{_OF_NSB}StackTrace",), _WHOLE_TRACE),
    evidence=f"{_OF_NSB}Message {_OF_NSB}ExceptionType NServiceBus.FailedQ",
    # DeserializeMessageConnector; ExtractLogicalMessagesBehavior before 5.
    unread={f"{_OF_NSB}ExceptionType": (".MessageDeserializationException",),
            f"{_OF_NSB}Message": ("while attempting to extract logical messages from",)},
    origin=Told(("NServiceBus.FailedQ",), re.compile(r"\A([^@]*)")),
    gone=r"NServiceBus\.(?:ExceptionInfo\..*|FailedQ|TimeOfFailure|Retries|FLRetries|DelayedRetries)",
)  # fmt: skip
REBUS = Framework(
    "rebus", "rbs2-error-details (Rebus' Headers)", stacks="rbs2-error-details",
    attempts=Told(("rbs2-delivery-count",), added=1), origin="rbs2-source-queue",
    gone=r"rbs2-(?:error-details|source-queue|delivery-count|defer-count)",
)  # fmt: skip
WOLVERINE = Framework(
    "wolverine", "exception-type with exception-message (Wolverine's DeadLetterQueueConstants)",
    needs="exception-type exception-message", classes="exception-type", messages="exception-message",
    stacks="exception-stack", places=[kafka.WOLVERINE, kafka.WOLVERINE_RETRY],
    attempts="wolverine-kafka-retry-attempt attempts", origin=Told(("original-destination",), is_uri=True),
    gone=[Trace(r"exception-(?:type|message|stack)|failed-at|original-(?:destination|partition|offset)"),
          Trace(r"wolverine-kafka-retry-.*"), Trace(r"attempts", beside=("exception-type",))],
)  # fmt: skip
WATERMILL = Framework(
    "watermill", "reason_poisoned with topic_poisoned or handler_poisoned (Watermill's PoisonQueue)",
    "watermill-unread", "reason_poisoned says that the message could not be unmarshalled: the handler was "
    "not called",
    needs="reason_poisoned topic_poisoned|handler_poisoned", stacks="reason_poisoned",
    messages=Told(("reason_poisoned",), re.compile(r"\A(.*?)(?:, stacktrace:|\Z)", re.DOTALL)),
    origin="topic_poisoned", gone=r"(?:reason|topic|handler|subscriber)_poisoned",
)  # fmt: skip
BRIGHTER = Framework(
    "brighter", "rejectionReason with originalTopic: Brighter's own dead-letter channel on RocketMQ "
    "(RocketMessageConsumer); to RabbitMQ it only rejects",
    needs="rejectionReason originalTopic", evidence="rejectionReason", messages="rejectionMessage",
    attempts=Told(("HandledCount",), added=1), origin="originalTopic",
    gone=[Trace(r"OriginalTopic|Rejection(?:Reason|Message|Timestamp)"),
          Trace(r"originalTopic|rejection(?:Reason|Message|Timestamp)", beside=("rejectionReason",)),
          Trace(r"HandledCount", _ITSELF)],  # which it compares with the most requeues
)  # fmt: skip
CAMEL = Framework(
    "camel", "CamelExceptionCaught or CamelFailure* copied into headers by the route (Camel's exchange "
    "properties)", stacks="CamelExceptionCaught",
    evidence="CamelExceptionCaught CamelFailureEndpoint CamelFailureRouteId",
    gone=r"Camel(?:Exception|Failure|Redeliver|RollbackOnly).*|FailedBecause",
)  # fmt: skip
MATS = Framework(
    stacks="mats_dlq_Exception", evidence="mats_dlq_Exception mats_dlq_Refused mats_dlq_DeliveryCount",
    attempts="mats_dlq_DeliveryCount", dead_letters=r"^DLQ\.(.+)$",
    gone=r"mats_dlq_(?!DlqCount).*",  # which counts reissues, and is its operators'
)  # fmt: skip
SMALLRYE_JMS = Framework(
    "smallrye-jms", "dead_letter_exception_class_name, or dead_letter_reason: nacked (SmallRye's JMS "
    "connector)", needs="dead_letter_reason|dead_letter_exception_class_name",
    classes="dead_letter_cause_class_name dead_letter_exception_class_name",
    messages="dead_letter_cause dead_letter_reason",
    evidence="dead_letter_reason dead_letter_exception_class_name dead_letter_cause",
    gone=r"dead_letter_(?:exception_class_name|reason|cause_class_name|cause)",
)  # fmt: skip
MOLECULER = Framework(
    "moleculer", "x-original-channel with x-original-group: a channel's handler failed as often as it may "
    "(Moleculer)", needs="x-original-channel x-original-group", evidence="x-error-message x-original-channel",
    classes="x-error-name", messages="x-error-message", stacks="x-error-stack",
    attempts=Told(("x-redelivered-count",), added=1), origin="x-original-channel",
    gone=[Trace(r"x-redelivered-count", _ITSELF)],
)  # fmt: skip

# --- Of Kafka ---


def _spring_row(
    prefix: str,
    place: OriginHeaders,
    attempts: Told,
    gone: str,
    *rules: str,
    classes: str = "",
    needs: str = "",
) -> Framework:
    """Build Spring's row. `cause-fqcn` is the root cause's; others mostly a wrapper's. A key has its own."""
    stacks = (f"{prefix}exception-stacktrace", f"{prefix}key-exception-stacktrace")
    return Framework(
        *rules, needs=needs,
        classes=classes or f"{prefix}exception-cause-fqcn {prefix}exception-fqcn {prefix}key-exception-fqcn",
        messages=f"{prefix}exception-message {prefix}key-exception-message", stacks=" ".join(stacks),
        # The listener was not called, since the record was nothing that it takes.
        unread=dict.fromkeys(stacks, (
            "ConversionException: Failed to convert from JSON",
            "MessageConversionException: Cannot convert from [", _READS_FOR_FUNCTION)),
        attempts=attempts, places=[place], gone=gone,
    )  # fmt: skip


SPRING_RETRY = _spring_row(
    "kafka_", kafka.SPRING_RETRY, Told(("retry_topic-attempts",), added=-1),  # a dead letter has no next one
    r"kafka_(?:original-|exception-|key-exception-).*|retry_topic-.*|springDeserializerException.*",
    "spring-retry", "kafka_exception-* with retry_topic-attempts: a @RetryableTopic gave up "
    "(DeadLetterPublishingRecovererFactory)",
    "spring-retry-unread", "kafka_exception-* of a DeserializationException, or of a conversion in the "
    "trace: the consumer of a @RetryableTopic could not read it (ErrorHandlingDeserializer, "
    "PayloadMethodArgumentResolver)",
)  # fmt: skip
SPRING_DLT = _spring_row(
    # The container counts where it is told to (deliveryAttemptHeader).
    "kafka_dlt-", kafka.SPRING, Told(("kafka_deliveryAttempt",)), r"kafka_dlt-.*|kafka_deliveryAttempt",
    "spring-recoverer", "kafka_dlt-exception-*: Spring's error handler gave up "
    "(DeadLetterPublishingRecoverer); how often it had tried only kafka_deliveryAttempt says",
    "spring-unread", "kafka_dlt-exception-* or kafka_dlt-key-exception-* of a DeserializationException, or "
    "of a conversion in the trace (ErrorHandlingDeserializer, PayloadMethodArgumentResolver)",
)  # fmt: skip
SPRING_BINDER = _spring_row(
    "x-", kafka.SPRING_CLOUD_STREAM, DELIVERY_ATTEMPT, r"x-exception-.*",
    "spring-binder", "x-original-topic with x-exception-fqcn or x-exception-stacktrace (Spring Cloud "
    "Stream's KafkaMessageChannelBinder); how often it had tried deliveryAttempt in the trace says",
    "spring-binder-unread", "x-original-topic with x-exception-fqcn of a DeserializationException, or a "
    "conversion in the trace",
    classes="x-exception-fqcn", needs=f"x-original-topic x-exception-fqcn|{TRACE_OF_BINDER}",
)  # fmt: skip
CONNECT = Framework(
    "connect", "__connect.errors.exception.*: a transformation or the sink refused it "
    "(DeadLetterQueueReporter)",
    "connect-converter", "__connect.errors.stage is KEY_CONVERTER, VALUE_CONVERTER or HEADER_CONVERTER: "
    "Connect could not read it",
    classes="__connect.errors.exception.class.name", messages="__connect.errors.exception.message",
    stacks="__connect.errors.exception.stacktrace", unread={"__connect.errors.stage": ("_CONVERTER",)},
    places=[kafka.CONNECT], gone=r"__(?:connect|streams|dlq)\.errors\..*",
)  # fmt: skip
STREAMS = Framework(
    "streams", "__streams.errors.exception: a processor or a producer of Streams failed "
    "(ExceptionHandlerUtils)",
    "streams-unread", "__streams.errors.stacktrace shows RecordDeserializer: Streams could not read it "
    "(KIP-1034)",
    classes="__streams.errors.exception", messages="__streams.errors.message",
    stacks="__streams.errors.stacktrace", places=[kafka.STREAMS],
    # The frame that reads a record of a topic; state stores have other ones.
    unread={"__streams.errors.stacktrace": ("RecordDeserializer.deserialize(",)},
)  # fmt: skip


def _smallrye(prefix: str, place: OriginHeaders, rule: str, when: str) -> Framework:
    return Framework(
        rule, when, places=[place], attempts=Told(("delayed-retry-count",), added=1),
        classes=f"{prefix}-cause-class-name {prefix}-exception-class-name",
        messages=f"{prefix}-cause {prefix}-reason",
        unread={f"deserialization-failure-{told}": ("",) for told in ("reason", "deserializer")},
        gone=rf"(?:{prefix}|deserialization-failure)-.*",
    )  # fmt: skip


SMALLRYE = _smallrye(
    "dead-letter", kafka.SMALLRYE, "smallrye",
    "dead-letter-exception-class-name, or dead-letter-reason: nacked (SmallRye's KafkaDeadLetterQueue)",
)  # fmt: skip
SMALLRYE_RETRY = _smallrye(
    "delayed-retry", kafka.SMALLRYE_RETRY, "smallrye-retry", "delayed-retry-exception-class-name: nacked "
    "after all delayed retries (SmallRye's KafkaDelayedRetryTopic)",
)  # fmt: skip
KARAFKA = Framework(
    attempts="source_attempts original_attempts", places=[kafka.KARAFKA, kafka.KARAFKA_BEFORE],
    gone=r"(?:source|original)_(?:topic|partition|offset|consumer_group|attempts)",
)  # fmt: skip
BY_HAND = Framework(
    classes="error-type error-class exception-class exception-type",
    messages="error-message error-reason error exception-message exception dead-letter-reason",
    stacks="error-stacktrace exception-stacktrace stacktrace", places=kafka.BY_HAND,
)  # fmt: skip
"""What people call them who write them themselves, beside where it was."""
BELOW_DLQ = Framework(
    classes="dlq.error.class dlq.error.type dlq.error_class dlq.exception.class",
    messages="dlq.error.message dlq.error.reason dlq.error_message dlq.error dlq.exception.message",
    stacks="dlq.error.stacktrace dlq.exception.stacktrace", places=kafka.BY_HAND,
)  # fmt: skip
"""The same of those who begin all their names so, and may not say where it was."""

# --- What a rule of its own reads ---

_OTHERS = Framework(gone=[
    # What many write in Spring's way; Sneakers, Phraseanet
    Trace(r"x-error.*|x-last-(?:error|exception|failure).*|x-failure-.*|x-exception|x-attempts?|x-death-count"),
    Trace(r"x-death-reason|retry_info|worker-message|dlq\.value\.(?:truncated|original\.size)"),
    Trace(r"X-Message-Stamp-Symfony\\Component\\Messenger\\Stamp\\"
          r"(?:ErrorDetails|SentToFailureTransport|Redelivery)Stamp"),
    # Rascal nacks what its record says, until x-death shows that nack
    Trace(r"rascal", Inside(gone=(("recovery", "*", "immediateNack"),)), always=True),
    Trace(r"rascal", Inside(gone=(("recovery",), ("error",)), zero=(("redeliveries",),))),
    Trace(r"laravel", Inside(zero=(("attempts",),))),
    # rabbit-queue's error is an object, and none without its stack; kafkajs-async-retry counts in its header
    Trace(r"errors", Inside(gone=(("stack",),))),
    Trace(r"asyncRetry"),
    # Celery counts on the letter, and gives up at max_retries
    Trace(r"retries", _ITSELF, beside=("task", "id")),
])  # fmt: skip
FRAMEWORKS: Sequence[Framework] = (
    SPRING_AMQP, MASSTRANSIT, NSERVICEBUS, REBUS, WOLVERINE, WATERMILL, BRIGHTER, CAMEL, MATS, SMALLRYE_JMS,
    MOLECULER, SPRING_RETRY, SPRING_DLT, SPRING_BINDER, CONNECT, STREAMS, SMALLRYE, SMALLRYE_RETRY, KARAFKA,
    _OTHERS,
)  # fmt: skip
