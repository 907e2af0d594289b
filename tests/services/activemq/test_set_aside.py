"""One letter that cannot be read is set aside and named, and the rest is taken."""

from pathlib import Path

import pytest
from support.archives import letter, letters_in
from support.brokers.activemq.fixtures import Place, by_openwire, on_newest_classic
from support.brokers.activemq.sending import outgoing, published
from support.waiting import eventually

from dlq.archive.store import LocalStore
from dlq.capture.pull import PullOptions, pull
from dlq.connectors.base import Mode, Target
from dlq.core.errors import PoisonMessage

pytestmark = [pytest.mark.activemq, on_newest_classic]


@pytest.mark.parametrize("mode", ["copy", "drain"])
def test_a_message_that_is_longer_than_what_is_read_at_once_stays_and_the_rest_is_taken(
    stomp: Place, mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dlq.connectors.activemq.read.scan.MAX_FRAME", 50_000)
    stomp.send(b"a", bytes(700_000), b"b", bytes(50_000), b"c")
    here = by_openwire(stomp)
    records, left, _ = here.pull(mode)
    assert [record.body for record in records] == [b"a", b"b", b"c"]
    assert [why.partition(" bytes, more than the 50000")[1] for why in left] == [
        " bytes, more than the 50000"
    ] * 2
    monkeypatch.undo()
    there = [len(record.body) for record in stomp.drain()]
    assert there == ([700_000, 50_000] if mode == "drain" else [1, 700_000, 1, 50_000, 1])


def test_a_letter_with_headers_that_stomp_does_not_bring_out_is_named_and_the_way_out(
    stomp: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dlq.connectors.activemq.stomp.codec.MAX_HEAD", 2**20)
    here = by_openwire(stomp)
    huge = letter(1, broker_kind="activemq", headers={"huge": "x" * 2**21}, body=b"h", body_size=1)
    stomp.send(b"a", b"b")
    published(here, stomp.queue, outgoing([huge], Target("queue", stomp.queue)))
    stomp.send(b"c")
    store = LocalStore(str(tmp_path / "archive"))
    taken = pull(store, stomp.connector, stomp.request().source, PullOptions("drain"))
    assert 1 <= taken.captured <= 3  # the broker chooses what it gives first after the cut
    assert isinstance(taken.error, PoisonMessage)
    assert "bytes of headers, which STOMP does not bring out; set openwire_url" in str(taken.error)

    def all_are_there() -> bool:  # the broker gives back in its own time what STOMP had
        assert pull(store, here.connector, here.request().source, PullOptions("drain")).error is None
        return len(letters_in(store)) >= 4

    eventually(all_are_there)
    assert (len(letters_in(store)), here.drain()) == (4, [])
