"""Names as people type them: misspelt, or only the beginning."""

import difflib
from collections.abc import Iterable

from dlq.core.errors import UsageError

_LISTED = 5


def suggest(wrong: str, known: Iterable[str]) -> str:
    """`; did you mean 'queue'?`, or nothing where no name is near."""
    near = difflib.get_close_matches(wrong, list(known), n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else ""


def find_by_prefix(prefix: str, known: Iterable[str], missing: str) -> str:
    """Return the known name that is `prefix`, or the only one that begins so. Raises UsageError: `missing`
    where none does, else the first of those that do."""
    alike = sorted(name for name in known if prefix and name.startswith(prefix))
    if not alike:
        raise UsageError(missing)
    if len(alike) > 1 and alike[0] != prefix:
        more = ", …" if len(alike) > _LISTED else ""
        raise UsageError(f"{prefix} is ambiguous: {', '.join(alike[:_LISTED])}{more}; give more of it")
    return alike[0]
