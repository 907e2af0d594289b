"""What `dlq doctor` says of a Kafka source: depth, rights, and above all how long the letters stay."""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dlq.connectors.base import Inspection
from dlq.connectors.kafka.look import coverage
from dlq.connectors.kafka.look.cluster import Cluster, Log, Topic, number_in
from dlq.core.errors import BrokerError
from dlq.core.values.units import human_seconds

_SOON = 24 * 3600
_CHANGES = {
    "copy": "nothing: letters are read from the oldest one, and stay; no consumer group is joined",
    "drain": "nothing: messages stay until retention takes them; only the archive's checkpoint moves on",
}
_SHOWN = ("retention.ms", "retention.bytes", "cleanup.policy", "message.timestamp.type")


def inspect(
    cluster: Cluster, topics: Sequence[Topic], logs: Sequence[Log], notes: Sequence[str]
) -> Inspection:
    """Look without changing anything. Raises BrokerError."""
    settings = {topic.name: cluster.configuration(topic.name) for topic in topics}
    oldest = cluster.oldest([log for log in logs if log.stable > log.start])
    left = {
        topic.name: time_left(
            settings[topic.name], [t for place, t in oldest.items() if place.topic == topic.name]
        )
        for topic in topics
    }
    shown: dict[str, Any] = {
        "cluster": f"{cluster.id}: {', '.join(cluster.nodes)}",
        "partitions": {
            str(
                log.place
            ): f"{log.stable - log.start} letters at most, offsets {log.start} to {log.stable - 1}"
            for log in logs
            if log.stable > log.start
        },
        "oldest letter is deleted in": {
            name: _in_words(seconds, _goes_by_size(settings[name])) for name, seconds in left.items()
        },
        "settings": {name: _shown_settings(known) for name, known in settings.items()},
    }
    warnings = [*notes, *filter(None, [cluster.beyond_hosts])]
    for topic in topics:
        warnings += _warnings(topic.name, settings[topic.name], left[topic.name])
    warnings += _lost_rights(cluster, settings)
    warnings += _share_groups_without_place(cluster)
    depth = sum(log.stable - log.start for log in logs)
    return Inspection("kafka", depth, shown, _CHANGES, {}, warnings)


def _shown_settings(settings: Mapping[str, str] | None) -> dict[str, str]:
    return {} if settings is None else {name: settings[name] for name in _SHOWN if name in settings}


def time_left(settings: Mapping[str, str] | None, oldest: Sequence[int]) -> float | None:
    """Return seconds until the oldest letter may be deleted, by its own time; infinite where nothing is, None
    where nobody knows."""
    retention = number_in(settings or {}, "retention.ms")
    if settings is None or retention is None:
        return None
    deletes = "delete" in settings.get("cleanup.policy", "delete")
    if retention < 0 or not deletes:
        return None if _goes_by_size(settings) else float("inf")
    return min((at + retention for at in oldest), default=float("inf")) / 1000 - time.time()


def _goes_by_size(settings: Mapping[str, str] | None) -> bool:
    """Return whether the oldest letters are deleted where a partition is too large."""
    known = settings or {}
    deletes = "delete" in known.get("cleanup.policy", "delete")
    return deletes and number_in(known, "retention.bytes") not in (None, -1)


def _in_words(seconds: float | None, by_size: bool) -> str:
    if seconds is None:
        return "unknown"
    if seconds == float("inf"):
        return "never"
    if seconds > 0:
        return human_seconds(seconds) + (" at most" if by_size else "")
    return "overdue: at the next check of retention"


def _warnings(name: str, settings: Mapping[str, str] | None, left: float | None) -> Iterator[str]:
    if left is not None and left < _SOON:
        yield f"{name}: the oldest letters are deleted within a day: drain soon"
    if settings is None:
        return
    policy = settings.get("cleanup.policy", "delete")
    if "compact" in policy:
        yield (
            f"{name} is compacted: of letters with one key all but the last are removed; set "
            "cleanup.policy=delete"
        )
    if _goes_by_size(settings):
        yield (
            f"{name}: what is beyond retention.bytes={settings['retention.bytes']} of a partition is "
            "deleted, however new it is: drain before, or set retention.bytes=-1"
        )
    retention = number_in(settings, "retention.ms")
    is_finite = "delete" in policy and retention is not None and retention >= 0
    if is_finite and settings.get("message.timestamp.type") != "LogAppendTime":
        yield (
            f"{name}: Connect and Streams leave dead letters the time of their record, and retention counts "
            "from that: an old record's letter is deleted at once; set retention.ms=-1 or "
            "message.timestamp.type=LogAppendTime"
        )


def _lost_rights(cluster: Cluster, settings: Mapping[str, Mapping[str, str] | None]) -> Iterator[str]:
    closed = [name for name, known in settings.items() if known is None]
    if closed:
        yield (
            f"the user may not read the settings of {', '.join(closed)} (DESCRIBE_CONFIGS): how long letters "
            "stay is not known, and a replay in doubt may stay in doubt"
        )
    if not cluster.may_see_groups:
        yield (
            "the user may not see all consumer groups (DESCRIBE on the cluster): a plan does not name who "
            "reads its target, and a ramp goes by what comes back"
        )


def _share_groups_without_place(cluster: Cluster) -> Iterator[str]:
    """Share groups whose dead letters go nowhere, in words: a broker accepts such a setting, and drops what
    is rejected without a word (seen on 4.4.0)."""
    try:
        known = coverage.fetch_share_groups(cluster)
    except BrokerError as error:
        yield f"where the dead letters of share groups go is not known: {error}"
        return
    for group, settings in known.share_groups.items():
        if settings is None or not coverage.topic_of(settings):
            continue
        found = coverage.of_share_group(known, group, settings)
        if found.verdict == "lost":
            yield f"share group {group}: its dead letters are lost: {found.why}" + (
                f"; run: {found.fix}" if found.fix else ""
            )
        elif found.verdict == "unknown":
            yield f"share group {group}: what becomes of its dead letters is not known: {found.why}"
