"""dlq mcp: tools for agents."""

import os
import signal
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

import typer

from dlq.cli.memory import bound_memory
from dlq.core.runtime.extras import import_with_extra
from dlq.operations.outcome import ExitCode

if TYPE_CHECKING:
    from types import FrameType

    from dlq.cli.context import Context


def mcp(ctx: typer.Context) -> None:
    """Serve agents by the Model Context Protocol, over stdio.

    Agents read what dlq shows, masked. They propose plans, dismissals and notes, which wait for a person.
    They cannot send, pull, or ask a broker. docs/agents.md says how to connect them.

    Example: dlq mcp
    """
    from dlq.replay.actor import actor, name_agent

    context: Context = ctx.obj
    workspace, user = context.workspace, actor()
    bound_memory()
    # The rooms of commands and of pages do not know each other, but for this door.
    agents = import_with_extra("dlq.web.agents", "mcp", "agents need")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end)
    server, is_gone = (
        agents.make_server(lambda agent: replace(workspace, name=name_agent(agent, user))),
        False,
    )
    try:
        server.run("stdio")
    except* BrokenPipeError:
        is_gone = True
    if is_gone:  # whose program asked and listens no more: as of any other command
        raise BrokenPipeError


def _end(_signal: int, _frame: "FrameType | None") -> NoReturn:
    """End at once: a thread waits for standard input, and would be waited for until something comes there.
    What a tool writes is there whole or not at all."""
    from dlq.archive.storage import scratch

    scratch.remove()
    os.write(2, b"dlq: interrupted\n")
    os._exit(ExitCode.INTERRUPTED)
