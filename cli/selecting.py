"""Which letters a command is about: the options that several commands share."""

from typing import Annotated

import typer

from dlq.cli import completion

Where = Annotated[
    str | None,
    typer.Option(
        "--where",
        metavar="SQL",
        autocompletion=completion.condition,
        help="Letters that fulfil a condition over the columns of dlq ls.",
    ),
]
Sources = Annotated[
    list[str] | None,
    typer.Option(
        "--source",
        metavar="NAME",
        autocompletion=completion.sources,
        help="Letters of this source; may be repeated.",
    ),
]
Since = Annotated[
    str | None,
    typer.Option(
        "--since",
        metavar="TIME",
        help="Letters that died since then (captured, where that is unknown): 24h, or 2026-11-02T03:00:00Z.",
    ),
]
Incident = Annotated[
    str | None,
    typer.Option("--incident", metavar="ID", help="Letters of this incident, or of the beginning of its id."),
]
Failure = Annotated[
    str | None,
    typer.Option(
        "--failure", metavar="FINGERPRINT", help="Letters that failed alike, or the fingerprint's beginning."
    ),
]
