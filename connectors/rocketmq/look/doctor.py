"""What `dlq doctor` says of a RocketMQ source: depth, rights, and above all how long the letters stay."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from dlq.connectors.base import Inspection
from dlq.connectors.rocketmq.link.cluster import Cluster, refusal
from dlq.connectors.rocketmq.link.message import StoredMessage, parse_properties
from dlq.connectors.rocketmq.link.remoting import RequestCode, ResponseCode, long, understood
from dlq.connectors.rocketmq.prove.start_offsets import Runtime, runtime_of
from dlq.connectors.rocketmq.read.snapshot import QueueOffsets, message_at, plan_of
from dlq.core.errors import AccessDenied
from dlq.core.values.units import human_seconds

_DEFAULT_HOURS = 72
_SOON = 24 * 3600
_CHANGES = {
    "copy": "nothing: letters are read from the oldest one, and stay",
    "drain": "nothing: messages stay until retention takes them; only the archive's checkpoint moves on",
}


def inspect(
    cluster: Cluster,
    group: str | None,
    found: Sequence[QueueOffsets],
    facts: Mapping[str, Mapping[str, object]],
    notes: Sequence[str],
) -> Inspection:
    """Look without changing anything; `group` could not consume the letters. Raises BrokerError."""
    filled = [offsets for offsets in found if offsets.highest > offsets.lowest]
    oldest = {offsets: message_at(cluster, offsets, offsets.lowest) for offsets in filled}
    clocks = {node: runtime_of(cluster, node) for node in {offsets.place.node for offsets in filled}}
    left = {
        str(offsets.place): _retention_left(first, clocks[offsets.place.node], facts[offsets.place.node])
        for offsets, first in oldest.items()
    }
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
    warnings += _losses(cluster, group, _origins(first for first in oldest.values() if first))
    version = ", ".join(sorted({str(values["version"]) for values in facts.values()}))
    depth = sum(offsets.highest - offsets.lowest for offsets in found)
    return Inspection(version, depth, shown, _CHANGES, {}, warnings)


def _retention_left(
    oldest: StoredMessage | None, runtime: Runtime | None, facts: Mapping[str, object]
) -> float | None:
    """Return seconds until the oldest letter may be deleted: fileReservedTime after it was stored, both by
    the broker's clock."""
    if oldest is None or runtime is None:
        return None
    hours = int(str(facts["file_reserved_hours"] or _DEFAULT_HOURS))
    return (oldest.stored_at - runtime.clock) / 1000 + hours * 3600


def _origins(letters: Iterable[StoredMessage]) -> set[str]:
    """Return the topics that letters, or half messages, were sent to."""
    told = [parse_properties(letter.properties) for letter in letters]
    found = {properties.get("RETRY_TOPIC") or properties.get("REAL_TOPIC") for properties in told}
    return {topic for topic in found if topic}


def _in_words(seconds: float | None) -> str:
    if seconds is None:
        return "unknown"
    return human_seconds(seconds) if seconds > 0 else "overdue: at the next cleaning"


class _Right(NamedTuple):
    """`{topic}` is one that letters come from, `{group}` who could not consume them."""

    code: RequestCode
    fields: Mapping[str, object]
    loss: str


_BY_KEY = {"topic": "{topic}", "key": "-", "maxNum": 1, "beginTimestamp": 0, "endTimestamp": 0}
_RIGHTS: Sequence[_Right] = (
    _Right(RequestCode.BROKER_CONFIG, {}, "its settings: retention is taken as 72 hours"),
    _Right(RequestCode.RUNTIME_INFO, {}, "since when it runs: a replay in doubt may stay in doubt"),
    _Right(RequestCode.TOPIC_GROUPS, {"topic": "{topic}"},
        "who consumes {topic}: a plan does not name them, and a ramp goes by what comes back"),
    _Right(RequestCode.QUERY_MESSAGE, _BY_KEY,
        "for a message of {topic} by its key: a replay in doubt stays in doubt"),
    _Right(RequestCode.CONSUMER_CONNECTIONS, {"consumerGroup": "{group}"},
        "for the consumers of {group}: a ramp to the group goes by what comes back"),
)  # fmt: skip


