"""`dlq verify`: prove that nothing is lost and nothing is doubled."""

import typer

from dlq.cli.context import Context
from dlq.cli.exit import ExitCode

_COLUMNS = ("source", "captured", "replayed", "held", "dismissed", "purged", "waiting", "lost", "balanced")


def verify(ctx: typer.Context) -> int:
    """Prove the books: captured = replayed + held + dismissed + purged + waiting, per source, with digests.

    Every segment is read and compared with its manifest, and every body with its digest. Letters in doubt are
    in none of the counts: books with doubts do not balance. Beside them stands what is known to be lost: what
    nobody captured before it was gone.

    Example: dlq verify -o json
    """
    from dlq.operations.books import verify_books

    context: Context = ctx.obj
    document = verify_books(context.desk)
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
        context.say(f"the archive {context.desk.store.location} is empty")
    elif context.output == "table" and balanced:
        context.say("Every captured letter is accounted for, once.")
    return ExitCode.DONE if balanced else ExitCode.IN_DOUBT
