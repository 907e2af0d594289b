"""On real ActiveMQ brokers: what a consumer has fixed is what a rehearsal says, and no queue of it stays."""

import threading
from pathlib import Path

import pytest
from support.brokers.activemq.broker import ARTEMIS, CLASSIC, ActiveMq
from support.brokers.activemq.fixtures import Place, on_all, on_classic
from support.brokers.activemq.sending import place_on
from support.rehearsing import FAILURES, OF_EACH, counts, fixed, on_activemq, rehearse
from support.waiting import eventually

from dlq.connectors.activemq.look.artemis import Management
from dlq.connectors.activemq.look.jolokia import Jolokia
from dlq.connectors.activemq.stomp.codec import encode, headers_of
from dlq.connectors.base import Target
from dlq.core.errors import AccessDenied, BrokerError
from dlq.operations.workspace import Workspace
from dlq.replay.runs.rehearsal import Stage

pytestmark = pytest.mark.activemq


@pytest.fixture
def workspace(stomp: Place, tmp_path: Path) -> Workspace:
    return on_activemq(stomp, tmp_path)


class FixedSome:
    """Gives `broken` failures up, and acknowledges the rest. Who gives up over STOMP on Artemis acknowledges:
    there its management does as after the last attempt."""

    def __init__(self, place: Place, broken: set[str]) -> None:
        self.place, self.broken = place, broken

    def __call__(self, name: str, over: threading.Event) -> None:
        link, left = self.place.link(), len(FAILURES) * OF_EACH
        eventually(lambda: over.is_set() or self.is_there(name))
        if self.place.broker.artemis:
            left -= self.kill(name)
        destination = self.place.destination(name)
        link.request("SUBSCRIBE", {**destination, "id": link.token, "ack": "client-individual"})
        while left and not over.is_set():
            for frame in link.receive(0.1):
                command = "NACK" if frame.body.decode() in self.broken else "ACK"
                link.send(encode(command, {"id": headers_of(frame.head)["ack"]}))
                left -= 1
        link.request("UNSUBSCRIBE", {"id": link.token})
        link.close()

    def is_there(self, name: str) -> bool:
        seen = self.place.connector.consumption([Target("queue", name)]).values()
        return any(one.waiting == len(FAILURES) * OF_EACH for found in seen for one in found)

    def kill(self, name: str) -> int:
        management = Management(self.place.settings)
        ids = [
            one["messageID"]
            for failure in self.broken
            for one in management.messages(name, f"shelf = '{failure}'") or ()
        ]
        management.close()
        for number in ids:
            self.place.manage("sendMessageToDeadLetterAddress", number, resource=f"queue.{name}")
        return len(ids)


@on_all
def test_precision_and_recall_are_one(stomp: Place, workspace: Workspace) -> None:
    stomp.send(b"waits", queue=f"{stomp.queue}.work")
    consumer = FixedSome(stomp, {"stock", "login"})
    done = rehearse(workspace, f"queue:{stomp.queue}.work", consumer)
    assert fixed(done.document) == {*FAILURES} - consumer.broken
    assert counts(done.document, "stock") == (OF_EACH, 0, OF_EACH, 0)
    assert done.document["target"] == {"name": f"queue:{stomp.queue}.work", "before": 1, "after": 1}
    assert done.document["removed"]
    names = stomp.connector.queues.names() or []
    assert not [name for name in names if "rehearsal" in name]
    dead = [one for name in names if "DLQ" in name for one in stomp.drain(name)]
    assert not [one for one in dead if "dlq_rehearsal" in one.headers]


