"""A private RabbitMQ cluster on this host: nodes that can be killed, stopped, and cut off from each other.

with Cluster(install()) as cluster: ...
"""

import os
import secrets
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from support.brokers.rabbitmq.broker import Node
from support.ports import free_ports
from support.waiting import eventually

_FORMED = "cluster_formation.peer_discovery_backend = classic_config\n"
_CUT = "erlang:set_cookie('{other}', 'of another cluster'), erlang:disconnect_node('{other}'), "
_HEALED = "erlang:set_cookie('{other}', erlang:get_cookie()), net_kernel:connect_node('{other}'), "


class Cluster:
    """Nodes with one cookie and one epmd, which find each other by their configuration."""

    def __init__(self, root: Path | None = None, size: int = 3, conf: str = "") -> None:
        (self._port,) = free_ports(1)
        self.nodes = [Node(root, conf, epmd=self._port) for _ in range(size)]
        self._epmd: subprocess.Popen[bytes] | None = None
        cookie = secrets.token_hex(16)
        members = [
            f"cluster_formation.classic_config.nodes.{number} = {node.name}\n"
            for number, node in enumerate(self.nodes, 1)
        ]
        for node in self.nodes:
            secret = node.folder / "home" / ".erlang.cookie"
            secret.write_text(cookie)
            secret.chmod(0o400)
            with (node.folder / "etc" / "rabbitmq.conf").open("a") as configuration:
                configuration.writelines([_FORMED, *members])

    def __enter__(self) -> "Cluster":
        """Start epmd, which must outlive each node, and all nodes at once."""
        program = f"{self.nodes[0].root}/usr/lib/erlang/bin/epmd"
        command = [program, "-port", str(self._port), "-address", "127.0.0.1"]
        self._epmd = subprocess.Popen(command, env={"PATH": os.environ["PATH"]})
        try:
            self._on_all(Node.start)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._on_all(Node.stop)
        if self._epmd is not None:
            self._epmd.kill()
            self._epmd.wait()

    def _on_all(self, step: Callable[[Node], object]) -> None:
        with ThreadPoolExecutor(len(self.nodes)) as threads:
            list(threads.map(step, self.nodes))

    def url(self, vhost: str, first: Node) -> str:
        """All addresses, `first` before the others, without a password."""
        nodes = sorted(self.nodes, key=lambda node: node is not first)
        return f"amqp://guest@{','.join(f'127.0.0.1:{node.port}' for node in nodes)}/{vhost}"

    def cut_off(self, node: Node) -> None:
        """The other nodes and this one lose each other; clients reach all of them still."""
        self._tell(node, _CUT)

    def join_again(self, node: Node) -> None:
        """They find each other again."""
        self._tell(node, _HEALED)

    def heal(self) -> None:
        """As it began, where a test that failed has left nodes dead or apart. Raises AssertionError."""
        if not self._is_whole():
            self._on_all(Node.revive)
            for node in self.nodes:
                self.join_again(node)
            eventually(self._is_whole)

    def _is_whole(self) -> bool:
        try:
            told: Any = self.nodes[0].api("GET", "nodes")
        except (OSError, AssertionError):  # 500, where a node goes while it looks
            return False
        return len(told) == len(self.nodes) and all(
            one["running"] and one.get("partitions") == []  # a node that has just begun tells of none
            for one in told
        )

    def _tell(self, node: Node, what: str) -> None:
        others = [other.name for other in self.nodes if other is not node]
        node.evaluate("".join(what.format(other=name) for name in others) + "ok")
