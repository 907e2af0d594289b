"""Paths into JSON as settings write them: `$.order.id`, `$.items[0].sku`, `$.items[*].email`."""

import re

EVERY = "*"
_STEP = re.compile(r"\.([^.\[\]]+)|\[([0-9]{1,9}|\*)\]|\['([^']+)'\]")


def parse_path(path: str) -> list[str | int]:
    """Return the names and indices of a path, EVERY for all members; empty for what is no path."""
    rest = path.removeprefix("$")
    steps = [*_STEP.finditer(rest)]
    if not path.startswith("$") or "".join(step[0] for step in steps) != rest:
        return []
    return [int(step[2]) if (step[2] or "").isdigit() else step[1] or step[2] or step[3] for step in steps]
