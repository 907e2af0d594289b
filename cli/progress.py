"""Progress on stderr: a line for each source or plan that is written again and again. Nothing with -q.

Off a terminal only what keeps a command waiting is said. One line needs no escape sequence: it is made
empty with blanks.
"""

import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from dlq.cli.context import Context, wants_no_escapes
from dlq.operations.progress import SILENT, Line

_EVERY = 0.2


@contextmanager
def progress(context: Context, lines: Sequence[Line]) -> Iterator[None]:
    """Draw these lines on a terminal, now and then; elsewhere say when one waits for long."""
    if context.quiet:
        yield
        return
    show = _drawer(context, lines) if sys.stderr.isatty() else _reporter(context, lines)
    over = threading.Event()

    def tick() -> None:
        while not over.wait(_EVERY):
            show(False)

    ticker = threading.Thread(target=tick, daemon=True)
    ticker.start()
    try:
        yield
    finally:
        over.set()
        ticker.join()
        show(True)


def _reporter(context: Context, lines: Sequence[Line]) -> Callable[[bool], None]:
    waiting: set[str] = set()

    def show(_end: bool) -> None:
        for line in lines:
            if line.silence < SILENT:
                waiting.discard(line.name)
            elif line.name not in waiting:
                waiting.add(line.name)
                context.say(str(line))

    return show


def _drawer(context: Context, lines: Sequence[Line]) -> Callable[[bool], None]:
    def show(end: bool) -> None:
        room = shutil.get_terminal_size().columns - 1
        texts = [""] * len(lines) if end else [str(line) for line in lines]
        if wants_no_escapes(context.no_color):
            sys.stderr.write(f"\r{'; '.join(filter(None, texts))[:room]:<{room}}\r")
        else:
            up = f"\x1b[{len(texts) - 1}A" if len(texts) > 1 else ""
            sys.stderr.write("\n".join(f"\r{text[:room]:<{room}}" for text in texts) + f"{up}\r")
        sys.stderr.flush()

    return show
