"""What every command gets: the configuration, the archive, and where its output goes."""

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dlq.core.errors import ConfigError
from dlq.core.text import block_for_terminal, cell_for_terminal, for_terminal, json_for_terminal

if TYPE_CHECKING:
    from rich.console import Console

    from dlq.core.settings import Settings
    from dlq.operations.progress import Line
    from dlq.operations.workspace import Workspace

OUTPUTS = ("table", "json", "jsonl", "csv")
DEFAULT_CONFIG = "dlq.toml"
_SIGNS = r"=+\-@\uff1d\uff0b\uff0d\uff20\ufe66\ufe62\ufe63\ufe6b\u2212\u207a\u207b\u207c\u208a\u208b\u208c"
_FORMULA = re.compile(rf"[\s\"']*[{_SIGNS}]|[\t\r\n]")
"""What a spreadsheet takes for the beginning of a formula; wide and small signs are of East Asia."""
_LATER_FORMULA = re.compile(rf"(?<![\s\"';|])((?:[^\S\t\r\n]|[\"'])*+[;|\t\r\n][\s\"';|]*+)(?=[{_SIGNS}])")
"""The same in a cell of its own, where a spreadsheet separates by something else than commas. A run of
blanks, quotes and separators is looked at once, as a whole."""
_SEPARATES = re.compile(r"[\",;|\t\r\n]")
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")


