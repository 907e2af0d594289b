"""`dlq demo`: a guided tour on an embedded broker."""

import os
import shlex
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from dlq.cli.context import Context
from dlq.cli.exit import ExitCode
from dlq.core.errors import UsageError

_CONFIG = """\
archive = "{folder}/archive"
[brokers.shop]
kind = "memory"
url = "memory://{folder}/broker.db"
[sources.orders]
broker = "shop"
queue = "orders.dlq"
[brokers.pay]
kind = "memory"
url = "memory://{folder}/pay.db"
[sources.payments]
broker = "pay"
transactions = true
[spark]
master = "local[2]"
"""
_TRANSACTIONS = "select unique_key, state, discarded, checks, evidence from transactions order by unique_key"
_TOUR = (
    ("Look first: which queues are there, and what would a pull change?", ["doctor"]),
    ("Drain the queues: a message leaves its queue only when it is safely on disk, in Parquet.",
        ["pull", "--mode", "drain"]),
    ("Why did they die? Each verdict rests on evidence in the letter. The report begins with the answer.",
        ["report"]),
    ("RocketMQ asked 15 times how two payments ended, and gave up. Did the money move?",
        ["query", _TRANSACTIONS]),
    ("Plan what goes back. Nothing is sent yet; letters that are left out are counted, with the reason.",
        ["replay", "plan", "--where", "exception_family = 'timeout'"]),
    ("Apply that plan: the ledger records each message before it is sent, and the broker confirms it.",
        ["replay", "apply", "PLAN"]),
    ("Apply it again, by mistake: the ledger has every message, so nothing is sent.",
        ["replay", "apply", "PLAN"]),
    ("Check the books: captured = replayed + held + dismissed + purged + waiting.", ["verify"]),
)  # fmt: skip
_SPARK = "Classify again with Spark, which does so for large archives: the same rules, the same verdicts."
_BY_SPARK = ["analyze", "--engine", "spark"]
_NEXT = """
The embedded broker and its archive are in {folder} (to look around: dlq -c {folder}/dlq.toml ls).
For your own broker, in a new folder:

    dlq init                # asks for your broker's URL, finds its dead-letter queues, writes dlq.toml
    dlq doctor              # connects and looks; changes nothing
    dlq pull                # copies the messages and classifies them; --mode drain empties the queues
    dlq report
    dlq replay plan --where "cause = 'application_error'"     # add --fixed once the fix is deployed
"""


def demo(
    ctx: typer.Context,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--folder", metavar="FOLDER", help="For the broker and the archive (default: a new one)."
        ),
    ] = None,
) -> int:
    """Take a guided tour on a built-in broker.

    It pulls, analyzes, reports, plans, applies, applies again, and verifies. Its last step needs Spark and
    Java.

    Example: dlq demo
    """
    context: Context = ctx.obj
    place = folder or Path(tempfile.mkdtemp(prefix="dlq-demo-"))
    config = _prepare(place)
    context.say("A shop's night: its payment gateway hung, its stock ran out, orders waited too long.\n")
    for title, words in _TOUR:
        code = _step(context, config, title, words)
        if code not in (ExitCode.DONE, ExitCode.PARTLY):
            return code
    _by_spark(context, config)
    context.say(_NEXT.format(folder=place))
    return ExitCode.DONE


def _by_spark(context: Context, config: Path) -> None:
    """Let Spark classify the same archive and print whether any verdict differs, or what that would take."""
    from dlq.analyzers.spark.session import list_missing
    from dlq.archive import analyses
    from dlq.archive.storage.store import open_store
    from dlq.reports.compare import differing_verdicts

    if lacking := list_missing():
        _announce(context, _SPARK, _BY_SPARK)
        context.console.print(f"Skipped, because Spark cannot run here: {'; '.join(lacking)}")
        return
    store = open_store(str(config.parent / "archive"))
    before = analyses.latest(store)
    if _step(context, config, _SPARK, _BY_SPARK) == ExitCode.DONE and before:
        differing = differing_verdicts(store, before.analysis)
        said = f"Verdicts differ: {', '.join(differing)}" if differing else "No verdict differs."
        context.console.print(said)


def _prepare(folder: Path) -> Path:
    from dlq.cli.demo import transactions
    from dlq.cli.demo.incident import QUEUE, WORK_QUEUE, letters
    from dlq.connectors.memory import broker_at

    config = folder / "dlq.toml"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with config.open("x", encoding="utf-8") as file:
            file.write(_CONFIG.format(folder=folder.resolve()))
    except FileExistsError as error:
        raise UsageError(f"{error.filename} is there already; name another --folder") from error
    except OSError as error:
        raise UsageError(f"--folder {folder}: {error.strerror}; name another one") from error
    broker = broker_at(f"memory://{folder.resolve()}/broker.db")
    broker.declare(WORK_QUEUE)
    broker.put(QUEUE, *letters())
    payments = broker_at(f"memory://{folder.resolve()}/pay.db")
    for topic, record in transactions.records():
        payments.put(topic, record)
    return config


def _step(context: Context, config: Path, title: str, words: list[str]) -> int:
    """Run one command as a user would, in this process: one Java start is enough."""
    from dlq.cli.app import run

    given = [_latest_plan(config) if word == "PLAN" else word for word in words]
    _announce(context, title, given)
    flags = [
        "-c",
        str(config),
        "-o",
        context.output_flag or "table",
        *(["--no-color"] if context.no_color else []),
    ]
    return run([*flags, *given])


def _announce(context: Context, title: str, words: list[str]) -> None:
    context.console.print(f"\n# {title}", style="bold cyan")
    context.console.print(f"$ dlq {' '.join(map(_quote, words))}", style="bold")


def _quote(word: str) -> str:
    """Quote a word for the shell as a person would: double quotes around single ones."""
    return f'"{word}"' if "'" in word and not set(word) & set('"$`\\!') else shlex.quote(word)


def _latest_plan(config: Path) -> str:
    plans = (name for name in os.listdir(config.parent / "archive" / "plans") if not name.startswith("."))
    return max(plans).partition(".")[0]
