"""The password of a ledger on a server."""

from dlq.connectors.secrets import from_environment, from_file
from dlq.core.settings import Ledger


def password(settings: Ledger) -> str | None:
    """From its file or variable; None where none is configured. Raises ConfigError."""
    if settings.password_file is not None:
        return from_file("ledger.password_file", settings.password_file)
    if settings.password_env is not None:
        return from_environment("ledger.password_env", settings.password_env)
    return None
