"""What pulls learned of their brokers: `topology/<pull>.json`, of which each broker says what it can."""

from collections.abc import Mapping
from typing import Any

from dlq.archive.store import checked_format
from dlq.core.documents import value
from dlq.core.errors import ArchiveError

_KNOWN: Mapping[str, Any] = {
    "source": str,
    "broker": str,
    "reads": Mapping[str, str | bool],
    "delivery_limits": Mapping[str, int],
    "alternate_exchanges": tuple[str, ...],
    "dead_letter_exchanges": Mapping[str, str],
    "diverts": tuple[str, ...],
    "places_of_the_dead": Mapping[str, tuple[str | None, str | None]],
    "brokers": Mapping[str, Mapping[str, str | int | bool | float | None]],
    "message_ttl": int | str,
}
"""What somebody reads of it, and of which type that is."""


def read(name: str, data: bytes) -> Mapping[str, Any]:
    """What a pull learned; what it could not learn is not in it. Raises ArchiveError, FormatTooNew."""
    document = {key: found for key, found in checked_format(name, data).items() if found is not None}
    try:
        return document | {key: value(_KNOWN[key], document[key], key) for key in _KNOWN.keys() & document}
    except ValueError as error:
        raise ArchiveError(f"{name} in the archive is damaged: {error}") from error
