"""A terminal on which a command asks, and a test answers."""

import os
import pty
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

DLQ = str(Path(sys.executable).with_name("dlq"))


def converse(folder: Path, words: Sequence[str], answers: Sequence[tuple[str, str]]) -> tuple[int, str]:
    """Run `dlq WORDS...` on a terminal; returns its exit code, and all that the screen showed. An answer is
    typed when its question, or a part of that, is there."""
    screen, end = pty.openpty()
    environment = {**os.environ, "TERM": "dumb", "COLUMNS": "200", "XDG_CONFIG_HOME": str(folder)}
    running = subprocess.Popen([DLQ, *words], cwd=folder, env=environment, stdin=end, stdout=end, stderr=end)
    os.close(end)
    seen, answered, open_answers = "", 0, list(answers)
    with suppress(OSError):  # the last process let go of the terminal
        while piece := os.read(screen, 65_536):
            seen += piece.decode()
            if open_answers and open_answers[0][0] in (asked := seen[answered:]) and asked.endswith(": "):
                os.write(screen, f"{open_answers.pop(0)[1]}\n".encode())
                answered = len(seen)
    os.close(screen)
    assert not open_answers, seen
    return running.wait(), seen.replace("\r", "")
