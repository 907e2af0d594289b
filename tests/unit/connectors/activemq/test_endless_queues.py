"""Queues that give letters without end: a reading stops at its snapshot, and looks up once a second."""

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import count, cycle, islice
from types import SimpleNamespace
from typing import Any

import pytest
from support.analyzers.letters import record

from dlq.connectors import queue
from dlq.connectors.activemq.amqp import read as amqp10_reading
from dlq.connectors.activemq.amqp.read import ArtemisReading
from dlq.connectors.activemq.look.queues import Queues
from dlq.connectors.activemq.openwire import read as openwire_consumer
from dlq.connectors.activemq.openwire.codec.messages import Dispatch
from dlq.connectors.activemq.openwire.read import OpenWireReading, OpenWireScan
from dlq.connectors.activemq.plugin.description import ActiveMQBroker
from dlq.connectors.activemq.read import browse as artemis_browse
from dlq.connectors.activemq.read import scan as queue_scan
from dlq.connectors.activemq.stomp.codec import Frame
from dlq.connectors.activemq.stomp.read import Scan, Started, StompReading
from dlq.connectors.amqp10 import read as amqp10_read
from dlq.connectors.amqp10.link.session import Delivery
from dlq.connectors.base import Batch, ReadRequest
from dlq.connectors.chain import scan_twice
from dlq.core.errors import ConnectionLost
from dlq.core.record import Record
from dlq.core.runtime import patience
from dlq.core.settings import Source

REQUEST = ReadRequest(Source("s", "b", queue="q"), "copy", "p")
BROKER = ActiveMQBroker("b", "artemis", "stomp://h")


class Endless:
    """A session that always has as many letters as it is asked for."""

    dead, patience, seconds = False, 1.0, 0.0

    def __init__(self) -> None:
        self._asked = self.given = 0

    def attach(self, *_: object) -> Any:
        return SimpleNamespace(is_answered=True)

    def ask(self, _link: object, letters: int) -> None:
        self._asked = letters

    def turn(self, _seconds: float) -> None:
        time.sleep(self.seconds)

    def take(self) -> list[Delivery]:
        self.given += self._asked
        return [Delivery(n, b"x") for n in range(self.given - self._asked, self.given)]


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Endless:
    endless = Endless()
    monkeypatch.setattr(amqp10_reading, "open_session", lambda _: endless)
    return endless


def usual(_message: bytes) -> Record:
    return record(body=b"x")


def by_amqp(
    depth: int | None = None, limit: int | None = None, make: Callable[[bytes], Record] = usual
) -> Iterator[Batch]:
    others = Scan(REQUEST, "q", lambda _: pytest.fail("nothing is left for STOMP"), False, depth, {}, ())
    own = partial(ArtemisReading, BROKER, REQUEST, "q", make)
    return scan_twice(others, own, others.begin).begin(limit).batches()


@pytest.mark.parametrize(("depth", "limit"), [(1234, None), (None, 1234), (1234, 9999), (9999, 1234)])
def test_no_more_is_read_by_amqp_than_the_snapshot_or_the_limit(
    depth: int | None, limit: int | None, session: Endless
) -> None:
    for _ in by_amqp(depth, limit):
        pass
    assert session.given == 1234


def test_what_trickles_by_amqp_is_handed_on(session: Endless, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "YIELD", 0.05)
    monkeypatch.setattr(amqp10_read, "_FIRST_LETTERS", 1)
    monkeypatch.setattr(amqp10_read, "_MOST_LETTERS", 1)
    session.seconds = 0.01
    assert 1 <= len(next(by_amqp(99)).records) <= 20


def refuse(_message: bytes) -> Any:
    raise ValueError("damaged")


