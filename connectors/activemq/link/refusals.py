"""What a broker's no means: decided by its error code, its exception's class, or its whole text."""

import re
from collections.abc import Mapping

from dlq.connectors.local import credentials
from dlq.core.errors import AccessDenied, BrokerError, NotFound
from dlq.core.settings import Broker
from dlq.core.text import for_terminal, shorten


class RolledBack(BrokerError):
    """COMMIT's answer where another command of the transaction was refused: nothing of it is stored."""


class CommitFailed(BrokerError):
    """Artemis's answer to COMMIT where a `_AMQ_DUPL_ID` was used before, and nothing of the transaction is
    routed then; but it says the same of any other exception (StompConnection#commitTransaction)."""


_BY_CODE: Mapping[str, type[BrokerError]] = {
    "AMQ339001": NotFound,
    "AMQ339013": CommitFailed,
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
    "ActiveMQDuplicateIdException": CommitFailed,
}
"""The class of OpenWire's ExceptionResponse, or on Classic of a stack trace, without its package."""
_BY_TEXT: Mapping[str, type[BrokerError]] = {
    "not authorized": AccessDenied,
    "does not have permission": AccessDenied,
    "security": AccessDenied,
    "does not exist": NotFound,
    "marked rollback only": RolledBack,
}
"""Where neither a code nor a telling class is there, as for a SecurityException in Classic's STOMP."""
_ANYTHING = ("", "Exception", "JMSException", "XAException")
"""Classes that leave it to the text."""
_CODE = re.compile(r"AMQ\d{6}\b")
_THROWN = re.compile(rb"((?:[a-z_$][\w$]*\.)+[A-Z][\w$]*)(?=:|\r?\n|$)")
_SHOWN = 300
_LONGEST_CLASS = 1000
"""Bytes of the name of a Java class, which a broker may send without an end."""
_SESSIONS = (
    "end some of the user's connections, or raise max-sessions in its resource-limit-setting; dlq has up to "
    "4 at a time"
)
_LIMITS = {
    "too many sessions": _SESSIONS,
    "exception getting session": f"the user may have as many as it may, or see its log: {_SESSIONS}",
    "too many queues": "delete some of the user's queues, or raise max-queues in its resource-limit-setting; "
    "dlq makes dlq.replay.* and dlq.reply.*",
}
"""What Artemis says of a limit (AMQ229110, AMQ229111; by STOMP AMQ339009 for the first) -> what to do."""
UNSAID = (
    "; is this the {} port, or are as many connections open as it takes (maximumConnections "
    "of Classic's transport connector, connectionsAllowed of Artemis' acceptor)?"
)
"""Behind what ended before the broker said a word."""


def login_hint(said: str, broker: Broker) -> str:
    """Return what to do where a broker refused a login."""
    lower = said.lower()
    limit = next((remedy for text, remedy in _LIMITS.items() if text in lower), None)
    return limit or f"check user and password{credentials.blanks(broker)}"


def refusal(place: str, said: str, thrown: str | None = None) -> BrokerError:
    """Return a broker's refusal of a command as one of our errors. `thrown`: the Java class, if known."""
    remedy = next((f"; {remedy}" for text, remedy in _LIMITS.items() if text in said.lower()), "")
    kind = AccessDenied if remedy else _meaning(said, thrown)
    return kind(f"{place}: {shorten(for_terminal(said), _SHOWN)}{remedy}")


def _meaning(said: str, thrown: str | None) -> type[BrokerError]:
    if code := _CODE.match(said):
        return _BY_CODE.get(code[0], BrokerError)
    of_class = (thrown or "").rpartition(".")[2]
    if of_class not in _ANYTHING:
        return _BY_CLASS.get(of_class, BrokerError)
    lower = said.lower()
    return next((meaning for text, meaning in _BY_TEXT.items() if text in lower), BrokerError)


def thrown_by(body: bytes) -> str | None:
    """Return the Java class at the beginning of an ERROR frame's body, which is a stack trace on Classic
    (ProtocolConverter#handleException)."""
    told = _THROWN.match(body[:_LONGEST_CLASS])
    return told[1].decode() if told else None
