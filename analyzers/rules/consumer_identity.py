"""Whose failure a letter is, where no exception says it: others of the same queue are not fixed with it.

A consumer group (RocketMQ, Kafka), a subscription (Artemis), a task (Celery, taskiq), an actor (Dramatiq), a
job (Laravel), a pattern (Nest). A message that is none of these, in the same queue, is nobody's.
"""

import re
from collections.abc import Callable, Mapping, Sequence

from dlq.analyzers.rules.letter import Letter, body_field, first, once_per_letter
from dlq.core.headers.kafka_headers import died_at
from dlq.core.headers.rocketmq_topics import DEAD_LETTERS

_IN_HEADERS = (("task", "id"), ("task_name", "task_id"))
"""A header that names a task, and the one that stands beside it."""
_IN_BODIES: Mapping[str, Sequence[str]] = {
    "actor_name": ("queue_name", "message_id", "args", "options"),
    "pattern": ("data", "id"),
    "task": ("id",),
    "displayName": ("job",),
}
"""The same of fields of a JSON body, any of which stands beside it: Dramatiq, Nest (ClientRMQ), Celery's
first protocol, Laravel."""
_LARGEST_BODY = 1 << 20
"""Bytes up to which a body is read for it."""
_GENERATED = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", re.IGNORECASE)
_SUBSCRIPTIONS = ("_AMQ_ORIG_QUEUE", "x-opt-ORIG-QUEUE", "JMS_AMQP_MA_x-opt-ORIG-QUEUE")


def _group(letter: Letter) -> str | None:
    queue = letter.dead_letter_queue
    if queue.startswith(DEAD_LETTERS):
        return queue.removeprefix(DEAD_LETTERS)
    died = died_at(letter.headers, queue) if letter.broker_kind == "kafka" else None
    return died and died.group


def name_subscription(letter: Letter) -> str | None:
    """Return the queue of the subscription in which it died; None of any other letter."""
    if letter.broker_kind != "artemis" or letter.origin_kind != "topic":
        return None
    return first(letter.headers, *_SUBSCRIPTIONS)


def _task(letter: Letter) -> str | None:
    told = (letter.headers.get(name) for name, beside in _IN_HEADERS if beside in letter.headers)
    return next((one for one in told if one), None)


def _actor(letter: Letter) -> str | None:
    return body_field(letter, "actor_name") if letter.dead_letter_queue.endswith(".XQ") else None


def _in_body(letter: Letter) -> str | None:
    """Return whom a body names, of those who give messages no id of AMQP's: few bodies have to be read."""
    is_bare = letter.broker_kind in ("rabbitmq", "memory") and "message_id" not in letter.properties
    if not is_bare or letter.body_size > _LARGEST_BODY:
        return None
    told = (
        body_field(letter, name)
        for name, beside in _IN_BODIES.items()
        if any(body_field(letter, one) is not None for one in beside)
    )
    return next((one for one in told if one), None)


_ASKED: Sequence[Callable[[Letter], str | None]] = (_group, name_subscription, _task, _actor, _in_body)


@once_per_letter
def name_owner(letter: Letter) -> str | None:
    """Return its consumer group, subscription, task, actor, job or pattern; None where it names none, or one
    that lived with a connection (an anonymous group's), whose name is another each time."""
    found = next((found for ask in _ASKED if (found := ask(letter))), None)
    return None if found is None or _GENERATED.search(found) else found
