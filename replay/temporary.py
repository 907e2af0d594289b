"""Names that lived with a connection: of temporary queues, reply queues, generated queues and groups.

Sent to such a name, a letter would make an ordinary queue that nobody reads, or reach somebody else's.
"""

import re
from functools import lru_cache

from dlq.connectors.base import Target

_UUID = r"\{?[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}\}?"
_FORMS = (
    (r"(?:(?:remote-)?temp-(?:queue|topic)[:/]+)?ID[:_].*", "a temporary destination of JMS"),
    (r"/?(?:remote-)?temp-(?:queue|topic)[:/].*", "a temporary destination"),
    (r"jms\.temp(?:queue|topic)\..*", "a temporary destination of JMS"),
    (r"amq\.gen-.*|amq_[0-9a-f]{32}", "a queue that its broker named for one connection"),
    (r"amq\.rabbitmq\.reply-to.*", "a reply queue"),
    (r"spring\.gen-.*|.*\.anonymous\.[\w-]{22}", "an anonymous queue of Spring's"),
    (r"celeryev\..*|.*\.celery\.pidbox", "a queue of one Celery worker"),
    (r"easynetq\.response\..*|.*[._-]repl(?:y|ies)[._-]" + _UUID, "a reply queue"),
    (r".*_bus_[a-z0-9]{20,32}", "the queue of one MassTransit instance"),
    (r".+_REPLY_TOPIC", "the topic of replies to RocketMQ's clients"),
    (r"console-consumer-\d+", "a group that a console generated"),
    (_UUID, "a generated name"),
)
"""Form of a name, and what it is. Of `address::queue` the queue counts: a volatile subscription has one."""
_PATTERNS = [(re.compile(form, re.IGNORECASE | re.DOTALL), what) for form, what in _FORMS]


@lru_cache(maxsize=1024)
def why_temporary(target: Target) -> str | None:
    """Return what the target's name shows to have lived with a connection; None where it shows nothing."""
    if target.kind == "exchange":
        return None
    name = target.name.rpartition("::")[2]
    what = next((what for pattern, what in _PATTERNS if pattern.fullmatch(name)), None)
    return what and f"{target} is {what}"
