"""`dlq init`: a commented dlq.toml to start from."""

import os
from importlib.resources import files
from typing import Annotated

import typer

from dlq.archive.files import replacing
from dlq.cli.context import DEFAULT_CONFIG, Context
from dlq.core.errors import UsageError


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(init)


def init(
    ctx: typer.Context,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
) -> None:
    """Write a commented dlq.toml into this folder.

    Example: dlq init && $EDITOR dlq.toml && dlq doctor
    """
    context: Context = ctx.obj
    path = context.config or DEFAULT_CONFIG
    text = files("dlq.cli").joinpath("example.toml").read_text(encoding="utf-8")
    try:
        if os.path.lexists(path) and not force:
            raise UsageError(f"{path} is there already; --force replaces it")
        with replacing(path) as file:
            file.write(text.encode())
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error
    context.emit({"config": path}, lambda: context.console.print(f"wrote {path}; edit it, then: dlq doctor"))
