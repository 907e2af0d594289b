"""What there is to know of the brokers beside their messages: for the topology of a pull, and for doctor."""

from collections.abc import Mapping

from dlq.connectors.rocketmq_cluster import Cluster


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


def _facts(cluster: Cluster, node: str) -> dict[str, object]:
    settings = cluster.configuration(node)
    numbers = {name: int(settings[key]) if key in settings else None for name, key in _FACTS.items()}
    return {
        "version": cluster.version(node),
        **numbers,
        "rocksdb_transactions": settings.get("transRocksDBEnable") == "true",
        "index": settings["messageIndexEnable"] == "true" if "messageIndexEnable" in settings else None,
    }
