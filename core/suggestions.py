"""The name that was probably meant."""

import difflib
from collections.abc import Iterable


def suggest(wrong: str, known: Iterable[str]) -> str:
    """`; did you mean 'queue'?`, or nothing where no name is near."""
    near = difflib.get_close_matches(wrong, list(known), n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else ""
