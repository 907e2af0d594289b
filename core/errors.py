"""Everything that can go wrong, as one shallow tree.

    DlqError
     ├── UsageError            the user asked for something that cannot be (exit 2)
     │    ├── ConfigError      dlq.toml or an environment variable is wrong
     │    ├── HarmRefused      looking would change or kill messages, and --force was not given
     │    └── FormatTooNew     the archive was written by a newer dlq
     ├── BrokerError           the broker said no, or nothing (exit 4)
     │    ├── Unreachable      no connection
     │    │    └── NodeDown    the broker answers, but not for what lies on one node
     │    ├── AccessDenied     wrong password, or a right is missing
     │    ├── NotFound         no such virtual host, queue, topic or group
     │    └── ConnectionLost   the connection ended in the middle of the work
     │         ├── ConsumerEnded  the broker ended one consumer, and holds nothing for it
    │         └── NoLeader    nobody serves one queue or partition now
     ├── PoisonMessage         one message cannot be read by this protocol and stops the drain (exit 3)
     ├── ArchiveError          the archive cannot be written or read (exit 3: what was done is safe)
     │    └── LedgerUnreachable  no connection to the ledger's server, or wrong credentials (exit 4)
     └── Busy                  another run holds the lock (exit 7)

Every message is one line that says what, where, and how to fix it, and carries no secret. A usage error says
itself what to do; the others have an advice by their kind, for texts that come from a broker or a disk.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

SAYS_WHAT_TO_DO = re.compile(
    r"\b(must be|needs exactly|(known|configured) are|did you mean)\b"
    r"|(^|[;:,.?] |\b(and|or|then) )(`?dlq \w|(if you trust it, |only )?"
    r"(add|allow|apply|approve|ask|bring|cast|check|choose|correct|cut|edit|export|free|give|grant|import|insist"
    r"|install|leave|let|look|make|move|name|open|plan|pull|put|raise|remove|rename|replay|restart|run|say|set|start|stop|take|tick|try"
    r"|unzip|upgrade|use|wait|write)\b)"
    r"|pip install|has to run",
    re.IGNORECASE,
)
"""Whether a text already holds an instruction."""


class DlqError(Exception):
    """Base of all errors that a user reads as one line."""

    advice = ""
    """What to do, where the text does not say it."""


class UsageError(DlqError):
    """The request itself is wrong: a bad flag, an unknown column, source, plan or key."""


class ConfigError(UsageError):
    """The configuration is wrong."""


class NoLetters(UsageError):
    """Nothing is captured yet."""


class HarmRefused(UsageError):
    """Doing this would harm messages in the queue; `--force` insists."""


class FormatTooNew(UsageError):
    """A file of the archive has a format version that this dlq does not know."""


class BrokerError(DlqError):
    """The broker refused, or could not be reached."""

    advice = "check the log of the broker"


class Unreachable(BrokerError):
    """No connection to the broker."""

    advice = "check the url, and that the broker runs"


class AccessDenied(BrokerError):
    """Wrong credentials, or the user lacks a right."""

    advice = "check the user, the password and the rights"


class NotFound(BrokerError):
    """No such virtual host, queue, topic or group."""

    advice = "check the name"


class ConnectionLost(BrokerError):
    """The connection ended while work was under way; nothing unacknowledged is lost."""

    advice = "run the command again"


class SendingEnded(ConnectionLost):
    """This run may send nothing more, over no connection: its letters may be another's by now."""

    advice = "run dlq replay status"


class NodeDown(Unreachable):
    """The broker answers, but the node on which one queue lies does not."""

    advice = "start the node, or wait for it"


class ConsumerEnded(ConnectionLost):
    """The broker ended a consumer over a connection that lives: its queue went, or has moved. What it held
    goes back when the connection is closed."""


class NoLeader(ConnectionLost):
    """The broker answers, but one queue or partition has nobody who serves it."""

    advice = "start the brokers that hold it, or wait for them"


OF_ONE_MEMBER = (AccessDenied, NotFound, HarmRefused, NodeDown, NoLeader)
"""What stops the reading of one queue among several, and says nothing of the others."""


class PoisonMessage(DlqError):
    """One message makes the broker or the protocol fail, so that the rest cannot be read past it."""

    advice = "take the message out with another client"


class ArchiveError(DlqError):
    """The archive cannot be written or read (disk full, a damaged file)."""

    advice = "run dlq verify"


class LedgerUnreachable(ArchiveError):
    """No connection to the ledger's server, or it refused the user or the password."""

    advice = "check [ledger] url, and that its server runs"


class TookTooLong(DlqError):
    """A question to the archive was ended without an answer."""

    advice = "ask for less at once"


class Busy(DlqError):
    """Another run holds the lock; the text names its pid and host."""

    advice = "wait until that run ends"


def with_next_step(error: DlqError) -> str:
    """Return the text of an error, which ends with what to do."""
    text = str(error)
    return f"{text}; {error.advice}" if error.advice and not SAYS_WHAT_TO_DO.search(text) else text


def unwrap_interrupt(error: BaseException) -> BaseException:
    """Return the Ctrl-C that a SystemError hides, as it came while a C library ran; else the error."""
    cause = error.__cause__
    return cause if isinstance(error, SystemError) and isinstance(cause, KeyboardInterrupt) else error


@contextmanager
def name_rights(rights: str) -> Iterator[None]:
    """Say which rights it takes where something in here is denied."""
    try:
        yield
    except AccessDenied as error:
        raise AccessDenied(f"{error}; {rights}") from error