def _losses(cluster: Cluster, group: str | None, topics: Iterable[str]) -> list[str]:
    """Return what brokers refuse to tell this user, in words. Raises BrokerError: one is out of reach."""
    groups = {"group": group} if group else {}
    names = [groups, *({**groups, "topic": topic} for topic in topics)]
    questions = {loss: question for known in names for loss, question in _questions(known)}
    return sorted(
        f"{node}: the user may not ask {loss}"
        for node in cluster.masters()
        for loss, (code, fields) in questions.items()
        if _is_refused(cluster, node, code, fields)
    )


def _questions(known: Mapping[str, str]) -> Iterator[tuple[str, tuple[RequestCode, Mapping[str, object]]]]:
    """Yield what is lost without an answer -> what is asked, where all names that it takes are known."""
    for code, fields, loss in _RIGHTS:
        try:
            asked = {k: v.format(**known) if isinstance(v, str) else v for k, v in fields.items()}
            yield loss.format(**known), (code, asked)
        except KeyError:
            continue


def _is_refused(cluster: Cluster, node: str, code: RequestCode, fields: Mapping[str, object]) -> bool:
    answer = cluster.call(node, code, fields)
    return answer.code != ResponseCode.OK and isinstance(refusal(node, answer), AccessDenied)


def broker_facts(cluster: Cluster) -> Mapping[str, Mapping[str, object]]:
    """Return what analysis must know of each broker: its release, retention, and how it checks half messages.

    Settings that may not be read are null.
    """
    return {node: _facts(cluster, node) for node in cluster.masters()}


LONGEST_WAIT_MS = 30_000
"""So long a reading waits for op records that are still being gathered."""
_OP_BATCH_MS = 3000
"""The default of transactionOpBatchInterval."""
_FACTS = {
    "file_reserved_hours": "fileReservedTime",
    "check_max": "transactionCheckMax",
    "check_interval_ms": "transactionCheckInterval",
    "check_timeout_ms": "transactionTimeOut",
    "op_batch_interval_ms": "transactionOpBatchInterval",
}


def unread_halves(facts: Mapping[str, Mapping[str, object]]) -> list[str]:
    """Brokers whose half messages cannot be read, in words.

    With `transRocksDBEnable` 5.5 keeps them in RocksDB and topics of its own, and in the usual topics besides
    unless `transWriteOriginTransHalfEnable` is off (seen on 5.5.0).
    """
    return [
        f"{node} keeps half messages in RocksDB alone (transRocksDBEnable without "
        "transWriteOriginTransHalfEnable): nothing of its new transactions can be read"
        for node, known in facts.items()
        if known["rocksdb_transactions"] and not known["usual_transactions"]
    ]


def without_index(facts: Mapping[str, Mapping[str, object]]) -> list[str]:
    """Brokers that do not find messages by their key, in words."""
    return [
        f"{node} keeps no index (messageIndexEnable=false): nothing shows that a transaction was rolled back"
        for node, known in facts.items()
        if known["index"] is False
    ]


def gathered_ms(known: Mapping[str, object]) -> int:
    """Return how long a broker gathers op records before it writes them (5.1: transactionOpBatchInterval)."""
    if str(known["version"]) < "5.1":
        return 0
    told = known["op_batch_interval_ms"]
    return _OP_BATCH_MS if told is None else int(str(told))


def late_outcomes(facts: Mapping[str, Mapping[str, object]]) -> list[str]:
    """Brokers that gather op records for longer than they are waited for, in words."""
    return [
        f"{node} may tell {gathered_ms(known) / 1000:.0f} s late that a transaction has ended "
        f"(transactionOpBatchInterval), and {LONGEST_WAIT_MS // 1000} s were waited: pull again before its "
        "half messages are replayed"
        for node, known in facts.items()
        if gathered_ms(known) > LONGEST_WAIT_MS
    ]


def _facts(cluster: Cluster, node: str) -> dict[str, object]:
    settings = cluster.configuration(node)
    with understood(node):
        numbers = {
            name: long(settings[key].strip()) if key in settings else None for name, key in _FACTS.items()
        }
    return {
        "version": cluster.version(node),
        **numbers,
        "rocksdb_transactions": settings.get("transRocksDBEnable") == "true",
        "usual_transactions": settings.get("transWriteOriginTransHalfEnable") != "false",
        "index": settings["messageIndexEnable"] == "true" if "messageIndexEnable" in settings else None,
    }
