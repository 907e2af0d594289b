"""Stack traces for people: the root cause first, the application's frames marked, libraries' folded.

The JVM writes the root cause last, after `Caused by:`; .NET writes it first, after ` ---> `; of Python's
chained tracebacks the last one is what ended the work, and stands first here.
"""

import json
import re
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any, NamedTuple

from dlq.analyzers.rules.exceptions import LONGEST_TEXT
from dlq.analyzers.rules.stack import is_own

MOST_LINES = 60
_LONGEST_LINE = 400
_LONGEST_BODY = 1 << 20
"""Characters of base64 up to which a body is looked into."""
_FRAME = re.compile(r'[ \t]{1,8}(?:at |File ")')
"""Not `... 12 more`: the exception that it stands in has them."""
_CAUSE = re.compile(r"[ \t]{0,8}(?:(?:[Cc]aused by|Wrapped by|Suppressed): |\[cause\]: |Next )")
_END_OF_INNER = re.compile(r"[ \t]{1,8}--- End of inner")
_CHAINED = re.compile(r"\n\n(?:The above exception was|During handling of the above)[^\n]{0,80}\n\n")
_TRACEBACK = "Traceback (most recent call last)"


MARKS = {"head": "", "own": "  > ", "library": "    ", "folded": "    "}
"""What stands before a line of each kind: one's own frames are marked by more than a colour."""


class Line(NamedTuple):
    """A line to show. `kind`: head, own, library, folded."""

    kind: str
    text: str


class _Part(NamedTuple):
    """An exception of a chain: what it says, and its frames, the innermost first."""

    head: str
    frames: list[str]


def trace_of(letter: Mapping[str, Any]) -> str | None:
    """Return the stack trace that the letter carries, wherever its framework put it."""
    places = (letter["headers"] or {}, letter["properties"] or {})
    told = [letter["failure_text"], *(value for place in places for value in place.values())]
    return _with_most_frames(told) or _with_most_frames([_of_dramatiq(letter.get("body_base64"))])


def _of_dramatiq(body: str | None) -> object:
    """Return the traceback that Dramatiq keeps in the options of its message."""
    if not body or len(body) > _LONGEST_BODY:
        return None
    try:
        message = json.loads(b64decode(body))
    except (ValueError, RecursionError):
        return None
    options = message.get("options") if isinstance(message, dict) else None
    return options.get("traceback") if isinstance(options, dict) else None


def _with_most_frames(texts: Iterable[object]) -> str | None:
    counted = [(_frames(text[:LONGEST_TEXT]), text) for text in texts if isinstance(text, str)]
    most, text = max(counted, key=lambda pair: pair[0], default=(0, ""))
    return text if most else None


def _frames(text: str) -> int:
    return sum(_FRAME.match(line) is not None for line in text.split("\n")[1:])


def read(text: str) -> list[Line]:
    """Return what to show of a trace, MOST_LINES at most. The lines are the stranger's: escape them."""
    text = text[:LONGEST_TEXT].replace("\r\n", "\n")
    if _TRACEBACK in text:
        parts = _python(text)
    elif _END_OF_INNER.search(text):
        parts = _dotnet(text)
    else:
        parts = _java(text)
    lines = [line for part in parts for line in _fold(part)]
    rest = [Line("folded", f"… {len(lines) - MOST_LINES} more lines")] if len(lines) > MOST_LINES else []
    return [line._replace(text=line.text[:_LONGEST_LINE]) for line in lines[:MOST_LINES]] + rest


def _fold(part: _Part) -> Iterator[Line]:
    """Yield the lines of a part; of a run of libraries' frames only the first is told: where it was
    thrown."""
    yield Line("head", part.head)
    is_first = True
    for own, run in groupby(part.frames, is_own):
        frames = list(run)
        shown = frames if own else frames[:1] if is_first else []
        yield from (Line("own" if own else "library", frame) for frame in shown)
        if left := len(frames) - len(shown):
            yield Line("folded", f"… {left} of libraries")
        is_first = False


def _java(text: str) -> list[_Part]:
    parts = [_Part("", [])]
    for line in text.split("\n"):
        if _CAUSE.match(line):
            parts.append(_Part(line.strip(), []))
        elif _FRAME.match(line):
            parts[-1].frames.append(line.strip())
        elif not parts[-1].frames:
            parts[-1] = parts[-1]._replace(head=f"{parts[-1].head} {line.strip()}".strip())
    return parts[::-1]


def _dotnet(text: str) -> list[_Part]:
    lines = text.split("\n")
    first = next((number for number, line in enumerate(lines) if _FRAME.match(line)), len(lines))
    heads = [head.strip() for head in " ".join(lines[:first]).split(" ---> ")]
    groups: list[list[str]] = [[]]
    for line in lines[first:]:
        if _END_OF_INNER.match(line):
            groups.append([])
        elif line.strip():
            groups[-1].append(line.strip())
    groups += [[] for _ in range(len(heads) - len(groups))]
    return [_Part(head, frames) for head, frames in zip(reversed(heads), groups, strict=False)]


def _python(text: str) -> list[_Part]:
    parts = []
    for chunk in _CHAINED.split(text)[::-1]:
        frames: list[str] = []
        said: list[str] = []
        for line in chunk.split("\n"):
            if _FRAME.match(line):
                frames.append(line.strip())
            elif line.startswith("    ") and frames and not said:
                frames[-1] += f": {line.strip()}"
            elif line.strip() and _TRACEBACK not in line:
                said.append(line.strip())
        parts.append(_Part(" ".join(said), frames[::-1]))
    return parts
