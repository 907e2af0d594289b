"""`dlq cron`: the text that runs a profile by itself."""

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dlq.cli import completion, schedules
from dlq.cli.context import Context, config_path, write_line
from dlq.cli.schedules import Call
from dlq.core.units import seconds

if TYPE_CHECKING:
    from dlq.core.settings import Settings

_PATH = ("/usr/local/bin", "/usr/bin", "/bin")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(cron)


def cron(
    ctx: typer.Context,
    profile: Annotated[
        str,
        typer.Argument(metavar="PROFILE", autocompletion=completion.profiles, help="Its name in dlq.toml."),
    ],
    every: Annotated[str, typer.Option(help="How often, e.g. 15m, 6h, 1d.")] = "15m",
) -> None:
    """Print what runs a profile by itself: a crontab line, a systemd service and timer, a Kubernetes CronJob.

    Nothing is installed. All paths are absolute; relative ones of the configuration count from this folder.

    Example: dlq cron nightly --every 15m
    """
    context: Context = ctx.obj
    call = _call(context, profile, every)
    crontab, units, kubernetes = schedules.crontab(call), schedules.systemd(call), schedules.kubernetes(call)
    if context.output_flag in ("json", "jsonl"):
        context.emit({"crontab": crontab, "systemd": units, "kubernetes": kubernetes})
    else:
        write_line(_text(crontab, units, kubernetes))
    if call.secrets:
        context.say(f"These variables must be set where it runs: {', '.join(call.secrets)}")


def _text(crontab: str, units: dict[str, str], kubernetes: str) -> str:
    files = "\n".join(f"# /etc/systemd/system/{name}\n{text}" for name, text in units.items())
    return f"# crontab -e\n{crontab}\n\n{files}\n# kubectl apply -f -\n{kubernetes}".rstrip("\n")


def _call(context: Context, name: str, every: str) -> Call:
    from importlib.metadata import version

    from dlq.cli.profile import named

    profile = named(context.settings, name)
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
    """This dlq, by its absolute path: that of the environment that runs it, not of a shell's PATH."""
    beside = Path(sys.executable).with_name("dlq")
    return str(beside) if beside.exists() else os.path.abspath(sys.argv[0])


def _environment() -> dict[str, str]:
    """Cron's PATH is nearly empty; Spark needs java, and its scripts the usual tools."""
    java = shutil.which("java")
    folders = dict.fromkeys([*([os.path.dirname(java)] if java else []), *_PATH])
    home = os.environ.get("JAVA_HOME")
    return {"PATH": ":".join(folders), **({"JAVA_HOME": home} if home else {})}


def _secrets(settings: "Settings") -> list[str]:
    holders = [*settings.brokers.values(), *settings.evidence.values(), settings.ledger]
    names = [getattr(holder, key, None) for holder in holders for key in ("password_env", "secret_key_env")]
    return sorted({name for name in names if name})
