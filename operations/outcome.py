"""How an operation ended: exit codes, and which error means which."""

from collections.abc import Mapping
from enum import IntEnum

from dlq.core import errors
from dlq.operations.time_limit import OutOfTime


class ExitCode(IntEnum):
    """What a script reads of a run; `MEANS` says it in words."""

    DONE = 0
    UNEXPECTED = 1
    USAGE = 2
    PARTLY = 3
    BROKER = 4
    THRESHOLD = 5
    IN_DOUBT = 6
    BUSY = 7
    INTERRUPTED = 130


MEANS: Mapping[ExitCode, str] = {
    ExitCode.DONE: "done",
    ExitCode.UNEXPECTED: "unexpected",
    ExitCode.USAGE: "usage or configuration",
    ExitCode.PARTLY: "partly done: some were refused, returned or left",
    ExitCode.BROKER: "broker (or the ledger's server) unreachable, access denied, or no such virtual host, "
    "queue, topic, group",
    ExitCode.THRESHOLD: "a `--fail-on` threshold is passed",
    ExitCode.IN_DOUBT: "something is in doubt, or books don't balance",
    ExitCode.BUSY: "busy: another run holds the lock",
    ExitCode.INTERRUPTED: "interrupted",
}
"""For the pages of documentation and the manual pages."""

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
    """Return the exit code for an error that ends the command."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), ExitCode.UNEXPECTED)


def worst(*codes: ExitCode) -> ExitCode:
    """Return the worst: where several hold, the highest of partly, threshold and in doubt wins."""
    return max(codes, default=ExitCode.DONE)


def tell_errors(what: str, failed: Mapping[str, errors.DlqError]) -> list[dict[str, str]]:
    """Return for a command's document which `what` (a source, a broker) failed, and why."""
    return [{what: name, "error": str(error)} for name, error in failed.items()]
