"""The engine of draining queues, by STOMP over a scripted broker: whatever comes, or does not come, nothing
is acknowledged before it is durable, and each letter once."""

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dlq.connectors.activemq.records.frames import Place, record_maker
from dlq.connectors.activemq.stomp.codec import Frame
from dlq.connectors.activemq.stomp.read import Scan, Started
from dlq.connectors.base import ReadRequest
from dlq.connectors.queue import Unsettled
from dlq.core.errors import ConnectionLost
from dlq.core.runtime import patience
from dlq.core.settings import Source

REQUEST = ReadRequest(Source("s", "b", queue="q"), "drain", "p", batch_rows=4)


class Broker:
    """A queue and its only connection, `Link`: letters come when it is told, as far as the window goes."""

    token, place, artemis, unfinished_bytes = "t", "b", False, 0

    def __init__(self, letters: int, window: int, cumulative: bool) -> None:
        self.waiting, self.window, self.cumulative = list(range(1, letters + 1)), window, cumulative
        self.on_the_wire: list[int] = []
        self.in_flight: list[int] = []
        self.gone: list[int] = []
        self.receipts: dict[str, int] = {}
        """A receipt that was asked for -> how many letters were gone then."""
        self.answers = True
        self.is_cut = self.consumes = False
        self.clock = self.silence = 0.0

    def deliver(self, most: int) -> None:
        room = self.window - len(self.in_flight) if self.consumes else 0
        new = self.waiting[: max(0, min(most, room))]
        self.waiting = self.waiting[len(new) :]
        self.in_flight += new
        self.on_the_wire += new

    def receive(self, wait: float) -> list[Frame]:
        self.must_be_there()
        self.clock, self.silence = self.clock + wait + self.silence, 0.0
        came, self.on_the_wire = self.on_the_wire, []
        return [
            Frame(b"MESSAGE", b"message-id:ID\\c1\\c1\\c1\\c%d\nack:%d\ntimestamp:%d" % (n, n, n), b"%d" % n)
            for n in came
        ]

    def send(self, data: bytes) -> None:
        self.must_be_there()
        for frame in data.split(b"\0")[:-1]:
            command, *headers = frame.decode().strip().split("\n")
            said = dict(header.split(":", 1) for header in headers)
            assert command == "ACK"
            self.acknowledge(int(said["id"]))
            if "receipt" in said:
                self.receipts[said["receipt"]] = len(self.gone)

    def acknowledge(self, number: int) -> None:
        assert number in self.in_flight, "it was acknowledged before, or never given"
        end = self.in_flight.index(number) + 1
        covered = self.in_flight[:end] if self.cumulative else [number]
        self.gone += covered
        self.in_flight = [n for n in self.in_flight if n not in covered]

    def request(self, command: str, _headers: Any) -> None:
        self.must_be_there()
        self.consumes = command == "SUBSCRIBE"
        if not self.consumes:
            self.give_back()

    def give_back(self) -> None:
        self.waiting, self.in_flight, self.on_the_wire = [*self.in_flight, *self.waiting], [], []

    def wait_for(self, receipt: str) -> None:
        self.must_be_there()
        assert receipt in self.receipts, "nothing asks for it"
        if not self.answers:
            self.is_cut = True
            self.must_be_there()

    def new_receipt(self) -> str:
        return f"r{len(self.receipts)}"

    def must_be_there(self) -> None:
        if self.is_cut:
            raise ConnectionLost("cut")

    def close(self) -> None:
        self.give_back()


