"""`dlq discover`: what looks like a dead-letter queue on the brokers, and sources for it."""

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dlq.archive.files import replacing
from dlq.cli import completion
from dlq.cli.connecting import connect
from dlq.cli.context import DEFAULT_CONFIG, Context
from dlq.cli.exit import ExitCode, code_of
from dlq.core.brokers import kind_of
from dlq.core.clock import iso
from dlq.core.errors import DlqError, UsageError
from dlq.core.suggestions import suggest

if TYPE_CHECKING:
    from dlq.connectors.base import DeadLetterPlace
    from dlq.core.settings import Settings

_COLUMNS = ("broker", "queue", "kind", "depth", "consumers", "oldest", "configured", "because")
_NO_NAME = re.compile(r"[^A-Za-z0-9._-]+")
"""What the name of a source has none of."""
Found = Mapping[str, "Sequence[DeadLetterPlace]"]
"""Broker -> what was found there."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(discover)


def discover(
    ctx: typer.Context,
    broker: Annotated[
        str | None,
        typer.Argument(autocompletion=completion.brokers, help="The broker to look at (default: all)."),
    ] = None,
    write: Annotated[
        bool, typer.Option("--write", help="Add a source for each that has none to the configuration.")
    ] = False,
) -> int:
    """List what looks like a dead-letter queue: by dead-letter arguments and policies, and by name.

    Nothing is changed on the broker. RabbitMQ is asked by its management API, ActiveMQ by Jolokia.

    Example: dlq discover && dlq discover --write
    """
    context: Context = ctx.obj
    known = context.settings.brokers
    if broker is not None and broker not in known:
        raise UsageError(
            f"unknown broker {broker!r}{suggest(broker, known)}; configured are: {', '.join(known)}"
        )
    return _run(context, [broker] if broker else list(known), write)


def look_and_write(context: Context) -> int:
    """Discover on all brokers, and add sources."""
    return _run(context, list(context.settings.brokers), write=True)


def _run(context: Context, brokers: Sequence[str], write: bool) -> int:
    found, errors = _look(context, brokers)
    _show(context, found)
    missing = (
        one
        for name, places in found.items()
        for one in places
        if not is_configured(context.settings, name, one)
    )
    if write:
        _write(context, found)
    elif any(missing):
        context.say("Next: dlq discover --write adds a source for each that has none")
    if not errors:
        return ExitCode.DONE
    return ExitCode.PARTLY if found else code_of(errors[0])


def _look(context: Context, brokers: Sequence[str]) -> tuple[Found, list[DlqError]]:
    found: dict[str, Sequence[DeadLetterPlace]] = {}
    errors: list[DlqError] = []
    for name in brokers:
        try:
            connector = connect(context, context.settings.brokers[name])
            try:
                found[name] = connector.discover()
            finally:
                connector.close()
        except DlqError as error:
            errors.append(error)
            context.complain(f"{name}: {error}")
    return found, errors


def is_configured(settings: "Settings", broker: str, place: "DeadLetterPlace") -> bool:
    """Whether a source reads it already."""
    wanted = {"queue": None, "topic": None, "group": None, "transactions": False, **place.source}
    return any(
        source.broker == broker
        and (
            all(getattr(source, name) == value for name, value in wanted.items())
            or any(
                pattern and kind_of(settings.brokers[broker].kind).means(pattern, place.name)
                for pattern in (source.queue, source.topic)
            )
        )
        for source in settings.sources.values()
    )


def _show(context: Context, found: Found) -> None:
    rows = {
        broker: [_row(context.settings, broker, one) for one in places] for broker, places in found.items()
    }
    if context.output == "json":
        context.emit({"brokers": [{"broker": broker, "queues": queues} for broker, queues in rows.items()]})
        return
    every = [
        [{"broker": broker, **row}[name] for name in _COLUMNS]
        for broker, all_of in rows.items()
        for row in all_of
    ]
    if not every:
        context.say("nothing there looks like a dead-letter queue")
    context.emit_rows(_COLUMNS, every)


def _row(settings: "Settings", broker: str, place: "DeadLetterPlace") -> dict[str, Any]:
    return {
        "queue": place.name,
        "kind": place.kind,
        "depth": place.depth,
        "consumers": place.consumers,
        "oldest": None if place.oldest is None else iso(place.oldest),
        "configured": is_configured(settings, broker, place),
        "because": place.because,
    }


def _write(context: Context, found: Found) -> None:
    path = Path(context.config or DEFAULT_CONFIG)
    try:
        text = path.read_text(encoding="utf-8")
        tables = new_sources(context.settings, found)
        if tables:
            with replacing(str(path)) as file:
                file.write((text.rstrip("\n") + "\n" + tables).encode())
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error
    context.say(f"{tables.count('[sources.')} sources added to {path}; look them over, then: dlq doctor")


def new_sources(settings: "Settings", found: Found) -> str:
    """TOML: a table for each place that no source reads."""
    taken = set(settings.sources)
    text = ""
    for broker, places in found.items():
        for place in places:
            if is_configured(settings, broker, place):
                continue
            name = _free_name(place, taken)
            taken.add(name)
            values = {"broker": broker, **place.source}
            text += f"\n[sources.{json.dumps(name)}]\n"
            text += "".join(
                f"{key} = {json.dumps(value, ensure_ascii=True)}\n" for key, value in values.items()
            )
    if text:
        tomllib.loads(text)  # whatever a broker calls its queues, the configuration stays readable
    return text


def _free_name(place: "DeadLetterPlace", taken: set[str]) -> str:
    """A name for a source, from that of its queue or group."""
    said = "transactions" if place.kind == "transactions" else str(next(iter(place.source.values())))
    name = _NO_NAME.sub("-", said).strip("._-") or "letters"
    return next(one for one in (name, *(f"{name}-{n}" for n in range(2, 10_000))) if one not in taken)
