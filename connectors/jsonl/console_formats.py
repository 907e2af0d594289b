"""Letters as consoles, command lines and logs print them: what the readers of each broker's prints share.

A reader is a pure function from the text to `Printed`. It takes a message only where the print leaves one
meaning: what is cut or ambiguous is named with its line, and the messages around it are read.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from dlq.core.brokers import plugins
from dlq.core.errors import UsageError
from dlq.core.runtime.bounded_json import Twice, once_each
from dlq.core.values.suggestions import suggest

_T = TypeVar("_T")
_BETWEEN = re.compile(r"[\s,\[\]]*")
_MOST_DAMAGED = 1000
"""More of them are no print of this kind; naming each costs as much as the text is long."""
_decoder = json.JSONDecoder(object_pairs_hook=once_each)
_any_decoder = json.JSONDecoder()
_NO_UTF8 = re.compile("[\ud800-\udfff]")
"""What stands for bytes that are none."""


class Unreadable(ValueError):
    """Why a part of a print is no letter, in words."""


def text_of(shown: Mapping[str, Any], name: str) -> str:
    """Return a text that every message has. Raises Unreadable."""
    if isinstance(value := shown.get(name), str):
        return value
    raise Unreadable(f"no message: {name} must be text" if name in shown else f"no message: it has no {name}")


def check_bytes(text: str, start: int, end: int) -> None:
    """Check that this part of a print was UTF-8. Raises Unreadable."""
    if _NO_UTF8.search(text, start, end):
        raise Unreadable("it holds bytes that are no UTF-8; print it anew as UTF-8, or convert the file")


class Printed(NamedTuple):
    """What a print holds, each with the number of the line where it begins."""

    letters: list[tuple[int, dict[str, Any]]]
    """Objects as the lines of `dlq import` have them."""
    unread: list[tuple[int, str]]
    """What could not be read, and why."""


Reader = Callable[[str], Printed]


def printers() -> Mapping[str, str]:
    """Return what prints messages -> the reference to its reader, as the brokers' descriptions name them."""
    return {name: reader for kind in plugins().values() for name, reader in kind.prints.items()}


def reader_of(name: str) -> str:
    """Return the reference to a reader; raises UsageError for a name that no description has."""
    known = printers()
    if name not in known:
        raise UsageError(
            f"--from {name!r}: one of {', '.join(sorted(known))}{suggest(name, [*known])}; choose one"
        )
    return known[name]


def collect(
    parts: Iterable[tuple[int, _T | Unreadable]], letter_of: Callable[[_T], dict[str, Any]]
) -> Printed:
    """Return the letters of the parts; what is none, or makes `letter_of` raise Unreadable, is unread."""
    printed = Printed([], [])
    for line, part in parts:
        try:
            if isinstance(part, Unreadable):
                raise part
            printed.letters.append((line, letter_of(part)))
        except Unreadable as why:
            printed.unread.append((line, str(why)))
    return printed


def objects(text: str) -> Iterator[tuple[int, dict[str, Any] | Unreadable]]:
    """Yield the JSON objects in a text: bare, in arrays, or several answers one after another.

    After one that is damaged it goes on in a later line that begins as far to the left as it did.
    """
    at = counted = damaged = 0
    line = 1
    while (at := _after_blanks(text, at)) < len(text):
        line += text.count("\n", counted, at)
        counted = at
        try:
            value, end = _decoder.raw_decode(text, at)
            check_bytes(text, at, end)
            at = end
        except (Twice, Unreadable) as error:
            yield line, Unreadable(str(error))
            at = _any_decoder.raw_decode(text, at)[1]
        except json.JSONDecodeError as error:
            if error.msg.startswith("Invalid control"):
                yield line, Unreadable("no JSON: a line break within a text; nothing after it is read")
                return
            at = _next_start(text, at, error.pos)
            yield line, Unreadable(f"no JSON: {error.msg} in line {error.lineno}; its rest is not read")
            damaged += 1
            if damaged == _MOST_DAMAGED:
                yield error.lineno, Unreadable(f"{damaged} places are no JSON; nothing after them is read")
                return
        except (ValueError, RecursionError) as error:
            yield line, Unreadable(f"no JSON: {error}; nothing after it is read")
            return
        else:
            yield line, value if isinstance(value, dict) else Unreadable("not a JSON object")


def _after_blanks(text: str, at: int) -> int:
    found = _BETWEEN.match(text, at)
    return found.end() if found else at


def _next_start(text: str, start: int, damage: int) -> int:
    column = min(start - text.rfind("\n", 0, start) - 1, 255)
    found = re.compile(rf"^[ \t]{{0,{column}}}[\[{{]", re.MULTILINE).search(text, damage)
    return found.start() if found else len(text)
