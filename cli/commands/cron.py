"""`dlq cron`: the text that runs a profile by itself."""

import os
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from dlq.cli import completion, schedules
from dlq.cli.context import Context, config_path, write_line
from dlq.cli.schedules import Call
from dlq.core.errors import UsageError
from dlq.core.values.suggestions import suggest
from dlq.core.values.units import seconds

if TYPE_CHECKING:
    from dlq.core.settings import Settings

_PATH = ("/usr/local/bin", "/usr/bin", "/bin")


class _Format(NamedTuple):
    """What runs a profile, and the line above it that says where it goes."""

    make: Callable[[Call], str | dict[str, str]]
    heading: str

    def text(self, call: Call, headed: bool) -> str:
        """Return the text as it is read; several files have their names above them in any case."""
        made = self.make(call)
        if isinstance(made, dict):
            return "\n".join(f"# /etc/systemd/system/{name}\n{text}" for name, text in made.items())
        return f"{self.heading}\n{made}\n" if headed else made


_FORMATS: Mapping[str, _Format] = {
    "crontab": _Format(schedules.crontab, "# crontab -e"),
    "systemd": _Format(schedules.systemd, ""),
    "kubernetes": _Format(schedules.kubernetes, "# kubectl apply -f -"),
}


def cron(
    ctx: typer.Context,
    profile: Annotated[
        str,
        typer.Argument(metavar="PROFILE", autocompletion=completion.profiles, help="Its name in dlq.toml."),
    ],
    every: Annotated[str, typer.Option(metavar="TIME", help="How often, e.g. 15m, 6h, 1d.")] = "15m",
    format_: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="|".join(_FORMATS),
            autocompletion=completion.schedules,
            help="Print this one alone, as its program reads it (default: all).",
        ),
    ] = None,
) -> None:
    """Print a crontab line, systemd timer or CronJob for a profile.

    It installs nothing. All paths are absolute; relative ones in the configuration count from this folder.

    Example: dlq cron nightly --every 15m --format crontab
    """
    context: Context = ctx.obj
    if format_ is not None and format_ not in _FORMATS:
        raise UsageError(
            f"--format must be {', '.join(_FORMATS)}, not {format_!r}{suggest(format_, _FORMATS)}"
        )
    call = _call(context, profile, every)
    wanted = _FORMATS if format_ is None else {format_: _FORMATS[format_]}
    if context.output_flag in ("json", "jsonl"):
        context.emit({name: form.make(call) for name, form in wanted.items()})
    else:
        texts = [form.text(call, format_ is None) for form in wanted.values()]
        write_line("\n".join(texts).rstrip("\n"))
    if call.secrets:
        context.say(f"These variables must be set where it runs: {', '.join(call.secrets)}")


def _call(context: Context, name: str, every: str) -> Call:
    from importlib.metadata import version

    from dlq.operations.profile import find_profile

    profile = find_profile(context.settings, name)
    schedules.schedule(every)
    config = config_path(context.config)
    words = [
        _program(),
        *(["-c", str(config.absolute())] if config else []),
        "-q",
        "run",
        name,
        "--skip-if-busy",
    ]
    return Call(
        profile=name,
        every=every,
        words=words,
        folder=str(Path.cwd()),
        environment=_environment(),
        secrets=_secrets(context.settings),
        max_seconds=None if profile.max_time is None else seconds(profile.max_time),
        image=f"dlq:{version('dlq')}",
    )


def _program() -> str:
    """Return the absolute path of this dlq: that of the environment that runs it, not of a shell's PATH."""
    beside = Path(sys.executable).with_name("dlq")
    return str(beside) if beside.exists() else os.path.abspath(sys.argv[0])


def _environment() -> dict[str, str]:
    """Return a PATH and more: cron's is nearly empty; Spark needs java, and its scripts the usual tools."""
    java = shutil.which("java")
    folders = dict.fromkeys([*([os.path.dirname(java)] if java else []), *_PATH])
    home = os.environ.get("JAVA_HOME")
    return {"PATH": ":".join(folders), **({"JAVA_HOME": home} if home else {})}


def _secrets(settings: "Settings") -> list[str]:
    holders = [*settings.brokers.values(), *settings.evidence.values(), settings.ledger]
    names = [getattr(holder, key, None) for holder in holders for key in ("password_env", "secret_key_env")]
    return sorted({name for name in names if name})
