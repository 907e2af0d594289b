"""The names of causes, mechanisms and advice; the archive and other programs rely on them."""

from collections.abc import Iterable, Sequence

from dlq.core.brokers import plugin_of

CAUSES = {
    "suppressed_duplicate": "the client's audit had seen it and poison-acked it; no proof of processing",
    "duplicate_from_store": "the broker found the id again in its store or cursor",
    "poison_ack": "the consumer refused it",
    "redelivery_exhausted": "too many delivery attempts",
    "expired": "its time to live ran out",
    "overflow": "the queue was longer than its limit",
    "unroutable": "nothing took it where it was sent, or its queue has no consumer for its type",
    "application_error": "an application or framework parked it with an exception",
    "check_max_exceeded": "a half message was checked too often without an outcome",
    "check_skipped": "a half message was older than the broker's retention, so it was not checked any more",
    "transaction_pending": "a half message without an outcome yet",
    "unreadable": "its bytes could not be read: by the broker, or by its consumer's deserializer",
    "unknown": "no evidence says why",
}


MOVED = "moved"
"""What may have happened to a letter beside its causes: somebody, or a divert, put it where it lies."""


def proof_of(cause: str | None, also_possible: Sequence[str]) -> str | None:
    """Return how sure a cause is that may as well be one of `also_possible`; None where none is known."""
    if cause in (None, "unknown"):
        return None
    return "likely" if also_possible else "proven"


def word_for(cause: str, broker_kinds: Iterable[str | None]) -> str | None:
    """Return what the people of these kinds of brokers say instead: poison acks are ActiveMQ's, the consumers
    of RabbitMQ reject."""
    words = {plugin_of(kind).words.get(cause) for kind in broker_kinds}
    return words.pop() if len(words) == 1 else None


def mark_doubt(cause: str, proof: str | None) -> str:
    """Return a cause as tables show it: `redelivery_exhausted?` where it is only likely."""
    return f"{cause}?" if proof == "likely" else cause


def cause_in_words(cause: str, broker_kinds: Iterable[str | None], proof: str | None = None) -> str:
    """Return a cause of letters of these kinds of brokers, as people read it."""
    word = word_for(cause, broker_kinds)
    return mark_doubt(f"{word} ({cause})" if word else cause, proof)


TRANSACTION_STATES = {
    "pending": "nobody has said yet how it ends",
    "committed": "the message was delivered",
    "rolled_back": "the message was not delivered, as the business decided",
    "ended": "nothing shows how",
    "check_max_exceeded": "the broker asked to the limit and gave up: not delivered, as far as it knows",
    "check_skipped": "the broker found it too old to ask, and gave up: not delivered, as far as it knows",
}
"""Did the money move? Of the transactions of RocketMQ."""

ADVICE = {
    "replay": "may go back",
    "check_first": "check before anything is sent; dlq show says what",
    "fix_first": "fix the cause, then replay",
    "never": "must not go back",
    "hold": "wait: its outcome can still change",
}
SAME_KEY = "another letter has the same business key: sending both may do the work twice"
"""Why a letter is looked at first, unless its key is the name of what several messages are about."""