@pytest.mark.parametrize("stomp_broker", [ARTEMIS], indirect=True)
def test_a_right_that_is_missing_is_named_in_one_line(stomp: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("READS", "reads")
    by_reader = stomp.settings.url.replace(f"{stomp.broker.user}@", "reader@")
    reader = stomp.by(url=by_reader, password_env="READS")
    with pytest.raises(
        AccessDenied, match=r"^legacy: a rehearsal makes queues .*permissions send and manage"
    ):
        reader.connector.private("dlq.rehearsal.plan").make()


@on_classic
def test_what_died_behind_more_than_the_broker_shows_has_not_passed(stomp: Place) -> None:
    full, name = stomp.queue, f"dlq.rehearsal.{stomp.queue.replace('.', '-')}"
    stomp.send(*[bytes(1024)] * 400, queue=full)
    stomp.send(b"died", queue=full, dlq_rehearsal=f"{name.split('.')[2]}-1")
    stomp.broker.stop()  # it has kept as many in its memory as it likes
    stomp.broker.start()
    jolokia = Jolokia(stomp.settings, artemis=False)
    mbean = jolokia.mbean_of(full)
    for attribute, value in (("DLQ", True), ("MemoryLimit", 200 * 1024)):
        jolokia.ask({"type": "write", "mbean": mbean, "attribute": attribute, "value": value})
    private = stomp.connector.private(name)
    with pytest.raises(BrokerError, match="percent of its memory"):
        private.collect()
    shown, unseen = Stage(stomp.by().connector, stomp.settings, "plan").read({"queue": full})
    assert (bool(shown), unseen) == (True, 401 - len(shown))  # a browse ends at the memory limit
    stomp.drain(full, limit=380)
    private.collect()
    assert [record.body for record in stomp.drain(f"{name}.dead")] == [b"died"]
    stomp.send(b"before a restart", queue=f"{stomp.queue}.DLQ", dlq_rehearsal=f"{name.split('.')[2]}-1")
    private.collect()
    assert [record.body for record in stomp.drain(f"{name}.dead")] == [b"before a restart"]
    stomp.drain(full)


BROKER = """<broker><destinationPolicy><policyMap><policyEntries>{}</policyEntries></policyMap>
</destinationPolicy><plugins>{}</plugins></broker>"""
OF_OURS = '<policyEntry queue="dlq.rehearsal.&gt;"><deadLetterStrategy>{}</deadLetterStrategy></policyEntry>'
DISCARDS = {
    "a strategy": (OF_OURS.format("<discarding/>"), ""),
    "a plugin": ("", '<discardingDLQBrokerPlugin dropAll="false" dropOnly="dlq\\.rehearsal\\..*"/>'),
    "nothing": ("", ""),
}


@pytest.mark.parametrize("version", CLASSIC)
@pytest.mark.parametrize("what", DISCARDS)
def test_where_what_dies_is_dropped_nothing_is_rehearsed(version: str, what: str, tmp_path: Path) -> None:
    xml = tmp_path / "activemq.xml"
    xml.write_text(BROKER.format(*DISCARDS[what]))
    with ActiveMq(version, f"xml={xml}") as broker:
        place = place_on(broker)
        for number, one in enumerate((place, place.by(url=f"tcp://127.0.0.1:{broker.openwire}"))):
            private = one.connector.private(f"dlq.rehearsal.p{number}")
            if what == "nothing":
                private.make()
            else:
                with pytest.raises(BrokerError, match="came to no dead-letter queue"):
                    private.make()
            private.remove()
            assert not [name for name in place.connector.queues.names() or () if "rehearsal" in name]


@pytest.mark.parametrize("stomp_broker", [ARTEMIS], indirect=True)
def test_what_dies_on_artemis_stays_where_other_queues_are_rings(stomp: Place, workspace: Workspace) -> None:
    stomp.manage("addAddressSettings", "dlq.rehearsal.#", {"defaultRingSize": 1})
    done = rehearse(workspace, f"queue:{stomp.queue}.work", FixedSome(stomp, {"stock"}))
    stomp.manage("removeAddressSettings", "dlq.rehearsal.#")
    assert fixed(done.document) == {*FAILURES} - {"stock"}
