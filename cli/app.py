"""The command `dlq`: common options, error handling, and the table of commands."""

import errno
import io
import os
import re
import resource
import select
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from importlib import import_module
from itertools import chain, islice
from types import FrameType
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from dlq.cli import completion
from dlq.cli.context import OUTPUTS, Context, show_trace, trace_of, wants_no_escapes
from dlq.cli.exit import ExitCode, code_of
from dlq.cli.memory import bound_for_now, bound_memory
from dlq.core.brokers import all_named
from dlq.core.errors import DlqError, UsageError, unwrap_interrupt, with_next_step
from dlq.core.text import encodable, for_terminal
from dlq.core.values.suggestions import suggest
from dlq.core.values.units import MOST

_COMMANDS = {
    "Begin": ("demo", "init", "discover", "doctor", "coverage"),
    "Archive": ("pull", "import_", "export", "verify", "retain"),
    "Explain": ("analyze", "report", "ls", "show", "query", "incidents", "failures", "rules"),
    "Replay": ("replay", "dismiss", "watch", "ledger"),
    "Automate and share": ("run", "cron", "serve", "mcp"),
}
"""Panel of the help -> modules of dlq.cli.commands: each has a function of its own name, which is the
command."""
_MODULES = {name.strip("_"): name for name in chain(*_COMMANDS.values())}
"""Command -> its module."""
_OF_SEVERAL = {"failures", "replay", "ledger"}
"""Those that are several commands, which they `register` themselves."""

_HELP = f"Archive, explain and replay dead-letter queues of {all_named()}."
_EPILOG = "Start with dlq init or dlq demo. These options may also follow the command."
_SETTINGS = {"help_option_names": ["-h", "--help"]}
_OUTPUT_HELP = "table, json, jsonl or csv."
_COMMON_FLAGS = {"--quiet", "--verbose", "--no-input", "--no-color", "--raw"}
_COMMON_VALUES = {"--config", "--output"}
_NO_ROOM = {
    errno.ENOSPC: "no space is left on the device",
    errno.EDQUOT: "the quota of disk space is used up",
    errno.EFBIG: "a file may not be so large",
}
_NOWHERE = "No usable temporary directory"
"""What `tempfile` says on a host with nothing but file systems that can only be read."""
_UNLISTED = {"install_completion", "show_completion", "help"}
"""What is used once, as the page on installing says, and what was just typed."""
_FILES = {"config", "file", "client_log", "body", "out", "edit", "folder"}
"""What names files, by any bytes that the file system has."""
_COMMON_SHORT = re.compile(r"-(?=[qvco])([qv]*)(?:([co])=?(.*))?")
"""Short options, glued as everywhere: `-qv`, `-ocsv`, `-o=csv`."""


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"dlq {version('dlq')}")
        raise typer.Exit()


def _common(
    ctx: typer.Context,
    config: Annotated[
        str | None,
        typer.Option("-c", "--config", metavar="FILE", help="Configuration file (default: dlq.toml)."),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "-o", "--output", metavar="FORMAT", autocompletion=completion.outputs, help=_OUTPUT_HELP
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Print no progress and no hints.")] = False,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Print details and tracebacks.")] = False,
    no_input: Annotated[bool, typer.Option("--no-input", help="Never prompt.")] = False,
    no_color: Annotated[bool, typer.Option("--no-color", help="Print no colours (also NO_COLOR).")] = False,
    raw: Annotated[bool, typer.Option("--raw", help="Leave formulas in CSV unescaped.")] = False,
    _show_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Take the common options, which may stand before or after the command."""
    if output is not None and output not in OUTPUTS:
        raise UsageError(
            f"unknown output {output!r}{suggest(output, OUTPUTS)}; known are {', '.join(OUTPUTS)}"
        )
    ctx.obj = Context(config, output, quiet, verbose, no_input, no_color, raw, ctx.obj)


class _Group(TyperGroup):
    """Completes the value of a common option behind a command, too: `hoist` is for commands that run."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """Leave arguments out: a shell asks with what stands before the word to be completed."""
        of_ours = extra.get("resilient_parsing") and args and args[-1] in {*_COMMON_VALUES, "-c", "-o"}
        return super().make_context(info_name, [] if of_ours else args, parent, **extra)


class _Commands(Mapping[str, Any]):
    """The commands in the order of the help, each made when it is first asked for: to make all of them takes
    as long as to read the configuration and the archive."""

    def __getitem__(self, name: str) -> Any:
        return _command(name)

    def __iter__(self) -> Iterator[str]:
        return iter(_MODULES)

    def __len__(self) -> int:
        return len(_MODULES)


@cache
def _command(name: str) -> Any:
    """Return a command, with all that is below it. Raises KeyError where there is none."""
    module = import_module(f"dlq.cli.commands.{_MODULES[name]}")
    app = typer.Typer(add_completion=False)
    app.callback()(_common)  # without one it would be the command itself
    if name in _OF_SEVERAL:
        module.register(app)
    else:
        app.command(name)(getattr(module, _MODULES[name]))
    group: Any = typer.main.get_command(app)
    command = group.commands[name]
    command.rich_help_panel = next(panel for panel, names in _COMMANDS.items() if _MODULES[name] in names)
    _check_words(command)
    _shape_help(command)
    return command


@cache
def command_line() -> Any:
    """Return the group of all commands, made once in a process; heavy imports happen inside the commands."""
    app = typer.Typer(
        cls=_Group,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        epilog=_EPILOG,
        context_settings=_SETTINGS,
    )
    app.callback(help=_HELP)(_common)
    command: Any = typer.main.get_command(app)
    _check_words(command)
    command.commands = _Commands()
    for word in (*command.params, command.get_help_option(command.context_class(command, **_SETTINGS))):
        word.hidden = word.name in _UNLISTED
    return command


def _shape_help(command: Any) -> None:
    """Let paragraphs flow to the terminal's width, and spend no line on --help, which was just typed."""
    paragraphs = command.help.split("\n\n")
    command.help = "\n\n".join(" ".join(each.split()) for each in paragraphs)
    command.get_help_option(command.context_class(command, **_SETTINGS)).hidden = True
    for each in getattr(command, "commands", {}).values():
        _shape_help(each)


