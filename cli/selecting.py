"""Options that select letters, for several commands."""

from functools import partial
from typing import Annotated

import typer

from dlq.cli import completion

which = partial(typer.Option, rich_help_panel="Which letters")
"""An option in the panel of help in which they stand."""
Where = Annotated[
    str | None,
    which(
        "--where",
        metavar="SQL",
        autocompletion=completion.condition,
        help="A condition over the columns of dlq ls.",
    ),
]
Sources = Annotated[
    list[str] | None,
    which(
        "--source",
        metavar="NAME",
        autocompletion=completion.sources,
        help="From this source; may be repeated.",
    ),
]
Since = Annotated[str | None, which("--since", metavar="TIME", help="Dead since (24h, 2026-11-02T03:00Z).")]
Incident = Annotated[
    str | None, which("--incident", metavar="ID", help="In this incident (or its beginning).")
]
Failure = Annotated[
    str | None, which("--failure", metavar="ID", help="With this failure (or its beginning).")
]
Text = Annotated[str | None, which("--text", metavar="TEXT", help="With this in its id, key or exception.")]
