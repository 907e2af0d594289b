"""A look at a broker comes to its end, however much the broker names and however slowly it answers.

Each answer has a time-out of its own; one that names a million queues, and answers for each just before that,
would hold up for months who looks. So all questions of one look have a time together.
"""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from dlq.core.errors import BrokerError
from dlq.core.runtime import patience
from dlq.core.values.units import human_seconds

_P = ParamSpec("_P")
_R = TypeVar("_R")
_S = TypeVar("_S")
_QUICK = 0.05
"""Seconds in which a broker has not been asked, or has answered at once."""
_LEFT = "_seconds_left_to_look"


_End = tuple[float, float]
"""When a look ends, and how long it may take."""
_NEVER: _End = (math.inf, math.inf)
_until: ContextVar[_End] = ContextVar("_until", default=_NEVER)


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Bound all questions in here together to so many seconds, or what is left of the bound around them."""
    before = _until.set(min(_until.get(), (time.monotonic() + seconds, seconds)))
    try:
        yield
    finally:
        _until.reset(before)


def with_deadline(look: Callable[_P, _R]) -> Callable[_P, _R]:
    """Return a function whose questions are one look; one within another has what is left of its time."""

    @wraps(look)
    def looked(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        with within(patience.LOOK):
            return look(*args, **kwargs)

    return looked


def with_shared_deadline(ask: Callable[Concatenate[_S, _P], _R]) -> Callable[Concatenate[_S, _P], _R]:
    """Return a method that is asked once for each letter: all its calls that take time are one look, however
    much is done between them."""

    @wraps(ask)
    def asked(self: _S, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        left, began = getattr(self, _LEFT, patience.LOOK), time.monotonic()
        before, end = _until.get(), began + left
        _until.set(before if before[0] <= end else (end, left))  # as `within`, which costs more
        try:
            return ask(self, *args, **kwargs)
        finally:
            _until.set(before)
            if (took := time.monotonic() - began) > _QUICK:
                setattr(self, _LEFT, left - took)

    return asked


def check(who: str) -> None:
    """Check the time before a question is asked. Raises BrokerError where the look that it belongs to takes
    too long."""
    end, seconds = _until.get()
    if time.monotonic() > end:
        raise BrokerError(
            f"{who}: a look takes more than {human_seconds(seconds)}: it names too much, or answers too "
            "slowly"
        )
