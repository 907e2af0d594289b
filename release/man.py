"""Writes a manual page for each command: `python release/man.py FOLDER`, with the installed `dlq`."""

import os
import re
import sys
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from dlq.cli.app import command_line
from dlq.cli.exit import MEANS


def pages() -> Iterator[tuple[str, str]]:
    """(file name, content) of `dlq` and of every command."""
    return _of(command_line(), ("dlq",), None)


def _of(command: Any, words: tuple[str, ...], parent: Any) -> Iterator[tuple[str, str]]:
    settings = command.context_settings
    context = command.context_class(command, info_name=words[-1], parent=parent, **settings)
    yield f"{'-'.join(words)}.1", _page(command, words, context)
    for name, inner in getattr(command, "commands", {}).items():
        if not inner.hidden:
            yield from _of(inner, (*words, name), context)


def _page(command: Any, words: tuple[str, ...], context: Any) -> str:
    name, text = "-".join(words), _plain(command.help or "")
    first, _, more = text.partition("\n\n")
    usage = command.get_usage(context).removeprefix("Usage:").strip()
    parts = [
        f'.TH "{name.upper()}" 1 "{_day()}" "dlq {version("dlq")}" "dlq"\n',
        f".SH NAME\n{roff(name)} \\- {roff(' '.join(first.split()).rstrip('.'))}\n",
        f".SH SYNOPSIS\n{roff(' '.join(usage.split()))}\n",
        f".SH DESCRIPTION\n{_paragraphs(more)}" if more else "",
        _table("OPTIONS", (p.get_help_record(context) for p in command.get_params(context))),
        _table("COMMANDS", _commands(command)),
        _table("EXIT STATUS", ((str(code.value), means) for code, means in MEANS.items())),
        f".SH SEE ALSO\n{roff(_related(command, words))}\n",
    ]
    return "".join(parts)


def roff(text: str) -> str:
    """Text as it is to be read: no line is a request of troff's, and every hyphen may be copied."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", escaped, flags=re.MULTILINE)


def _plain(text: str) -> str:
    return re.sub(r"[`\b]", "", text).strip()


def _paragraphs(text: str) -> str:
    return "".join(f".PP\n{roff(part.strip())}\n" for part in text.split("\n\n") if part.strip())


def _table(title: str, rows: Any) -> str:
    found = [f".TP\n{_name(row[0])}\n{roff(_plain(row[1]) or '-')}\n" for row in rows if row]
    return f".SH {title}\n{''.join(found)}" if found else ""


def _name(text: str) -> str:
    return f"\\fB{roff(text.removesuffix(' <list[str]>'))}\\fR"


def _commands(command: Any) -> list[tuple[str, str]]:
    found = getattr(command, "commands", {}).items()
    return [(name, inner.get_short_help_str(200)) for name, inner in found if not inner.hidden]


def _related(command: Any, words: tuple[str, ...]) -> str:
    inner = [f"{'-'.join(words)}-{name}(1)" for name, _ in _commands(command)]
    above = [f"{'-'.join(words[:-1])}(1)"] if len(words) > 1 else []
    return ", ".join([*above, *inner])


def _day() -> str:
    moment = int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))
    return time.strftime("%Y-%m-%d", time.gmtime(moment))


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for file_name, content in pages():
        (folder / file_name).write_text(content, encoding="utf-8")
