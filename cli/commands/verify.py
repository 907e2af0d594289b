"""`dlq verify`: prove that nothing is lost and nothing is doubled."""

import typer

from dlq.cli.context import Context
from dlq.cli.exit import ExitCode

_COLUMNS = ("source", "captured", "replayed", "held", "dismissed", "purged", "waiting", "lost", "balanced")


def verify(ctx: typer.Context) -> int:
    """Verify that each captured letter is accounted for, once.

    Per source: captured = replayed + held + dismissed + purged + waiting. It compares every segment with its
    manifest, and every body with its digest. Books do not balance while a letter is in doubt, because no
    count includes it. The column lost counts messages that are known to be lost: they were gone before a
    pull took them.

    Example: dlq verify -o json
    """
    from dlq.operations.reading.books import verify_books

    context: Context = ctx.obj
    document = verify_books(context.workspace)
    balanced, books = document["balanced"], document["sources"]
    if context.output == "json":
        context.emit(document)
    else:
        columns = _COLUMNS if context.output == "table" else (*_COLUMNS, "in_doubt", "problems", "notes")
        context.emit_rows(columns, [[found[name] for name in columns] for found in books])
    for found in books:
        for sentence in (*found["problems"], *found["notes"]):
            context.complain(f"{found['source']}: {sentence}")
    if not books:
        context.say(f"the archive {context.workspace.store.location} is empty")
    elif context.output == "table" and balanced:
        context.say("Every captured letter is accounted for, once.")
    return ExitCode.DONE if balanced else ExitCode.IN_DOUBT
