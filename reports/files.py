"""Writing a file whole or not at all: whoever reads it never sees half of it."""

import os
from contextlib import suppress
from pathlib import Path

from dlq.core.errors import UsageError


def write_text(path: str, text: str) -> None:
    """Write `text` durably beside `path`, then rename it. Raises UsageError when that cannot be done."""
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise UsageError(f"cannot write {path}: {error.strerror}") from error
