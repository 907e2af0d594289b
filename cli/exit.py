"""Exit codes: how an operation ended, as a script reads it."""

from dlq.operations.outcome import MEANS, ExitCode, code_of, worst

__all__ = ["MEANS", "ExitCode", "code_of", "worst"]
