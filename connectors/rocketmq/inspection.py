"""What `dlq doctor` says of a RocketMQ source: depth, rights, and above all how long the letters stay."""

import time
from collections.abc import Iterable, Mapping, Sequence

from dlq.connectors.base import Inspection
from dlq.connectors.rocketmq.cluster import Cluster
from dlq.connectors.rocketmq.message import StoredMessage, parse_properties
from dlq.connectors.rocketmq.rights import losses
from dlq.connectors.rocketmq.snapshot import Extent, message_at, plan_of
from dlq.core.units import human_seconds

_DEFAULT_HOURS = 72
_SOON = 24 * 3600
_CHANGES = {
    "copy": "nothing: letters are read from the oldest one, and stay",
    "drain": "nothing: letters stay until retention takes them; only the archive's checkpoint moves on",
}


def inspect(
    cluster: Cluster,
    group: str | None,
    found: Sequence[Extent],
    facts: Mapping[str, Mapping[str, object]],
    notes: Sequence[str],
) -> Inspection:
    """Look without changing anything; `group` could not consume the letters. Raises BrokerError."""
    filled = [extent for extent in found if extent.highest > extent.lowest]
    oldest = {extent: message_at(cluster, extent, extent.lowest) for extent in filled}
    left = {str(extent.place): _retention_left(extent, first, facts) for extent, first in oldest.items()}
    soon = [place for place, seconds in left.items() if seconds is not None and seconds < _SOON]
    shown: dict[str, object] = {
        "brokers": ", ".join(
            f"{node} {f['version']} at {cluster.masters()[node]}" for node, f in facts.items()
        ),
        "queues": {
            str(e.place): f"{e.highest - e.lowest} letters, offsets {e.lowest} to {e.highest - 1}"
            for e in filled
        },
        "oldest letter is deleted in": {place: _in_words(seconds) for place, seconds in left.items()},
        "reading": {str(e.place): "pull" if e.pullable else "by index, it may not be pulled" for e in filled},
        "settings": {node: dict(values) for node, values in facts.items()},
    }
    warnings = [*notes, *plan_of(found, {}).notes]
    warnings += [f"{place}: the oldest letters are deleted within a day: drain soon" for place in soon]
    warnings += losses(cluster, group, _origins(first for first in oldest.values() if first))
    version = ", ".join(sorted({str(values["version"]) for values in facts.values()}))
    depth = sum(extent.highest - extent.lowest for extent in found)
    return Inspection(version, depth, shown, _CHANGES, {}, warnings)


def _retention_left(
    extent: Extent, oldest: StoredMessage | None, facts: Mapping[str, Mapping[str, object]]
) -> float | None:
    """Seconds until the oldest letter may be deleted: fileReservedTime after it was stored."""
    if oldest is None:
        return None
    hours = facts[extent.place.node]["file_reserved_hours"]
    return oldest.stored_at / 1000 + int(str(hours or _DEFAULT_HOURS)) * 3600 - time.time()


def _origins(letters: Iterable[StoredMessage]) -> set[str]:
    """The topics that letters, or half messages, were sent to."""
    told = [parse_properties(letter.properties) for letter in letters]
    found = {properties.get("RETRY_TOPIC") or properties.get("REAL_TOPIC") for properties in told}
    return {topic for topic in found if topic}


def _in_words(seconds: float | None) -> str:
    if seconds is None:
        return "unknown"
    return human_seconds(seconds) if seconds > 0 else "overdue: at the next cleaning"
