"""`dlq discover`: what looks like a dead-letter queue on the brokers, and sources for it."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dlq.cli import completion
from dlq.cli.context import DEFAULT_CONFIG, Context, config_path
from dlq.cli.exit import ExitCode, code_of
from dlq.core.errors import UsageError

if TYPE_CHECKING:
    from dlq.operations.brokers.discovering import Discovered

_COLUMNS = ("broker", "queue", "kind", "depth", "consumers", "oldest", "configured", "because")


def discover(
    ctx: typer.Context,
    broker: Annotated[
        str | None,
        typer.Argument(autocompletion=completion.brokers, help="The broker to look at (default: all)."),
    ] = None,
    write: Annotated[
        bool, typer.Option("--write", help="Add each queue without a source to the configuration.")
    ] = False,
) -> int:
    """List dead-letter queues, found by arguments, policies and names.

    This changes nothing on the broker. It asks RabbitMQ's management API and ActiveMQ's Jolokia.

    Example: dlq discover && dlq discover --write
    """
    return look_around(ctx.obj, broker, write)


def look_around(context: Context, broker: str | None = None, write: bool = True) -> int:
    """Show what looks like a dead-letter queue on this broker, or on all, and perhaps add sources."""
    from dlq.operations.brokers.discovering import discover as look

    found = look(context.workspace, broker)
    _show(context, found.document)
    if write:
        _write(context, found)
    elif any(not queue["configured"] for one in found.document["brokers"] for queue in one["queues"]):
        context.say(f"Next: dlq discover --write adds the queues without a source to {_path_of(context)}")
    if not found.errors:
        return ExitCode.DONE
    return ExitCode.PARTLY if found.places else code_of(next(iter(found.errors.values())))


def _show(context: Context, document: Mapping[str, Any]) -> None:
    if context.output == "json":
        context.emit(document)
        return
    every = [
        [{"broker": one["broker"], **queue}[name] for name in _COLUMNS]
        for one in document["brokers"]
        for queue in one["queues"]
    ]
    answered = [one["broker"] for one in document["brokers"]]
    if answered and not every:
        context.say(
            f"nothing on {', '.join(answered)} looks like a dead-letter queue, as far as the user may see"
        )
    if every or context.output != "table":
        context.emit_rows(_COLUMNS, every)


def _path_of(context: Context) -> Path:
    return config_path(context.config) or Path(DEFAULT_CONFIG)


def _write(context: Context, found: "Discovered") -> None:
    from dlq.archive.storage.files import keep_rights, replacing
    from dlq.connectors.local import user_files
    from dlq.operations.brokers.discovering import write_sources

    path = _path_of(context)
    try:
        text = user_files.text(path)
        tables = write_sources(context.settings, found.places)
        if tables:
            tomllib.loads(whole := text.rstrip("\n") + "\n" + tables)  # it stays readable
            with replacing(path.resolve()) as file:
                keep_rights(file, path)
                file.write(whole.encode())
    except tomllib.TOMLDecodeError as error:
        raise UsageError(
            f"{path} takes no more tables of sources ({error}), so nothing was added: give each source that "
            "it has a table of its own, [sources.NAME]"
        ) from error
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}; check the file's rights") from error
    if found.errors:
        next_step = f"fix what the error names (settings: {path}), then: dlq discover --write"
    else:
        next_step = "check them, then: dlq doctor" if tables else "add one to it, then: dlq doctor"
    context.say(f"{tables.count('[sources.')} sources added to {path}; {next_step}")
