"""`dlq init`: a commented dlq.toml to start from, or one for a broker and the dead letters that lie there."""

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from importlib.resources import files
from typing import Annotated

import typer

from dlq.archive.files import replacing
from dlq.cli.context import DEFAULT_CONFIG, Context
from dlq.cli.exit import ExitCode
from dlq.core import urls
from dlq.core.brokers import kind_of, kinds
from dlq.core.errors import UsageError


def init(
    ctx: typer.Context,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    url: Annotated[
        str | None,
        typer.Option(
            "--url", help="A broker, with a user and no password: look for dead-letter queues there."
        ),
    ] = None,
    api: Annotated[
        str | None,
        typer.Option("--api", metavar="URL", help="RabbitMQ's management or ActiveMQ's Jolokia."),
    ] = None,
) -> int:
    """Write a commented dlq.toml into this folder.

    With --url it names that broker, and a source for each queue there that looks like one of dead letters.
    The password is taken from the variable DLQ_PASSWORD.

    Example: dlq init --url amqp://dlq@rabbit.example/ --api https://rabbit.example:15671
    """
    context: Context = ctx.obj
    path = context.config or DEFAULT_CONFIG
    example = files("dlq.cli").joinpath("example.toml").read_text(encoding="utf-8")
    text = example if url is None else _of_broker(url, api)
    try:
        if os.path.lexists(path) and not force:
            raise UsageError(f"{path} is there already; add --force to replace it")
        with replacing(path) as file:
            file.write(text.encode())
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}; name another one: -c FILE") from error
    if url is None:
        context.emit(
            {"config": path}, lambda: context.console.print(f"wrote {path}; edit it, then: dlq doctor")
        )
        return ExitCode.DONE
    return _discover(replace(context, config=path))


def _of_broker(url: str, api: str | None) -> str:
    """TOML of one broker. Raises UsageError."""
    scheme = url.partition(":")[0]
    known = {scheme: name for name, kind in kinds().items() for scheme in kind.schemes}
    name = known.get(scheme)
    if name is None:
        raise UsageError(f"--url: no broker is known by {scheme}://; known are {', '.join(known)}")
    kind = kind_of(name)
    urls.check("--url", url)
    values = {"kind": name, "url": url}
    if "@" in url:
        values["password_env"] = "DLQ_PASSWORD"  # noqa: S105 (the name of a variable)
    if found := api or kind.api_of(url):
        if kind.api is None:
            raise UsageError(f"--api means nothing to a {name} broker; leave it out")
        values[kind.api] = found
    return f'archive = "./archive"\n\n[brokers.{name}]\n{_lines(values)}'


def _lines(values: Mapping[str, str]) -> str:
    return "".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items())


def _discover(context: Context) -> int:
    from dlq.cli.commands.discover import look_around

    return look_around(context)