@pytest.mark.parametrize("make", [usual, refuse])
def test_a_queue_of_unknown_size_is_handed_on_for_as_long_as_it_gives_letters(
    make: Callable[[bytes], Record], session: Endless, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that whoever pulls can end it, also where no letter can be read."""
    monkeypatch.setattr(patience, "YIELD", 0.05)
    batches = islice(by_amqp(make=make), 3)
    assert sum(len(batch.records) + len(batch.skipped) for batch in batches) > 2


def trickle(one: object, **more: Any) -> Any:
    """A link on which this comes again and again."""

    def receive(_wait: float) -> list[Any]:
        time.sleep(0.01)
        return [one]

    nothing = lambda *_, **__: b""  # noqa: E731
    writer = SimpleNamespace(consume=nothing, stop=nothing)
    usual = {"receive": receive, "send": nothing, "request": nothing, "token": "t", "artemis": False}
    return SimpleNamespace(writer=writer, place="b", unfinished_bytes=0, **{**usual, **more})


def by_stomp(link: Any, why_lossy: Callable[[Frame], str | None]) -> StompReading:
    started = Started(link, {"destination": "q"}, lambda frames: [record() for _ in frames], why_lossy)
    return StompReading(Scan(REQUEST, "q", lambda _: started, False, None, {}, ()), None)


def by_openwire(link: Any) -> OpenWireReading:
    scan = OpenWireScan(REQUEST, "q", lambda _: (link, 9, lambda _: []), False, None, {}, (), False)
    return OpenWireReading(scan, None)


LOST: Mapping[str, Callable[[], StompReading | OpenWireReading]] = {
    "stomp": lambda: by_stomp(trickle(Frame(b"MESSAGE", b"message-id:1", b"")), lambda _: "it stays"),
    "openwire": lambda: by_openwire(
        trickle(Dispatch(openwire_consumer.CONSUMER, 24, b"name", None, unreadable="damaged"))
    ),
}


@pytest.mark.parametrize("way", LOST)
def test_letters_that_trickle_and_cannot_be_had_end_a_batch(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "YIELD", 0.1)
    batch = LOST[way]().next_batch()
    assert not batch.records
    assert 1 <= len(batch.skipped) <= 20


def test_a_browse_beside_stomp_is_bounded() -> None:
    asked: list[int] = []

    def browse(_queue: str, limit: int, _pause: float, _selector: None) -> Iterator[Dispatch]:
        asked.append(limit)
        return iter(())

    connection: Any = SimpleNamespace(broker_id="b", browse=browse)
    for limit in (None, 7, 10**9):
        artemis_browse.browse_queue(connection, "q", limit)
    assert asked == [1_000_000, 7, 1_000_000]


@pytest.mark.parametrize(("details", "rows"), [(True, 20), (False, REQUEST.batch_rows)])
def test_a_batch_is_short_where_jolokia_is_asked_for_each_letter(details: bool, rows: int) -> None:
    url = "http://h:8161/api/jolokia"
    broker = ActiveMQBroker("b", "activemq", "stomp://h", jolokia_url=url, jolokia_details=details)
    queues: Any = SimpleNamespace(artemis=False, trouble=None, facts=lambda _: None)
    assert queue_scan._by_stomp(broker, queues, REQUEST, "q").request.batch_rows == rows


@pytest.mark.parametrize("ends", [True, False])
def test_a_letter_that_comes_slowly_is_no_silence_and_half_of_one_is_not_all(
    ends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue's size is not told; three pieces come, each after half of the silence that ends a reading."""
    monkeypatch.setattr(patience, "IDLE", 0.1)
    pieces = iter([100, 200, 300])

    def receive(_wait: float) -> list[Frame]:
        time.sleep(0.06)
        if piece := next(pieces, 0):
            link.unfinished_bytes = piece
        elif ends and link.unfinished_bytes:
            link.unfinished_bytes = 0
            return [Frame(b"MESSAGE", b"message-id:1", b"whole")]
        return []

    link = trickle(None, receive=receive)
    reading = by_stomp(link, lambda _: None)
    assert sum(len(batch.records) for batch in reading.batches()) == ends
    assert reading.complete == ends


def seconds_until_silent(part: Iterator[int], longest: float) -> int:
    silence = queue.IdleTimer()
    for waited in range(10**5):
        if silence.seconds > longest:
            return waited
        silence.wait(1.0, next(part))
    pytest.fail("for ever")


@pytest.mark.parametrize("longest", [patience.IDLE, patience.STALLED, patience.UNACKED])
def test_who_drips_a_letter_or_says_for_ever_what_is_none_is_silent_in_the_end(longest: float) -> None:
    assert seconds_until_silent(count(), longest) < 200
    assert seconds_until_silent(cycle([5, 0, 9]), longest) < 200


def test_a_long_letter_may_take_its_time() -> None:
    silence = queue.IdleTimer()
    for second in range(1, 3600):
        silence.wait(1.0, second * 2**15)
        assert silence.seconds == 0


def test_commands_of_openwire_that_bring_no_letter_are_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "IDLE", 0.1)
    monkeypatch.setattr(patience, "YIELD", 0.1)
    other = Dispatch(openwire_consumer.CONSUMER + 1, 0, b"", None)
    link = trickle(other, new_receipt=lambda: "1", wait_for=lambda _: None)
    assert len(list(islice(by_openwire(link).batches(), 9))) < 9


def test_where_artemis_answers_instead_of_classic_nothing_is_browsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its STOMP would take all that there is, and acknowledge it."""
    link = SimpleNamespace(artemis=True, place="b (h:1)", close=lambda: None)
    monkeypatch.setattr(queue_scan, "Link", lambda _: link)
    scan = queue_scan.scan_of(BROKER, Queues(BROKER, "activemq"), REQUEST, "q")
    with pytest.raises(ConnectionLost, match="of another kind"):
        scan.begin(None)
