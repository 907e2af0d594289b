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

Every message is one line that says what, where, and how to fix it, and carries no secret.
"""


class DlqError(Exception):
    """Base of all errors that a user reads as one line."""


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


class Unreachable(BrokerError):
    """No connection to the broker."""


class AccessDenied(BrokerError):
    """Wrong credentials, or the user lacks a right."""


class NotFound(BrokerError):
    """No such virtual host, queue, topic or group."""


class ConnectionLost(BrokerError):
    """The connection ended while work was under way; nothing unacknowledged is lost."""


class SendingEnded(ConnectionLost):
    """This run may send nothing more, over no connection: its letters may be another's by now."""


class NodeDown(Unreachable):
    """The broker answers, but the node on which one queue lies does not."""


class ConsumerEnded(ConnectionLost):
    """The broker ended a consumer over a connection that lives: its queue went, or has moved. What it held
    goes back when the connection is closed."""


class NoLeader(ConnectionLost):
    """The broker answers, but one queue or partition has nobody who serves it."""


OF_ONE_MEMBER = (AccessDenied, NotFound, HarmRefused, NodeDown, NoLeader)
"""What stops the reading of one queue among several, and says nothing of the others."""


class PoisonMessage(DlqError):
    """One message makes the broker or the protocol fail, so that the rest cannot be read past it."""


class ArchiveError(DlqError):
    """The archive cannot be written or read (disk full, a damaged file)."""


class LedgerUnreachable(ArchiveError):
    """No connection to the ledger's server, or it refused the user or the password."""


class TookTooLong(DlqError):
    """A question to the archive was ended without an answer."""


class Busy(DlqError):
    """Another run holds the lock; the text names its pid and host."""


def unwrap_interrupt(error: BaseException) -> BaseException:
    """Return the Ctrl-C that a SystemError hides, as it came while a C library ran; else the error."""
    cause = error.__cause__
    return cause if isinstance(error, SystemError) and isinstance(cause, KeyboardInterrupt) else error