def _check_words(command: Any) -> None:
    """Look at each value of each option and argument before the command does; the help shows no type of a
    flag."""
    for word in command.params:
        if word.callback is None:
            word.callback = _check_value
        if getattr(word, "is_flag", False):
            word.metavar = ""
    for each in getattr(command, "commands", {}).values():
        _check_words(each)


def _check_value(ctx: typer.Context, word: Any, value: Any) -> Any:
    """Check that it has a value: `--failure "$F"` without F means neither all letters nor none, and no
    database takes what is no text. SQL makes much of little. Raises UsageError."""
    is_given = ctx.get_parameter_source(word.name).name == "COMMANDLINE"  # type: ignore[union-attr]
    values = value if isinstance(value, list | tuple) else (value,)
    is_option = word.param_type_name == "option"
    called = word.opts[0] if is_option else word.name.upper().strip("_")
    if is_option and is_given and "" in values and word.name != "reason":  # which nobody has to give
        raise UsageError(f"{called} is empty: give it a value, or leave it out")
    if word.name not in _FILES and any(isinstance(each, str) and each != encodable(each) for each in values):
        raise UsageError(f"{called} is not UTF-8; write it in UTF-8")
    if any(isinstance(each, int) and each > MOST for each in values):
        raise UsageError(f"{called} must be {MOST} at most")
    if word.name == "where" and value:
        bound_memory()
    return value


def hoist(arguments: Sequence[str]) -> list[str]:
    """Move common options to the front, wherever they stand, so that both orders work. Raises UsageError."""
    front: list[str] = []
    rest: list[str] = []
    words, command = iter(arguments), command_line()
    for word in words:
        if word == "--":
            rest += [word, *words]
        elif word in _COMMON_FLAGS or word.startswith(("--config=", "--output=")):
            front.append(word)
        elif word in _COMMON_VALUES:
            front += [word, _value_of(word, words)]
        elif _takes_value(command, word):
            rest += [word, *islice(words, 1)]
        elif short := _COMMON_SHORT.fullmatch(word):
            flags, letter, value = short.groups()
            front += [f"-{flag}" for flag in flags]
            front += [f"-{letter}", value or _value_of(f"-{letter}", words)] if letter else []
        else:
            rest.append(word)
            command = getattr(command, "commands", {}).get(word, command)
    return front + rest


def _takes_value(command: Any, word: str) -> bool:
    """Return whether a word is an option of the command behind which a value stands: `--sort -cause`."""
    options = [one for one in command.params if one.param_type_name == "option"]
    return any(word in one.opts and not one.is_flag for one in options)


def _value_of(option: str, words: Iterator[str]) -> str:
    value = next(words, None)
    if value is None:
        raise UsageError(f"{option} needs a value; write one after it")
    return value


