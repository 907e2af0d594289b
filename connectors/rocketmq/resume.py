"""Resuming the check of a half message (323): the broker puts a fresh copy into its half topic.

The producer is asked again and decides; success says nothing of a commit. Each request adds a copy, so it is
sent once, and looked for before it is ever sent again.
"""

from dlq.connectors.base import Outgoing, Sent
from dlq.connectors.rocketmq.bodies import COMPRESSED
from dlq.connectors.rocketmq.cluster import Cluster
from dlq.connectors.rocketmq.remoting import Ask, Code
from dlq.core.errors import ConnectionLost, Unreachable

_FIRST_SAFE = (5, 3, 2)
"""Earlier brokers store the plain body under the compressed flag: the resumed message would be damaged."""


class Resume:
    """Sends resume requests, one at a time: there are few, and each is a decision."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def send(self, letter: Outgoing) -> Sent:
        """Ask the broker that holds the half message. Raises ConnectionLost, Unreachable."""
        record, number = letter.record, letter.number
        try:
            node = node_of(self._cluster, record.headers["storeHost"])
            if (record.flags or 0) & COMPRESSED and _release(self._cluster.version(node)) < _FIRST_SAFE:
                return Sent(
                    number, "refused", "brokers before 5.3.2 damage a compressed message when they resume it"
                )
            link = self._cluster.new_link(node)
        except KeyError:
            return Sent(number, "refused", "nothing says where it lies in its broker")
        try:
            answer = link.call(
                Ask.RESUME_CHECK, {"msgId": record.headers["msgId"], "topic": record.dead_letter_queue}
            )
        except ConnectionLost as error:
            return Sent(number, "in_doubt", str(error))
        finally:
            link.close()
        if answer.code == Code.OK:
            return Sent(number, "confirmed", "its check is resumed; the producer decides")
        return Sent(number, "refused", f"code {answer.code}: {' '.join(answer.remark.split())[:200]}")


def node_of(cluster: Cluster, store_host: str) -> str:
    """The broker that registered the address a message was stored at. Raises Unreachable."""
    for node, address in cluster.masters(refresh=True).items():
        if address == store_host:
            return node
    raise Unreachable(f"no registered broker has the address {store_host} that holds the half message")


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())
