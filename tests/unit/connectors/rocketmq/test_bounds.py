"""Which broker can say that a letter was not sent to it: the very one, or none."""

from collections.abc import Collection

from support.brokers.hostile import remoting
from support.rows import each_row
from support.servers.hostile import Server

from dlq.connectors.rocketmq.link.cluster import Cluster
from dlq.connectors.rocketmq.plugin.description import RocketBroker
from dlq.connectors.rocketmq.prove.evidence import Lead
from dlq.connectors.rocketmq.prove.start_offsets import masters, why_another

SENT_TO, ELSEWHERE, BOTH = {"10.0.0.1:10911"}, {"10.0.0.2:10911"}, {"10.0.0.1:10911", "10.0.0.2:10911"}


def lead(masters: Collection[str] = (), *epochs: str) -> Lead:
    return Lead(frozenset(masters), frozenset(epochs))


@each_row(("then", "now", "words"), [
    (lead(SENT_TO, "3"), lead(SENT_TO, "3"), None),
    (lead(), lead(SENT_TO, "3"), "master then: nothing known; now: 10.0.0.1:10911"),
    (lead(SENT_TO, "3"), lead(ELSEWHERE, "3"), "now: 10.0.0.2:10911"),
    (lead(SENT_TO, "3"), lead(), "now: nothing known"),
    (lead(BOTH, "3"), lead(SENT_TO, "3"), "then: 10.0.0.1:10911 and 10.0.0.2:10911"),
    (lead(SENT_TO, "3"), lead(BOTH, "3"), "now: 10.0.0.1:10911 and 10.0.0.2:10911"),
    (lead(SENT_TO, "3"), lead(SENT_TO, "5"), "epoch then: 3; now: 5"),
    (lead(SENT_TO), lead(SENT_TO, "3"), "epoch then: nothing known; now: 3"),
    (lead(SENT_TO, "3", "4"), lead(SENT_TO, "3", "4"), "epoch then: 3 and 4; now: 3 and 4"),
    (lead(SENT_TO, "untold"), lead(SENT_TO, "untold"), "now: untold"),
])  # fmt: skip
def test_not_sent_is_the_word_of_the_master_that_was_sent_to(
    then: Lead, now: Lead, words: str | None
) -> None:
    why = why_another(then, now)
    assert (why is None) == (words is None)
    assert words is None or words in str(why)


def test_name_servers_that_disagree_name_two_masters_of_a_broker() -> None:
    with Server(remoting({}, ["10.0.0.2:10911"])) as one, Server(remoting({}, ["10.0.0.1:10911"])) as other:
        url = f"rocketmq://{one.address},{other.address}"
        cluster = Cluster(RocketBroker("b", "rocketmq", url))
        cluster.masters()
        found = masters(cluster, "broker-a")
        cluster.close()
    assert found == lead(BOTH)
    assert "now: 10.0.0.1:10911 and 10.0.0.2:10911" in str(why_another(found, found))
