"""Exit codes, and which error means which."""

from enum import IntEnum

from dlq.cli.time_limit import OutOfTime
from dlq.core import errors


class ExitCode(IntEnum):
    """What a script reads of a run."""

    DONE = 0
    UNEXPECTED = 1
    USAGE = 2
    PARTLY = 3
    """Some were refused, returned or left."""
    BROKER = 4
    """Broker or ledger server unreachable, access denied; no such virtual host, queue, topic or group."""
    THRESHOLD = 5
    """A `--fail-on` threshold is passed."""
    IN_DOUBT = 6
    """Something is in doubt, or books don't balance."""
    BUSY = 7
    """Another run holds the lock."""
    INTERRUPTED = 130


_CODES: tuple[tuple[type[errors.DlqError], ExitCode], ...] = (
    (errors.UsageError, ExitCode.USAGE),
    (errors.BrokerError, ExitCode.BROKER),
    (errors.PoisonMessage, ExitCode.PARTLY),
    (errors.LedgerUnreachable, ExitCode.BROKER),
    (errors.ArchiveError, ExitCode.PARTLY),
    (errors.Busy, ExitCode.BUSY),
    (OutOfTime, ExitCode.PARTLY),
)


def code_of(error: errors.DlqError) -> ExitCode:
    """The exit code for an error that ends the command."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), ExitCode.UNEXPECTED)


def worst(*codes: ExitCode) -> ExitCode:
    """Where several hold, the highest of partly, threshold and in doubt wins."""
    return max(codes, default=ExitCode.DONE)
