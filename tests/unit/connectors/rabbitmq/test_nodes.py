"""What tells that no node restarted, and none lost another one, in the meantime."""

import json
from typing import Any

import pytest

from dlq.connectors.rabbitmq.management import Management, ManagementError
from dlq.connectors.rabbitmq.nodes import are_as_before, describe_nodes

LINKS = {
    "a": [{"name": "b", "sock_port": 1, "peer_port": 2}],
    "b": [{"name": "a", "sock_port": 2, "peer_port": 1}],
}
UP = 60_000
MADE = 1_000_000


class Told(Management):
    """What a management API says."""

    def __init__(self, told_at: int | None, nodes: list[dict[str, Any]]) -> None:
        self.told_at, self._nodes = told_at, nodes

    def get_all(self, *_path: str, **_query: str) -> Any:
        return self._nodes


def cluster(after: int = 0, **changes: Any) -> Told:
    """Two nodes, so many milliseconds after the plan's exchange was made; `changes` are those of one."""
    nodes = [
        {"name": name, "running": True, "uptime": UP + after, "cluster_links": LINKS[name]} for name in "ab"
    ]
    return Told(MADE + after, [nodes[0], {**nodes[1], **changes}])


def test_nodes_that_did_not_restart_are_as_before() -> None:
    before = json.dumps(describe_nodes(cluster()))
    for late in (0, 5_000, -5_000):
        assert are_as_before(before, describe_nodes(cluster(86_400_000, uptime=UP + 86_400_000 + late)))


@pytest.mark.parametrize(
    ("after", "changes"),
    [
        (86_400_000, {"uptime": 1_000}),
        (86_400_000, {"uptime": 86_400_000 - 1_000}),
        (5_000, {"cluster_links": [{"name": "a", "sock_port": 3, "peer_port": 1}]}),
        (5_000, {"name": "c", "cluster_links": LINKS["b"]}),
    ],
    ids=["restarted just now", "restarted just afterwards", "lost another one", "is another one"],
)
def test_what_a_node_went_through_is_seen(after: int, changes: dict[str, Any]) -> None:
    before = json.dumps(describe_nodes(cluster()))
    now = cluster(after, **changes)
    if "name" in changes:
        now._nodes[0]["cluster_links"] = [{"name": "c", "sock_port": 1, "peer_port": 2}]
    assert not are_as_before(before, describe_nodes(now))


def test_a_node_that_was_new_is_never_as_before() -> None:
    before = json.dumps(describe_nodes(cluster(uptime=3_000)))
    assert not are_as_before(before, describe_nodes(cluster(uptime=3_000)))


@pytest.mark.parametrize(
    "before", [None, "", "[]", "{}", '{"a": 1, "b": []}', '{"a": {}, "b": {"uptime": "x"}}', "{"]
)
def test_what_says_nothing_is_not_as_before(before: object) -> None:
    assert not are_as_before(before, describe_nodes(cluster()))


@pytest.mark.parametrize(
    "told",
    [
        Told(MADE, []),
        Told(None, cluster()._nodes),
        cluster(uptime=None),
        cluster(cluster_links=[]),
        cluster(cluster_links={"name": "a"}),
        cluster(cluster_links=[["a"], {"name": "c"}]),
    ],
)
def test_what_the_management_does_not_tell_proves_nothing(told: Told) -> None:
    with pytest.raises(ManagementError):
        describe_nodes(told)
