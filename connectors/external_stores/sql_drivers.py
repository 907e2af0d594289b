"""The SQL servers that dlq speaks to, for ledgers and for stores of evidence."""

import logging
import struct
from collections.abc import Mapping

DRIVERS: Mapping[str, str] = {
    "sqlite": "sqlite",
    "postgresql": "postgresql+psycopg",
    "postgres": "postgresql+psycopg",
    "mysql": "mysql+pymysql",
    "mariadb": "mysql+pymysql",
}
"""Scheme of a URL -> SQLAlchemy's dialect and driver."""
ODD = (
    ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError,
    struct.error,
)  # fmt: skip
"""What drivers, and who works with what they give, end with where an answer has another type or shape."""
_LONGEST_REASON = 500

# What fails while a connection is given up, it would write on standard error, with its traceback.
logging.getLogger("sqlalchemy").addHandler(logging.NullHandler())


def reason_of(error: Exception) -> str:
    """Return what a server or its driver says, in a line."""
    said = str(getattr(error, "orig", None) or error).strip()
    return said.splitlines()[0][:_LONGEST_REASON] if said else type(error).__name__
