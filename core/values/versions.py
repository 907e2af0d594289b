"""Versions of programs, compared as numbers: 2.10.0 is newer than 2.9.1, and 2.4.1-rc1 older than 2.4.1."""

import re

LONGEST = 100
"""Characters of a version; a longer text is none."""
_VERSION = re.compile(r"[vV]?([0-9]+(?:\.[0-9]+)*)(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?")
_PART = re.compile(r"([0-9]+)|([a-z]+)")
_Order = tuple[tuple[int, ...], bool, tuple[tuple[bool, int, str], ...]]


def is_version(text: str) -> bool:
    """Return whether a text is a version: numbers with dots, a `v` before and `-rc1` or `+build` behind or
    not."""
    return _order(text) is not None


def is_older(version: str | None, than: str) -> bool:
    """Return whether a version is older than another. Not where one of the two is no version."""
    one, other = _order(version or ""), _order(than)
    return one is not None and other is not None and one < other


def _order(text: str) -> _Order | None:
    """Return what sorts versions: numbers, then a release behind its pre-releases, whose numbers precede
    words."""
    found = _VERSION.fullmatch(text.strip()) if len(text) <= LONGEST else None
    if found is None:
        return None
    numbers = re.sub(r"(\.0+)+$", "", found[1])
    parts = _PART.finditer((found[2] or "").lower())
    pre = tuple((not one[1], int(one[1] or 0), one[2] or "") for one in parts)
    return tuple(map(int, numbers.split("."))), found[2] is None, pre
