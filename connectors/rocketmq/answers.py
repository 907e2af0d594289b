"""Answers of RocketMQ whose fields or document are not what they should be, as one of our errors."""

from collections.abc import Iterator
from contextlib import contextmanager

from dlq.core.errors import BrokerError


@contextmanager
def understood(who: str) -> Iterator[None]:
    """Around the reading of an answer of `who`. What is missing in it, or of another shape: BrokerError."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise BrokerError(
            f"{who} sent an answer that cannot be understood ({type(error).__name__}); is it RocketMQ?"
        ) from error