def _interrupt(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def main(arguments: Sequence[str] | None = None, proven: str | None = None) -> None:
    """Run the command line, under a name that was proven to `dlq serve`, and exit with its code."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # the caller closed it: `dlq ls >&-`
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # cron's locale may know nothing but ASCII
    _leave_no_core()
    given = list(sys.argv[1:] if arguments is None else arguments)
    signal.signal(signal.SIGTERM, _interrupt)
    sys.exit(run(given, proven))


def _leave_no_core() -> None:
    """Leave no core: letters and passwords are in our memory, and in our children's. A limit of one byte also
    keeps the kernel from handing a core to a program, which a limit of none does not (fs/coredump.c)."""
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    most = 1 if hard == resource.RLIM_INFINITY else min(1, hard)
    resource.setrlimit(resource.RLIMIT_CORE, (most, most))


def run(arguments: Sequence[str], proven: str | None = None) -> int:
    """Run a command line: print, and return the exit code."""
    with _watching_outputs() as outputs, bound_for_now():
        return _run(arguments, outputs, proven)


def _run(arguments: Sequence[str], outputs: select.poll, proven: str | None) -> int:
    words = arguments
    try:
        words = hoist(arguments)
        if wants_no_escapes("--no-color" in words):
            _draw_help_plainly()
        result = command_line().main(words, prog_name="dlq", standalone_mode=False, obj=proven)
        sys.stdout.flush()
    except DlqError as error:
        return _complain(with_next_step(error), code_of(error))
    except typer.TyperException as error:
        return _complain(_with_help(error), ExitCode.USAGE) if str(error) else ExitCode.USAGE
    except (KeyboardInterrupt, typer.Abort):
        return _complain("interrupted", ExitCode.INTERRUPTED)
    except (BrokenPipeError, SystemExit) as end:
        # Of a closed pipe typer and rich make an exit with 1, but who closed it has read enough.
        broken = end.__context__ if isinstance(end, SystemExit) else end
        if not isinstance(broken, BrokenPipeError):
            raise
        if not any(event & select.POLLERR for _, event in outputs.poll(0)):
            return _report_unexpected(broken, words)  # a broker's socket breaks in the same way
        _drop_stdout()
        return ExitCode.DONE
    except Exception as error:  # noqa: BLE001 (the last resort: a user never sees a traceback unasked)
        if unwrap_interrupt(error) is not error:
            return _complain("interrupted", ExitCode.INTERRUPTED)
        return _last_resort(error, words)
    return int(result) if isinstance(result, int) else ExitCode.DONE


def _drop_stdout() -> None:
    """Drop standard output: what is not written yet would be tried again, and fail again, at the end of the
    process."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _draw_help_plainly() -> None:
    """Draw --help plainly, which Typer draws itself, before it has looked at any option."""
    from typer import rich_utils

    rich_utils.COLOR_SYSTEM = None


@contextmanager
def _watching_outputs() -> Iterator[select.poll]:
    """Tell of errors of standard output and error, also where rich has put another file in their place."""
    outputs = select.poll()
    with ExitStack() as opened:
        for descriptor in (1, 2):
            with suppress(OSError):  # closed by the caller
                copy = os.dup(descriptor)
                opened.callback(os.close, copy)
                outputs.register(copy, 0)  # the kernel always tells of errors
        yield outputs


def _with_help(error: typer.TyperException) -> str:
    """Return what typer says, and where to read on."""
    context = getattr(error, "ctx", None)
    text = error.format_message()
    return text if context is None else f"{text.rstrip('.')}; see {context.command_path} --help"


def _complain(text: str, code: ExitCode) -> ExitCode:
    with suppress(BrokenPipeError):  # nobody reads it
        sys.stderr.write(f"dlq: {for_terminal(text)}\n")
        sys.stderr.flush()
    return code


def _last_resort(error: Exception, words: Sequence[str]) -> ExitCode:
    if getattr(error, "errno", None) in _NO_ROOM:
        return _full(error)
    if isinstance(error, FileNotFoundError) and _NOWHERE in str(error):
        return _complain(f"{error.strerror}: set TMPDIR to a folder that can be written", ExitCode.USAGE)
    return _report_unexpected(error, words)


def _full(error: Exception) -> ExitCode:
    _drop_stdout()
    name = getattr(error, "filename", None)
    place = f"for {name}" if name else "where the output goes"
    why = _NO_ROOM[getattr(error, "errno", 0)]
    return _complain(f"{why} {place}: make room, and run it again", ExitCode.PARTLY)


def _report_unexpected(error: Exception, words: Sequence[str]) -> ExitCode:
    import tempfile

    if {"-v", "--verbose"} & set(words):
        show_trace(error)
    kept = "there is no room for the details, which -v shows"
    with suppress(OSError):
        with tempfile.NamedTemporaryFile(prefix="dlq-error-", suffix=".txt", delete=False) as file:
            file.write(f"{trace_of(error)}\n".encode())
        kept = f"the details are in {file.name}"
    return _complain(f"unexpected {type(error).__name__}: {error}; {kept}", ExitCode.UNEXPECTED)
