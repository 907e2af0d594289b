"""What of a replay died again: each letter with its failure, as far as it is known at once."""

from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from typing import Any

from dlq.cli.context import Context
from dlq.core.errors import DlqError

_MOST = 20
_LONG = 500


def letters(context: Context, plan: str) -> list[dict[str, Any]]:
    """The newest letters of `plan` that came back: id, cause, and the failure in a line."""
    from dlq.archive import views
    from dlq.archive.user_sql import run
    from dlq.cli.judging import analyze_new
    from dlq.cli.views import open_views
    from dlq.replay.came_back import newest

    with suppress(DlqError):  # without a verdict they are told by their text
        analyze_new(context)
    with closing(open_views(context)) as connection:
        ids = newest(connection, plan, _MOST)
        if not ids:
            return []
        pages = [views.page_of(connection, record_id) for record_id in ids]
        page = {file: set().union(*(one.get(file, ()) for one in pages)) for file in set().union(*pages)}
        return list(map(_letter, run(connection, views.newest(_COLUMNS, views.on_page(page), _MOST)).rows))


_COLUMNS = ("record_id", "cause", "exception_class", "exception_message", "evidence", "failure_text")


def _letter(row: Sequence[Any]) -> dict[str, Any]:
    from dlq.cli.died import line_of

    found = dict(zip(_COLUMNS, row, strict=True))
    failure = line_of(found) if found["cause"] else next(iter((found["failure_text"] or "").splitlines()), "")
    return {"record_id": found["record_id"], "cause": found["cause"], "failure": failure[:_LONG]}


def show(context: Context, found: Sequence[Mapping[str, Any]]) -> None:
    """A line a letter."""
    from dlq.core.text import for_terminal, shorten

    if not found:
        return
    context.console.print("\ncame back")
    for one in found:
        line = f"  {one['record_id'][:12]}  {one['cause'] or 'not judged'}  {for_terminal(one['failure'])}"
        context.console.print(shorten(line, max(40, context.console.width)), no_wrap=True, soft_wrap=True)
