"""`dlq init`: a commented dlq.toml to start from, or one for a broker and the dead letters that lie there."""

import json
import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.resources import files
from typing import Annotated

import typer

from dlq.cli.context import DEFAULT_CONFIG, Context
from dlq.cli.exit import ExitCode
from dlq.core.brokers import plugin_of, plugins
from dlq.core.configuration import parse
from dlq.core.errors import UsageError
from dlq.core.values import urls


def init(
    ctx: typer.Context,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    url: Annotated[
        str | None,
        typer.Option("--url", metavar="URL", help="A broker to look at, with a user and without a password."),
    ] = None,
    api: Annotated[
        str | None, typer.Option("--api", metavar="URL", help="RabbitMQ's management or ActiveMQ's Jolokia.")
    ] = None,
) -> int:
    """Write a commented dlq.toml into this folder.

    On a terminal it asks for a broker's URL and for a file with the password, looks for dead-letter queues
    there, and adds a source for each. With --url it asks nothing, and takes the password from the variable
    DLQ_PASSWORD.

    Example: dlq init --url amqp://dlq@rabbit.example/ --api https://rabbit.example:15671
    """
    from dlq.archive.storage.files import replacing

    context: Context = ctx.obj
    path = context.config or os.environ.get("DLQ_CONFIG") or DEFAULT_CONFIG
    if os.path.lexists(path) and not force:
        raise UsageError(f"{path} is there already; add --force to replace it")
    password_file = None
    if url is None and context.can_ask:
        url, password_file = _ask()
    example = files("dlq.cli").joinpath("example.toml").read_text(encoding="utf-8")
    if api and not url:
        raise UsageError("--api is of a broker; give it with --url URL")
    text = _of_broker(url, api, password_file) if url else example
    parse(tomllib.loads(text))  # what no command would read replaces nothing
    try:
        with replacing(path) as file:
            file.write(text.encode())
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}; name another file with -c FILE") from error
    if not url:
        context.emit(
            {"config": path}, lambda: context.console.print(f"wrote {path}; edit it, then: dlq doctor")
        )
        return ExitCode.DONE
    return _discover(replace(context, config=path))


def _ask() -> tuple[str, str | None]:
    """Ask for the URL of a broker and a file with its user's password, until both can be used. An empty URL
    stands for the example."""
    url = _prompt("URL of your broker, e.g. amqp://dlq@rabbit.example/ (empty: write an example)", _check_url)
    if "@" not in url:
        return url, None
    return url, _prompt("File that holds the password (empty: the variable DLQ_PASSWORD)", _readable) or None


def _prompt(text: str, check: Callable[[str], str]) -> str:
    return str(typer.prompt(text, default="", show_default=False, value_proc=check, err=True))


def _check_url(url: str) -> str:
    try:
        if url:
            _of_broker(url, None)
    except UsageError as error:
        raise typer.BadParameter(str(error)) from error
    return url


def _readable(name: str) -> str:
    """Return the absolute path of a file that can be read; nothing for nothing."""
    path = os.path.abspath(os.path.expanduser(name)) if name else ""
    if path and not (os.path.isfile(path) and os.access(path, os.R_OK)):
        raise typer.BadParameter(f"{path} cannot be read; name another file")
    return path


def _of_broker(url: str, api: str | None, password_file: str | None = None) -> str:
    """Return TOML of one broker. Raises UsageError."""
    scheme = url.partition(":")[0]
    known = {scheme: name for name, kind in plugins().items() for scheme in kind.schemes}
    name = known.get(scheme)
    if name is None:
        raise UsageError(f"--url: {scheme}:// is the scheme of no broker; known are {', '.join(known)}")
    kind = plugin_of(name)
    urls.check("--url", url, "the variable DLQ_PASSWORD, or into a file that password_file names")
    values = {"kind": name, "url": url}
    if password_file:
        values["password_file"] = password_file
    elif "@" in url:
        values["password_env"] = "DLQ_PASSWORD"  # noqa: S105 (the name of a variable)
    if found := api or kind.api_of(url):
        if kind.api is None:
            raise UsageError(f"--api has no meaning for a {name} broker; leave it out")
        values[kind.api] = found
    return f'archive = "./archive"\n\n[brokers.{name}]\n{_lines(values)}'


def _lines(values: Mapping[str, str]) -> str:
    return "".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items())


def _discover(context: Context) -> int:
    from dlq.cli.commands.discover import look_around

    return look_around(context)