def to_stderr(line: str) -> None:
    """Write a line at once, also where standard error is a file."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def show_trace(error: BaseException) -> None:
    """Show the traceback of an error, on stderr; what strangers wrote in it is escaped."""
    to_stderr(trace_of(error))


def trace_of(error: BaseException) -> str:
    """Return a traceback that steers no terminal."""
    import traceback

    return block_for_terminal("".join(traceback.format_exception(error)).rstrip("\n"))


def _escape_logs() -> None:
    """Escape what libraries log and nobody handles, which Python writes on stderr: a broker's words, and
    letters'."""
    import logging

    class Escaped(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            return block_for_terminal(super().format(record))

    if logging.lastResort is not None:
        logging.lastResort.setFormatter(Escaped())


@dataclass(frozen=True)
class Context:
    """The common options, and what they lead to. Lazy: `--help` loads nothing."""

    config: str | None = None
    output_flag: str | None = None
    quiet: bool = False
    verbose: bool = False
    no_input: bool = False
    no_color: bool = False
    raw: bool = False
    proven: str | None = None
    """The name that was proven to `dlq serve`, which has begun this command."""

    @cached_property
    def settings(self) -> "Settings":
        """The configuration; without any file, the defaults (enough for import, analyze, report)."""
        from dlq.core.configuration import parse
        from dlq.operations import profile

        path = config_path(self.config)
        if path is None:
            return parse({}, os.environ)
        data = _read_toml(path)
        try:
            settings = parse(data, os.environ)
            profile.check(settings)
            return settings
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from error

    @cached_property
    def workspace(self) -> "Workspace":
        """What operations are given; they tell people what this context writes on stderr."""
        from dlq.operations.workspace import open_workspace

        _escape_logs()
        return open_workspace(self.settings, self, self.proven)

    def workspace_of(self, name: str | None) -> "Workspace":
        """Return `workspace` on behalf of `name`; None: of this process' user. Raises UsageError."""
        from dlq.replay.actor import check_claim

        return self.workspace if name is None else replace(self.workspace, name=check_claim(name))

    @property
    def output(self) -> str:
        """table on a terminal, jsonl in a pipe, unless `-o` says otherwise."""
        return self.output_flag or ("table" if sys.stdout.isatty() else "jsonl")

    @property
    def can_ask(self) -> bool:
        """Somebody sees what is asked, and can answer."""
        return not self.no_input and sys.stdin.isatty() and self.output == "table"

    @cached_property
    def console(self) -> "Console":
        """Where tables go."""
        from rich.console import Console

        colors: Literal["auto"] | None = None if wants_no_escapes(self.no_color) else "auto"
        return Console(color_system=colors, highlight=False, emoji=False, markup=False)

    def say(self, text: str) -> None:
        """Say something to people, on stderr; nothing with -q."""
        if not self.quiet:
            to_stderr(block_for_terminal(text))

    def complain(self, text: str) -> None:
        """Complain of a problem, on stderr, also with -q; what strangers wrote is escaped."""
        to_stderr(f"dlq: {for_terminal(text)}")

    def warn(self, text: str) -> None:
        """Warn of a danger that changes nothing now, on stderr, once per command."""
        if text not in self._warned:
            self._warned.add(text)
            self.complain(f"warning: {text}")

    @cached_property
    def _warned(self) -> set[str]:
        return set()

    def follow(self, lines: "Sequence[Line]") -> AbstractContextManager[None]:
        """Show progress on stderr while the block runs."""
        from dlq.cli.progress import progress

        return progress(self, lines)

    def emit(self, document: Mapping[str, Any], render: Callable[[], None] | None = None) -> None:
        """Print one object on stdout: `render` draws it on a terminal, csv has a heading and one row."""
        if self.output == "table" and render is not None:
            render()
        elif self.output == "csv":
            self.emit_rows(list(document), [list(document.values())])
        else:
            _write_json(document, indent=2 if self.output == "json" else None)

    def emit_rows(self, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Print rows on stdout in the chosen format; control characters never reach a terminal."""
        _ROWS[self.output](self, columns, rows)


def _read_toml(path: Path) -> Mapping[str, Any]:
    """Read a TOML file. Raises ConfigError."""
    import tomllib

    from dlq.connectors.local import user_files

    try:
        return tomllib.loads(user_files.text(path))
    except OSError as error:
        raise _unreadable(path, error) from error
    except (ValueError, RecursionError) as error:  # of TOML, UTF-8, numbers of thousands of digits, depth
        raise ConfigError(f"{path} is not TOML, correct it: {error}") from error


def say_what_is_not_classified(context: Context) -> None:
    """Say in a line for people how many letters have no verdict."""
    from dlq.operations.reading.views import count_not_classified

    if letters := count_not_classified(context.workspace):
        have = "1 letter has" if letters == 1 else f"{letters:,} letters have"
        context.say(f"{have} no verdict yet: dlq analyze")


def wants_no_escapes(flag: bool) -> bool:
    """Return whether --no-color, or NO_COLOR set to anything, forbids colours, bold and all other escapes."""
    return flag or bool(os.environ.get("NO_COLOR"))


def config_path(user_files: str | None) -> Path | None:
    """Return the configuration file: the flag, DLQ_CONFIG, ./dlq.toml, or the user's own; or None. What is
    there by one of these names is it, whatever it is: nobody wants the next one instead. Raises ConfigError
    for one that nobody has named and somebody else may have put there."""
    wanted = user_files or os.environ.get("DLQ_CONFIG")
    if wanted:
        return Path(wanted)
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    usual = (DEFAULT_CONFIG, os.path.join(home, "dlq", DEFAULT_CONFIG))
    found = next(filter(os.path.lexists, usual), None)
    if found is not None:
        _check_whose(found)
    return None if found is None else Path(found)


def _check_whose(path: str) -> None:
    from dlq.connectors.local.ownership import why_foreign

    try:
        why = why_foreign(path)
    except OSError as error:
        raise _unreadable(path, error) from error
    if why:
        named = path if os.path.isabs(path) else f"./{path}"
        raise ConfigError(
            f"{named} is not read: {why}, and a configuration can run programs; if you trust it, "
            f"name it: -c {named}"
        )


def _unreadable(path: str | Path, error: OSError) -> ConfigError:
    return ConfigError(f"cannot read {path}: {error.strerror}; write one with: dlq init")


def write_line(text: str) -> None:
    """Write data to stdout. A lone surrogate (from a hostile header) is written escaped, never a crash."""
    sys.stdout.buffer.write(text.encode("utf-8", "backslashreplace") + b"\n")
    sys.stdout.buffer.flush()


def _write_json(value: Any, indent: int | None = None) -> None:
    """Write a value as JSON on stdout."""
    write_line(json_for_terminal(_encoder(indent).encode(value)))


@cache
def _encoder(indent: int | None) -> json.JSONEncoder:
    """Return what `json.dumps` makes anew for each value."""
    return json.JSONEncoder(ensure_ascii=False, default=str, indent=indent)


def _table(context: Context, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    from dlq.cli.tables import draw

    cells = [[for_terminal(_text(value)) for value in row] for row in rows]
    unseen = draw(context.console, columns, cells)
    if unseen:
        context.say(f"{unseen} (-o json shows all)")


def _json(_context: Context, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    objects = [dict(zip(columns, row, strict=True)) for row in rows]
    _write_json(objects, indent=2)


def _jsonl(_context: Context, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    for row in rows:
        _write_json(dict(zip(columns, row, strict=True)))


def _csv(context: Context, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    shown = _text if context.raw else _cell
    for row in (columns, *rows):
        sys.stdout.write(",".join([_quote(shown(value)) for value in row]) + "\n")


def _quote(text: str) -> str:
    """Quote a text where a character separates, be it for one spreadsheet or another."""
    return '"{}"'.format(text.replace('"', '""')) if _SEPARATES.search(text) else text


def _cell(value: Any) -> str:
    """Return a cell that steers no terminal, and that no spreadsheet takes for a formula: `=1+1` becomes
    `'=1+1`."""
    text = _text(value)
    shown = for_terminal(text) if sys.stdout.isatty() else cell_for_terminal(text)
    if _NUMBER.fullmatch(text):
        return shown
    shown = _LATER_FORMULA.sub(r"\1'", shown)
    return f"'{shown}" if isinstance(value, str) and _FORMULA.match(text) else shown


def _text(value: Any) -> str:
    """Return a cell: nothing for null, JSON for maps and lists."""
    if value is None:
        return ""
    if isinstance(value, dict | list | tuple):
        return json.dumps(value, default=str, ensure_ascii=False)
    return str(value)


_ROWS: Mapping[str, Callable[[Context, Sequence[str], Iterable[Sequence[Any]]], None]] = {
    "table": _table,
    "json": _json,
    "jsonl": _jsonl,
    "csv": _csv,
}
