"""What the programs in Python share: where they are, and what becomes of a letter in their hands."""

import json
import os
import sys
from typing import Any

URL, PREFIX = os.environ["LAB_URL"], os.environ["LAB_PREFIX"]
LETTERS = os.environ["LAB_LETTERS"].split()
MENDED = sys.argv[1] == "mended"
_once_failed: set[str] = set()


class Declined(Exception):
    """Why the shop's consumers fail."""


class Hiccup(Exception):
    """What goes away by itself."""


def take(letter: str, body: Any, headers: Any) -> str:
    """A letter is in a consumer's hands: the way in which it shall die, "" where it was handled.

    Raises Hiccup."""
    way, _, kind = letter.partition(".")
    event = "failed" if not MENDED else "handled"
    if MENDED and kind == "hiccup" and letter not in _once_failed:
        _once_failed.add(letter)
        event = "hiccup"
    seen = {"event": event, "letter": letter, "body": body, "headers": headers}
    print(json.dumps(seen, default=repr), file=sys.__stdout__, flush=True)  # Celery takes stdout for its log
    if event == "hiccup":
        raise Hiccup(letter)
    return way if event == "failed" else ""
