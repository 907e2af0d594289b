"""What there is to know of the brokers beside their messages: for the topology of a pull, and for doctor."""

from collections.abc import Mapping

from dlq.connectors.rocketmq.answers import understood
from dlq.connectors.rocketmq.cluster import Cluster


def broker_facts(cluster: Cluster) -> Mapping[str, Mapping[str, object]]:
    """What analysis must know of each broker: its release, retention, and how it checks half messages.

    Settings that may not be read are null.
    """
    return {node: _facts(cluster, node) for node in cluster.masters()}


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
        f"{node} keeps no index (messageIndexEnable=false): nothing tells how an ended transaction ended"
        for node, known in facts.items()
        if known["index"] is False
    ]


def _facts(cluster: Cluster, node: str) -> dict[str, object]:
    settings = cluster.configuration(node)
    with understood(node):
        numbers = {name: int(settings[key]) if key in settings else None for name, key in _FACTS.items()}
    return {
        "version": cluster.version(node),
        **numbers,
        "rocksdb_transactions": settings.get("transRocksDBEnable") == "true",
        "usual_transactions": settings.get("transWriteOriginTransHalfEnable") != "false",
        "index": settings["messageIndexEnable"] == "true" if "messageIndexEnable" in settings else None,
    }
