"""dlq mcp: tools for agents."""

from dataclasses import replace
from typing import TYPE_CHECKING

import typer

from dlq.cli.memory import bound_memory
from dlq.core.extras import import_with_extra

if TYPE_CHECKING:
    from dlq.cli.context import Context


def mcp(ctx: typer.Context) -> None:
    """Serve agents by the Model Context Protocol, on standard input and output.

    They read what dlq shows, masked, and propose plans, dismissals and notes, which wait for a person.
    Nothing is sent, pulled or asked of a broker. docs/agents.md says how to connect them.

    Example: dlq mcp
    """
    from dlq.replay.actor import actor, name_agent

    context: Context = ctx.obj
    desk, user = context.desk, actor()
    bound_memory()
    # The rooms of commands and of pages do not know each other, but for this door.
    agents = import_with_extra("dlq.web.agents", "mcp", "agents need")
    agents.make_server(lambda agent: replace(desk, name=name_agent(agent, user))).run("stdio")
