"""dlq serve: the page."""

import os
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from dlq.cli.context import config_path, to_stderr
from dlq.cli.memory import bound_memory
from dlq.core.runtime.extras import import_with_extra

if TYPE_CHECKING:
    from dlq.cli.context import Context


def serve(
    ctx: typer.Context,
    host: Annotated[
        str, typer.Option("--host", metavar="ADDRESS", help="The address to listen on.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", metavar="PORT", min=0, max=65535, help="The port; 0: any free one.")
    ] = 8080,
) -> None:
    """Serve the archive as pages for a browser.

    It prints an address with a token that is good until the server ends. Roles in \\[serve] let people act
    there; without \\[serve] the pages are read-only, on this host alone. Ctrl-C ends the server; an apply, a
    pull or an analysis that it began goes on.

    Example: dlq serve --port 8080
    """
    context: Context = ctx.obj
    bound_memory()
    path = config_path(context.config)
    config = None if path is None else os.path.abspath(path)
    # The rooms of commands and of pages do not know each other, but for this door.
    import_with_extra("dlq.web.server", "serve", "the page needs").serve(
        context.settings, config, host, port, partial(_tell, context), not context.quiet
    )


def _tell(context: "Context", address: str, bearer: str | None) -> None:
    lets_in = ", which lets in whoever has it" if "?" in address else " for whom the proxies of [serve] name"
    to_stderr(f"The pages are at this address{lets_in}. Ctrl-C ends the server.")
    told = {"address": address, **({"bearer": bearer} if bearer else {})}
    lines = [address, *([f"Agents bring to /mcp there: Authorization: Bearer {bearer}"] if bearer else [])]
    context.emit(told, lambda: context.console.print("\n".join(lines), soft_wrap=True))
