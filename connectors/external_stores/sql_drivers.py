"""The SQL servers that dlq speaks to, for ledgers and for stores of evidence."""

from collections.abc import Mapping

DRIVERS: Mapping[str, str] = {
    "sqlite": "sqlite",
    "postgresql": "postgresql+psycopg",
    "postgres": "postgresql+psycopg",
    "mysql": "mysql+pymysql",
    "mariadb": "mysql+pymysql",
}
"""Scheme of a URL -> SQLAlchemy's dialect and driver."""
