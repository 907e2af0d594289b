"""Names of files in an archive: whoever may write a manifest must not say what happens outside of it."""

import re

_PART = re.compile(r"[^/\x00-\x1f\x7f]+")


def check_inside(name: str) -> str:
    """`name`, when it leads to something below the archive: parts between `/`, none of them `.` or `..`.

    Raises ValueError.
    """
    parts = name.split("/") if isinstance(name, str) else [""]
    if any(part in (".", "..") or not _PART.fullmatch(part) for part in parts):
        raise ValueError(f"{name!r} is no name inside the archive")
    return name
