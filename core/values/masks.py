"""`[mask] show`: what a masked view may show of a message's content."""

from dlq.core.errors import ConfigError
from dlq.core.settings import Mask
from dlq.core.text import quote_value
from dlq.core.values.json_paths import parse_path

COLUMNS = ("message_id", "unique_key", "correlation_id", "keys", "key", "exception_message", "failure_text")
"""Columns with what a producer wrote, or a program that may quote it."""
OLD = (
    "[[mask]] is no longer read: a masked view shows structure and hides all content. Take it out, or write "
    '[mask] with what may be shown, like show = ["header:tenant", "json:$.status"]'
)


def check(mask: Mask) -> None:
    """Raise ConfigError for an entry that names nothing."""
    for entry in mask.show:
        kind, _, name = entry.partition(":")
        is_named = kind in ("header", "property") and name
        if entry not in COLUMNS and not is_named and not (kind == "json" and parse_path(name)):
            raise ConfigError(
                f"mask.show: {quote_value(entry)} names nothing; write it like header:tenant, json:$.status, "
                f"or one of {', '.join(COLUMNS)}"
            )
