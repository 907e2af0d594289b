"""Whether a broker's nodes are what they were: none restarted, and no two lost each other in between.

The management API tells all of it, so that no clock of ours has a say. A node started its uptime before the
time of the answer; and two nodes talk over one TCP connection, which has another port when it is made anew.
"""

from collections.abc import Collection, Mapping
from typing import Any

from dlq.connectors.net.web import NoAnswerError, document
from dlq.connectors.rabbitmq.look.management import Management, ManagementError, mapping

_LATE = 10_000
"""Milliseconds: statistics are up to 5 s late unless configured otherwise, an answer's time is in seconds."""
_NEWCOMER = 12_000
"""Milliseconds. A younger node's start cannot be told from a restart just afterwards."""

_Nodes = Mapping[str, Mapping[str, Any]]
"""Name -> when it started (`started`, by the broker's clock), how long it is up (`uptime`), both in
milliseconds, and its `links` to the others."""


def describe_nodes(management: Management) -> _Nodes:
    """Return what the nodes are now. Raises ManagementError where that is not told, or a node is down."""
    nodes = {str(node.get("name")): node for node in management.get_all("nodes")}
    told_at = management.told_at
    if told_at is None or not nodes or not all(isinstance(one.get("uptime"), int) for one in nodes.values()):
        raise ManagementError("the management API does not tell how long its nodes are up, or one is down")
    links = {name: _links(node, nodes.keys() - {name}) for name, node in nodes.items()}
    if not all(len(ports) == len(nodes) - 1 for ports in links.values()):
        raise ManagementError("a node is down, or the management API does not tell how its nodes are linked")
    return {
        name: {
            "started": told_at - node["uptime"],
            "uptime": node["uptime"],
            "links": links[name],
        }
        for name, node in nodes.items()
    }


def are_as_before(before: Any, now: _Nodes) -> bool:
    """Return whether nodes are as before. `before`: the JSON of what `described` gave, as it came back from
    the broker."""
    try:
        told = document(str(before).encode())
    except NoAnswerError:
        return False
    then = {name: mapping(node) for name, node in mapping(told).items()}
    return then.keys() == now.keys() and all(_is_same(then[name], now[name]) for name in now)


def _is_same(then: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    started, uptime = then.get("started"), then.get("uptime")
    if not (isinstance(started, int) and isinstance(uptime, int) and uptime >= _NEWCOMER):
        return False
    return abs(int(now["started"]) - started) <= _LATE and bool(then.get("links") == now["links"])


def _links(node: Mapping[str, Any], others: Collection[str]) -> list[str]:
    """Return one for each of the others: the ports of the connection."""
    listed = node.get("cluster_links")
    links = [mapping(link) for link in listed] if isinstance(listed, list) else []
    return sorted(
        f"{link.get('name')}:{link.get('sock_port')}-{link.get('peer_port')}"
        for link in links
        if link.get("name") in others
    )
