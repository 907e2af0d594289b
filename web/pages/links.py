"""The page that shows, or begins, what a command does."""

import re
import shlex
from collections.abc import Mapping, Sequence
from itertools import pairwise

from dlq.web.render import make_address

_PAGES = {
    ("show",): "/letters/{}",
    ("ls",): "/letters",
    ("replay", "plan"): "/plans/new",
    ("query",): "/plans",
    ("verify",): "/books",
}
"""The words that a command begins with -> its page; `{}` is the next word."""
_EQUALS = re.compile(r"(\w+) = '(\w+)'")
"""A condition that is one of the filters."""


def find_page(command: str) -> str:
    """Return an address of ours; nothing where no page does the same."""
    words = shlex.split(command)[1:]
    for begin, page in _PAGES.items():
        if tuple(words[: len(begin)]) == begin:
            rest = words[len(begin) :]
            return page.format(*rest) if "{}" in page else make_address(page, **_read_options(rest))
    return ""


_COMMAND = re.compile(r"[:;] dlq .*")


def list_steps(next_: Sequence[Mapping[str, str]]) -> list[tuple[str, str, str]]:
    """Return what is left to do by `next` of a report: why, its page, its command. The incident to look at
    first is the answer itself."""
    return [
        (_COMMAND.sub("", step["why"]), find_page(step["command"]), step["command"])
        for step in next_
        if " --incident " not in step["command"]
    ]


def _read_options(words: Sequence[str]) -> dict[str, str]:
    given: dict[str, str] = {}
    for option, value in pairwise(words):
        if option.startswith("--") and not value.startswith("--"):
            found = _EQUALS.fullmatch(value) if option == "--where" else None
            given |= {found[1]: found[2]} if found else {option.removeprefix("--"): value}
    return given
