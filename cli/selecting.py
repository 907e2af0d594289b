"""Options that select letters, for several commands."""

from typing import Annotated

import typer

from dlq.cli import completion

WHICH = "Which letters"
"""The panel of help in which they stand."""
Where = Annotated[
    str | None,
    typer.Option(
        "--where",
        metavar="SQL",
        autocompletion=completion.condition,
        rich_help_panel=WHICH,
        help="A condition over the columns of dlq ls.",
    ),
]
Sources = Annotated[
    list[str] | None,
    typer.Option(
        "--source",
        metavar="NAME",
        autocompletion=completion.sources,
        rich_help_panel=WHICH,
        help="From this source; may be repeated.",
    ),
]
Since = Annotated[
    str | None,
    typer.Option(
        "--since", metavar="TIME", rich_help_panel=WHICH, help="Dead since (24h, 2026-11-02T03:00Z)."
    ),
]
Incident = Annotated[
    str | None,
    typer.Option(
        "--incident", metavar="ID", rich_help_panel=WHICH, help="In this incident (or its beginning)."
    ),
]
Failure = Annotated[
    str | None,
    typer.Option(
        "--failure", metavar="ID", rich_help_panel=WHICH, help="With this failure (or its beginning)."
    ),
]
Text = Annotated[
    str | None,
    typer.Option(
        "--text", metavar="TEXT", rich_help_panel=WHICH, help="With this in its id, key or exception."
    ),
]
