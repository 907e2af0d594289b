"""A cluster of Kafka that means harm to a replay: settings that are none, and a log that never ends."""

import socket
import struct
from types import SimpleNamespace
from typing import Any

import pytest
from support.servers.hostile import Server

from dlq.connectors.kafka.cluster import Place, Topic, number_in
from dlq.connectors.kafka.inspection import _left, _warnings
from dlq.connectors.kafka.limits import taken_by
from dlq.connectors.kafka.link import Access
from dlq.connectors.kafka.wholeness import is_compacted_between

ODD = ("", "much", "1e9", "9" * 5000, "١٢", "0x10", "-", " 1", "1_000")
NAMES = (
    "retention.ms",
    "max.message.bytes",
    "message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms",
)


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: odd[:9])
def test_a_setting_that_is_no_number_is_not_known(odd: str) -> None:
    settings = dict.fromkeys(NAMES, odd)
    cluster: Any = SimpleNamespace(
        topic=lambda name: Topic(name, "id", 1), configuration=lambda _: settings, longest_request=None
    )
    assert taken_by(cluster, "t") == (1, 0, 0, None, None, None)
    assert _left(settings, [1]) is None
    assert list(_warnings("t", settings, None)) == []
    assert number_in({"a": "-1"}, "a") == -1


def the_same_batch_for_ever(peer: socket.socket) -> None:
    """Whatever is asked for, offset 0 is there, whole."""
    batch = struct.pack(">qiibIhiqqqhii", 0, 49, 0, 2, 0, 0, 0, 0, 0, -1, -1, -1, 1)
    head = struct.pack(">iih", 0, 1, 1) + b"t" + struct.pack(">iihqqi", 1, 0, 0, 9, 9, -1)
    told = head + struct.pack(">i", len(batch)) + batch
    while asked := peer.recv(2**16):
        peer.sendall(struct.pack(">i", 4 + len(told)) + asked[8:12] + told)


def test_a_log_that_shows_its_beginning_for_ever_is_not_followed() -> None:
    with Server(the_same_batch_for_ever) as server:
        host, port = server.address.split(":")
        cluster: Any = SimpleNamespace(leader=lambda _: (host, int(port)), access=Access(1.0))
        with pytest.raises(ValueError, match="nothing came from offset 1"):
            is_compacted_between(cluster, Place("t", 0), 0, 9)
