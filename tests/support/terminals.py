"""A terminal on which a command asks, and a test answers."""

import os
import pty
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from support import preloaded


def converse(
    folder: Path, words: Sequence[str], answers: Sequence[tuple[str, str]] = (), **environment: str
) -> tuple[int, str]:
    """Run `dlq WORDS...` on a terminal; returns its exit code, and all that the screen showed. An answer is
    typed when its question, or a part of that, is there."""
    screen, end = pty.openpty()
    known = {"TERM": "dumb", "COLUMNS": "200", "XDG_CONFIG_HOME": str(folder)}
    running = preloaded.start(words, folder, {**os.environ, **known, **environment}, terminal=end)
    os.close(end)
    seen, answered, open_answers = b"", 0, list(answers)
    with suppress(OSError):  # the last process let go of the terminal
        while piece := os.read(screen, 65_536):
            seen += piece
            asked = seen[answered:].decode(errors="replace")
            if open_answers and open_answers[0][0] in asked and asked.endswith(": "):
                os.write(screen, f"{open_answers.pop(0)[1]}\n".encode())
                answered = len(seen)
    os.close(screen)
    assert not open_answers, seen
    return running.wait(), seen.decode().replace("\r", "")
