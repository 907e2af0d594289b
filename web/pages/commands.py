"""Commands that were begun by the page, each a process of its own: how they go on, and how they ended."""

import json
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from dlq.core.text import json_for_terminal
from dlq.operations.brokers.pulling import KEYS
from dlq.operations.outcome import MEANS, ExitCode
from dlq.replay.actor import mark_proven
from dlq.web.console import PageRequest
from dlq.web.jobs import Job, Jobs
from dlq.web.live import send_news


def show_pull(ask: PageRequest) -> Response:
    """Return what a pull would do to each source, and how many letters its broker says lie there now."""
    depths, workspace = ask.console.depths, ask.workspace()
    sources = workspace.settings.sources.values()
    why_not = depths.read(workspace) if sources else "no source is configured"
    names = ("source", "mode", "depth", "note")
    rows = [dict(zip(names, (one.name, one.mode, *depths.find(one.name)), strict=True)) for one in sources]
    return ask.page("pull", "dlq doctor", rows=ask.mask_all(rows), why_not=why_not, asked=depths.asked_at)


def pull(ask: PageRequest) -> Response:
    """Capture what lies in the sources, in their configured mode."""
    return start(ask, ["pull"], "pull")


def analyze(ask: PageRequest) -> Response:
    """Classify what the archive holds."""
    return start(ask, ["analyze"], "analyze")


def start(ask: PageRequest, words: list[str], about: str) -> Response:
    """Begin a command under this person's name, and go to where it can be followed."""
    job = ask.console.jobs.start(words, about, mark_proven(ask.person.name))
    return ask.go_on(f"/commands/{job.job}")


def show_page(ask: PageRequest) -> Response:
    """Return one command."""
    job = ask.console.jobs.find(ask.names["job"])
    return ask.page("command", f"dlq {' '.join(job.words)}", job=job, **_describe(ask, job))


def follow(ask: PageRequest) -> Response:
    """Send news of a command, until it is over."""
    job = ask.console.jobs.find(ask.names["job"])
    jobs = ask.console.jobs
    return send_news(
        "command", lambda: {"job": job, **_describe(ask, job)}, lambda: jobs.is_running(job), is_once=True
    )


def _describe(ask: PageRequest, job: Job) -> Mapping[str, Any]:
    output, errors = ask.console.jobs.output(job)
    masker, result = ask.masker(), ask.console.jobs.result(job)
    pulled = result.get("sources", ()) if job.about == "pull" else ()
    whole = json.dumps(masker.document(result), indent=2, ensure_ascii=False) if result else ""
    shown = {
        "errors": ask.mask_errors(errors),
        "output": "" if pulled else json_for_terminal(whole or masker.text(output)),
        "pulled": ask.mask_all(pulled),
        "columns": KEYS[1:],
    }
    return {"outcome": _tell_outcome(ask.console.jobs, job), **shown}


def _tell_outcome(jobs: Jobs, job: Job) -> str:
    """Return how a command stands, in words."""
    if jobs.is_running(job):
        return "It goes on."
    code = jobs.code(job)
    if code is None:
        return "It was ended from outside. What it had done is safe: begin it again to go on."
    means = MEANS[ExitCode(code)] if code in list(ExitCode) else "which says nothing"
    return f"It ended with {code}: {means}."