class Draining(RuleBasedStateMachine):
    """What a caller does with a reading, and what a broker and a network do meanwhile."""

    @initialize(
        letters=st.integers(0, 40), depth=st.none() | st.integers(0, 30),
        limit=st.none() | st.integers(0, 20), window=st.integers(1, 9), cumulative=st.booleans(),
    )  # fmt: skip
    def begin(
        self, letters: int, depth: int | None, limit: int | None, window: int, cumulative: bool
    ) -> None:
        self.broker = broker = Broker(letters, window, cumulative)
        self.patch = pytest.MonkeyPatch()
        clock = SimpleNamespace(monotonic=lambda: broker.clock, sleep=self.sleep)
        self.patch.setattr("dlq.connectors.queue.time", clock)
        make = record_maker(REQUEST, Place("q", "activemq", "6", "n"))
        started = Started(
            broker, {"destination": "/queue/q"}, make, lambda _frame: None, cumulative=cumulative
        )  # type: ignore[arg-type]
        self.most = min((n for n in (depth, limit) if n is not None), default=letters)
        self.all = set(broker.waiting)
        self.reading = Scan(REQUEST, "q", lambda _limit: started, False, depth, {}, ()).begin(limit)
        self.batches = self.reading.batches()
        self.shown: list[int] = []
        self.durable = self.settled = 0
        self.is_over = False

    def sleep(self, seconds: float) -> None:
        self.broker.clock += seconds

    @precondition(lambda self: not self.is_over)
    @rule(arrivals=st.lists(st.integers(0, 9), min_size=1, max_size=9))
    def read_on(self, arrivals: list[int]) -> None:
        """While letters come, so many before each batch."""
        for most in arrivals:
            self.broker.deliver(most)
            try:
                batch = next(self.batches)
            except (StopIteration, ConnectionLost):
                self.is_over = True
                return
            self.shown += [int(record.body) for record in batch.records]
            assert batch.position == len(self.shown)

    @rule(share=st.floats(0, 1))
    def make_durable(self, share: float) -> None:
        self.durable += round(share * (len(self.shown) - self.durable))
        try:
            self.reading.acknowledge(self.durable)
        except ConnectionLost:
            assert self.broker.is_cut

    @rule()
    def settle(self) -> None:
        try:
            self.settled = self.reading.settled_position()
        except ConnectionLost:
            assert self.broker.is_cut

    @precondition(lambda self: self.shown)
    @rule(happens=st.sampled_from(["nothing", "nothing", "no answer", "cut"]))
    def fail(self, happens: str) -> None:
        self.broker.answers = self.broker.answers and happens != "no answer"
        self.broker.is_cut = self.broker.is_cut or happens == "cut"

    @precondition(lambda self: not self.is_over)
    @rule()
    def fall_silent(self) -> None:
        self.broker.silence = 2 * patience.UNACKED
        self.read_on([0, 0])

    @invariant()
    def nothing_is_acknowledged_that_is_not_durable(self) -> None:
        assert set(self.broker.gone) <= set(self.shown[: self.durable])

    @invariant()
    def each_letter_is_shown_and_acknowledged_once(self) -> None:
        assert len(set(self.shown)) == len(self.shown)
        assert len(set(self.broker.gone)) == len(self.broker.gone)

    @invariant()
    def no_more_is_taken_than_is_wanted(self) -> None:
        assert len(self.shown) <= self.most

    @invariant()
    def settled_is_what_the_broker_has_answered(self) -> None:
        assert self.settled <= len(self.broker.gone)

    def teardown(self) -> None:
        if not hasattr(self, "patch"):
            return
        self.reading.close()
        self.reading.close()
        self.patch.undo()
        assert {*self.broker.waiting, *self.broker.gone} == self.all
        assert not set(self.broker.waiting) & set(self.broker.gone)


test_a_drain_acknowledges_what_is_durable_and_nothing_else = Draining.TestCase
Draining.TestCase.settings = settings(stateful_step_count=30)


def test_what_is_owed_is_given_out_once_and_in_order() -> None:
    owed = Unsettled[str]()
    for position, tag in ((1, "a"), (2, "b"), (2, "c"), (4, "d")):
        owed.add(position, tag)
    assert owed.take(0) == []
    assert owed.take(3) == [(1, "a"), (2, "b"), (2, "c")]
    assert owed.take(3) == []
    assert list(owed) == ["d"]
    assert owed.take(9) == [(4, "d")]
    assert not owed
