"""Which broker can say that a letter was not sent to it: the very one, or none."""

from support.brokers.hostile import remoting
from support.rows import each_row
from support.servers.hostile import Server

from dlq.connectors.rocketmq.link.cluster import Cluster
from dlq.connectors.rocketmq.plugin.description import RocketBroker
from dlq.connectors.rocketmq.prove.start_offsets import masters, why_another

SENT_TO = {"a#master 10.0.0.1:10911": 1, "a#epoch 3": 1}


@each_row(("then", "now", "words"), [
    (SENT_TO, SENT_TO, None),
    (SENT_TO, {**SENT_TO, "b#master 10.0.0.2:10911": 1}, None),
    ({}, SENT_TO, "master then: nothing known; now: 10.0.0.1:10911"),
    (SENT_TO, {"a#master 10.0.0.2:10911": 1, "a#epoch 3": 1}, "now: 10.0.0.2:10911"),
    (SENT_TO, {}, "now: nothing known"),
    ({**SENT_TO, "a#master 10.0.0.2:10911": 1}, SENT_TO, "then: 10.0.0.1:10911 and 10.0.0.2:10911"),
    (SENT_TO, {**SENT_TO, "a#master 10.0.0.2:10911": 1}, "now: 10.0.0.1:10911 and 10.0.0.2:10911"),
    (SENT_TO, {"a#master 10.0.0.1:10911": 1, "a#epoch 5": 1}, "epoch then: 3; now: 5"),
    ({"a#master 10.0.0.1:10911": 1}, SENT_TO, "epoch then: nothing known; now: 3"),
    ({**SENT_TO, "a#epoch 4": 1}, {**SENT_TO, "a#epoch 4": 1}, "epoch then: 3 and 4; now: 3 and 4"),
    ({"a#master x": 1, "a#epoch untold": 1}, {"a#master x": 1, "a#epoch untold": 1}, "now: untold"),
])  # fmt: skip
def test_not_sent_is_the_word_of_the_master_that_was_sent_to(
    then: dict[str, int], now: dict[str, int], words: str | None
) -> None:
    why = why_another(then, now, "a")
    assert (why is None) == (words is None)
    assert words is None or words in str(why)


def test_name_servers_that_disagree_name_two_masters_of_a_broker() -> None:
    with Server(remoting({}, ["10.0.0.2:10911"])) as one, Server(remoting({}, ["10.0.0.1:10911"])) as other:
        url = f"rocketmq://{one.address},{other.address}"
        cluster = Cluster(RocketBroker("b", "rocketmq", url))
        found = masters(cluster, cluster.masters())
        cluster.close()
    assert [*found] == ["broker-a#master 10.0.0.1:10911", "broker-a#master 10.0.0.2:10911"]
    assert "now: 10.0.0.1:10911 and 10.0.0.2:10911" in str(why_another(found, found, "broker-a"))
