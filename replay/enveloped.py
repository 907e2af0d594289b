"""Letters whose body, and not their headers, remembers that they failed: sent as they are, a consumer takes
the envelope for the order, or the first hiccup for the last one."""

from dlq.core.envelopes import read_envelope, read_error, read_stamps, read_task
from dlq.core.record import Record

_SERIALIZED = b"O:", b"TzozNj"
"""How PHP's serialization begins, and its base64."""
_BEGINS = (b"{", *_SERIALIZED)
"""How all bodies begin that are looked into."""
_ERROR_TYPE = "EasyNetQ.SystemMessages.Error"
_ERROR = "its body is an error of EasyNetQ, around the message"


def memory_in_body(record: Record) -> str | None:
    """Return what of a failure the body of a letter remembers, in words; None where it is not seen to."""
    body = record.body
    if not body.startswith(_BEGINS):
        return _ERROR if record.properties.get("type", "").startswith(_ERROR_TYPE) else None
    if body.startswith(_SERIALIZED):
        stamps = read_stamps(body)
        remembers = stamps is not None and (stamps.is_failed or stamps.retries or stamps.error_class)
        return (
            "its body is an envelope of Symfony Messenger, whose stamps count its failures"
            if remembers
            else None
        )
    task = None if "task" in record.headers else read_task(body)
    retries = task["retries"] if task else 0
    if isinstance(retries, int) and retries:
        return f"its body is a task of Celery's first protocol, which counts {retries} retries there"
    if record.properties.get("type", "").startswith(_ERROR_TYPE) or read_error(body):
        return _ERROR
    if read_envelope(body):
        return "its body is an envelope that describes the failure, around the message"
    return None
