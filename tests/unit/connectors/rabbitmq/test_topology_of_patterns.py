"""What a pull of a pattern keeps of its virtual host: once, however many queues the pattern means."""

import json
from typing import Any

from dlq.connectors.chain import ChainReading, QueueScan
from dlq.connectors.rabbitmq.look.topology import Topology, VirtualHost, from_host
from dlq.connectors.rabbitmq.read import pattern

QUEUES = 300


def scans() -> list[QueueScan]:
    quorum = {
        "type": "quorum",
        "effective_policy_definition": {},
        "arguments": {"x-dead-letter-exchange": "x", "x-dead-letter-routing-key": "k"},
    }
    names = [f"q{number}" for number in range(QUEUES)]
    host = VirtualHost(dict.fromkeys(names, quorum), {}, frozenset(), frozenset(), (), {"x": {"k": names}})
    no_part: Any = None
    told = {name: {"queue": name, **from_host(host, name, (4, 0, 0)).document()} for name in names}
    return [QueueScan(name, 0, topology, no_part) for name, topology in told.items()]


def test_what_nobody_told_of_the_host_is_not_said_to_be_nothing() -> None:
    told = Topology("classic", {"x-queue-type": "classic"}).document()
    assert not told.keys() & {"alternate_exchanges", "delivery_limits", "dead_letter_exchanges", "routes"}
    assert scans()[0].topology["alternate_exchanges"] == []


def test_what_is_of_the_host_is_kept_once_and_whole() -> None:
    found = scans()
    own = [pattern.without_the_host(scan) for scan in found]
    topology = ChainReading(own, "drain", None, pattern.of_the_host(found)).topology
    assert topology["delivery_limits"] == {f"q{number}": 20 for number in range(QUEUES)}
    assert topology["dead_letter_exchanges"]["q7"] == "x"
    assert topology["dead_letter_keys"]["q7"] == "k"
    assert topology["routes"]["x"]["k"][7] == "q7"
    assert topology["queues"][7]["delivery_limit"] == 20
    assert len(json.dumps(topology)) < 1000 * QUEUES
