"""A look at a broker comes to its end, however much the broker names and however slowly it answers.

Each answer has a time-out of its own; one that names a million queues, and answers for each just before that,
would hold up for months who looks. So all questions of one look have a time together.
"""

import math
import time
from collections.abc import Callable
from contextvars import ContextVar
from functools import wraps
from typing import ParamSpec, TypeVar

from dlq.connectors.base import PROOF_SECONDS, Connector
from dlq.core.errors import BrokerError
from dlq.core.units import human_seconds

_P = ParamSpec("_P")
_R = TypeVar("_R")
_C = TypeVar("_C", bound=type[Connector])
LOOK_SECONDS = PROOF_SECONDS
_LOOKS = (
    "inspect", "gauge", "discover", "read", "consumers", "missing_targets", "limits", "consumption", "bounds",
    "find",
)  # fmt: skip
"""What of a connector asks as often as the broker's answers make it; of `read` its beginning."""
_until: ContextVar[float] = ContextVar("_until", default=math.inf)


def bound_look(look: Callable[_P, _R]) -> Callable[_P, _R]:
    """A function all of whose questions are one look; one within another has what is left of its time."""

    @wraps(look)
    def looked(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        before = _until.set(min(_until.get(), time.monotonic() + LOOK_SECONDS))
        try:
            return look(*args, **kwargs)
        finally:
            _until.reset(before)

    return looked


def bound_looks(connector: _C) -> _C:
    """A class of connectors each of whose looks is bounded."""
    for name in _LOOKS:
        setattr(connector, name, bound_look(getattr(connector, name)))
    return connector


def check_time(who: str) -> None:
    """Before a question is asked. Raises BrokerError where the look that it belongs to takes too long."""
    if time.monotonic() > _until.get():
        raise BrokerError(
            f"{who}: a look takes more than {human_seconds(LOOK_SECONDS)}: it names too much, or answers too "
            "slowly"
        )
