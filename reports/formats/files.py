"""Writing a report's or a metric's text: whoever reads the file never sees half of it."""

from pathlib import Path

from dlq.archive.storage import files
from dlq.archive.storage.folder import PRIVATE
from dlq.core.errors import UsageError


def write_text(path: str, text: str, mode: int = PRIVATE, parents: bool = True) -> None:
    """Write `text` durably, making the folders above only with `parents`. Raises UsageError."""
    target = Path(path)
    if path == "-":
        raise UsageError("cannot write to standard output here; name a file (./- if it is called so)")
    try:
        if parents:
            target.parent.mkdir(parents=True, exist_ok=True)
        with files.replacing(path, mode) as file:
            file.write(text.encode("utf-8", "backslashreplace"))
    except FileNotFoundError as error:
        raise UsageError(
            f"cannot write {path}: there is no folder {target.parent}; --parents makes it, or name another"
        ) from error
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}; name another file") from error
