"""What would be lost before it dies, as the brokers' definitions say."""

from starlette.responses import Response

from dlq.web.console import PageRequest

_MOST_ROWS = 500


def show_coverage(ask: PageRequest) -> Response:
    """Return the rows of `dlq coverage`, lost ones first, as the brokers said them last."""
    found, problems = ask.console.coverage.ask(ask.workspace())
    rows = found.rows[:_MOST_ROWS]
    return ask.page(
        "coverage",
        "dlq coverage",
        rows=rows,
        counts=found.document["counts"],
        left=len(found.rows) - len(rows),
        problems=problems,
    )
