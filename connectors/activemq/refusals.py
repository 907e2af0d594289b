"""What a broker's no means: decided by its error code, its exception's class, or its whole text."""

import re
from collections.abc import Mapping

from dlq.core.errors import AccessDenied, BrokerError, NotFound
from dlq.core.text import for_terminal, shorten


class RolledBack(BrokerError):
    """COMMIT's answer where another command of the transaction was refused: nothing of it is stored."""


class IdUsedBefore(BrokerError):
    """COMMIT's answer where a `_AMQ_DUPL_ID` was used before: nothing of the transaction is routed."""


_BY_CODE: Mapping[str, type[BrokerError]] = {
    "AMQ339001": NotFound,
    "AMQ339013": IdUsedBefore,
    "AMQ229031": AccessDenied,
    "AMQ229032": AccessDenied,
    "AMQ229213": AccessDenied,
}
"""Artemis: ActiveMQStompProtocolMessageBundle, ActiveMQMessageBundle."""
_BY_CLASS: Mapping[str, type[BrokerError]] = {
    "SecurityException": AccessDenied,
    "JMSSecurityException": AccessDenied,
    "DestinationDoesNotExistException": NotFound,
    "InvalidDestinationException": NotFound,
    "TransactionRolledBackException": RolledBack,
}
"""Classic by OpenWire: the class of an ExceptionResponse, without its package."""
_BY_TEXT: Mapping[str, type[BrokerError]] = {
    "not authorized": AccessDenied,
    "does not have permission": AccessDenied,
    "security": AccessDenied,
    "does not exist": NotFound,
    "marked rollback only": RolledBack,
}
"""Classic by STOMP: an ERROR frame shows neither code nor class (ProtocolConverter.sendError)."""
_CODE = re.compile(r"\bAMQ\d{6}\b")
_SHOWN = 300


def refusal(place: str, said: str, thrown: str | None = None) -> BrokerError:
    """What a broker says against a command, as one of our errors. `thrown`: the Java class, if known."""
    return _meaning(said, thrown)(f"{place}: {shorten(for_terminal(said), _SHOWN)}")


def _meaning(said: str, thrown: str | None) -> type[BrokerError]:
    lower = said.lower()
    by_code = (_BY_CODE.get(code) for code in _CODE.findall(said))
    by_class = (_BY_CLASS.get((thrown or "").rpartition(".")[2]),)
    by_text = (meaning for text, meaning in _BY_TEXT.items() if text in lower)
    return next((found for found in (*by_code, *by_class, *by_text) if found), BrokerError)
