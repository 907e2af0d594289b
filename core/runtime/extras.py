"""Rooms that need libraries which not everybody has installed."""

from importlib import import_module
from typing import Any

from dlq.core.errors import UsageError


def import_with_extra(module: str, extra: str, what: str) -> Any:
    """Return one of our modules. Raises UsageError, which says how to get what `what` needs, where a library
    is missing."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("dlq"):
            raise
        raise UsageError(f"{what} more libraries; install them with: pip install 'dlq[{extra}]'") from error
