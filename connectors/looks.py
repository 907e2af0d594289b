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
from typing import Any, NamedTuple, ParamSpec, TypeVar

from dlq.connectors.base import Connector
from dlq.core import patience
from dlq.core.errors import BrokerError
from dlq.core.units import human_seconds

_P = ParamSpec("_P")
_R = TypeVar("_R")
_C = TypeVar("_C", bound=type[Connector])
_LOOKS = (
    "inspect", "gauge", "members", "discover", "coverage", "read", "consumers", "missing_targets", "limits",
    "consumption", "newer", "bounds", "find",
)  # fmt: skip
"""What of a connector asks as often as the broker's answers make it; of `read` its beginning."""
_TOGETHER = ("preview",)
"""What is asked once for each letter: all of them together are one look."""
_QUICK = 0.05
"""Seconds in which a broker has not been asked, or has answered at once."""
_LEFT = "_seconds_left_to_look"


class _End(NamedTuple):
    """When a look ends, and how long it may take."""

    at: float = math.inf
    seconds: float = math.inf


_NEVER = _End()
_until: ContextVar[_End] = ContextVar("_until", default=_NEVER)


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """All questions in here are one look of so many seconds, or of what is left of the one around it."""
    before = _until.set(min(_until.get(), _End(time.monotonic() + seconds, seconds)))
    try:
        yield
    finally:
        _until.reset(before)


def bound_look(look: Callable[_P, _R]) -> Callable[_P, _R]:
    """A function all of whose questions are one look; one within another has what is left of its time."""

    @wraps(look)
    def looked(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        with within(patience.LOOK):
            return look(*args, **kwargs)

    return looked


def _bound_together(ask: Callable[..., Any]) -> Callable[..., Any]:
    """A method all of whose calls that take time are one look, however much is done between them."""

    @wraps(ask)
    def asked(self: Any, *args: Any) -> Any:
        left, began = getattr(self, _LEFT, patience.LOOK), time.monotonic()
        before, end = _until.get(), began + left
        _until.set(before if before.at <= end else _End(end, left))  # as `within`, which costs more
        try:
            return ask(self, *args)
        finally:
            _until.set(before)
            if (took := time.monotonic() - began) > _QUICK:
                setattr(self, _LEFT, left - took)

    return asked


def bound_looks(connector: _C) -> _C:
    """A class of connectors each of whose looks is bounded."""
    for name in _LOOKS:
        setattr(connector, name, bound_look(getattr(connector, name)))
    for name in _TOGETHER:
        setattr(connector, name, _bound_together(getattr(connector, name)))
    return connector


def check_time(who: str) -> None:
    """Before a question is asked. Raises BrokerError where the look that it belongs to takes too long."""
    end = _until.get()
    if time.monotonic() > end.at:
        raise BrokerError(
            f"{who}: a look takes more than {human_seconds(end.seconds)}: it names too much, or answers too "
            "slowly"
        )
