"""Scans of a queue: gaps are what the broker says is gone, never what it has no time to send."""

import json
import struct
from collections import deque
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from support.rows import each_row

from dlq.connectors.base import Gap, ReadRequest
from dlq.connectors.rocketmq.link.connection import Link
from dlq.connectors.rocketmq.link.message import StoredMessage, encode, queue_offset
from dlq.connectors.rocketmq.link.remoting import Frame, RequestCode, ResponseCode
from dlq.connectors.rocketmq.read import topics
from dlq.connectors.rocketmq.read.outcomes import Outcomes
from dlq.connectors.rocketmq.read.queue import MessageQueue, PullScan, Step, scan_queue
from dlq.connectors.rocketmq.read.snapshot import QueueOffsets, message_at, plan_of
from dlq.connectors.rocketmq.read.topics import gather
from dlq.core.errors import BrokerError, ConnectionLost
from dlq.core.headers.rocketmq_topics import OP_TOPIC
from dlq.core.settings import Source

PLACE = MessageQueue("%DLQ%pay", "broker-a", 0)


class Broker(Link):
    """A link without a connection: `reply` says what a request is answered with."""

    address = "broker:10911"
    timeout = 0.2

    def __init__(self, reply: Callable[[int, Mapping[str, Any]], Frame]) -> None:
        self._reply, self._answers, self._opaque = reply, deque[Frame](), 0

    def frame(self, code: int, fields: Mapping[str, Any], _body: bytes = b"") -> tuple[int, bytes]:
        self._opaque += 1
        self._answers.append(self._reply(code, fields)._replace(opaque=self._opaque))
        return self._opaque, b""

    def write(self, data: bytes) -> None:
        """Was answered when it was framed."""

    def receive(self, wait: float | None = None) -> Frame | None:
        return self._answers.popleft() if self._answers else None

    def call(self, code: int, fields: Mapping[str, Any], _body: bytes = b"") -> Frame:
        self.ask(code, fields)
        return self._answers.popleft()


def answer(code: ResponseCode, body: bytes = b"", remark: str = "", **fields: int) -> Frame:
    return Frame(code, 0, True, 0, remark, {name: str(value) for name, value in fields.items()}, body)


@each_row(("reply", "why"), [
    (answer(ResponseCode.BUSY, remark="[OVERLOAD]system busy"), r"offset 7: code 2 \[OVERLOAD"),
    (answer(ResponseCode.PULL_AGAIN, nextBeginOffset=7), "nothing at offset 7"),
])  # fmt: skip
def test_a_broker_that_stays_busy_or_names_no_progress_ends_the_scan_without_a_gap(
    reply: Frame, why: str
) -> None:
    steps: list[Step] = []
    with pytest.raises(ConnectionLost, match=why):
        steps += PullScan(Broker(lambda *_: reply), PLACE, 7, 9, 2**20)
    assert set(steps) <= {Step((), 7)}


def test_what_the_broker_moves_past_is_a_gap() -> None:
    link = Broker(lambda *_: answer(ResponseCode.PULL_MOVED, nextBeginOffset=100))
    (step,) = PullScan(link, PLACE, 7, 9, 2**20)
    assert (step.messages, step.reached, step.gaps) == ([], 9, [Gap(str(PLACE), 7, 9)])


class Late(Broker):
    """Nothing comes for a moment before each answer."""

    is_there = True

    def receive(self, wait: float | None = None) -> Frame | None:
        self.is_there = not self.is_there
        return super().receive(wait) if self.is_there else None


def test_the_time_that_a_batch_takes_is_no_silence_of_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    now = reached = 0
    clock = SimpleNamespace(monotonic=lambda: now)
    monkeypatch.setattr("dlq.connectors.rocketmq.read.queue.time", clock)
    link = Late(lambda _, fields: answer(ResponseCode.PULL_MOVED, nextBeginOffset=fields["queueOffset"] + 32))
    for step in PullScan(link, PLACE, 0, 96, 1):
        now, reached = now + 1, step.reached
    assert reached == 96


def test_messages_that_an_index_names_and_the_store_has_lost_are_one_gap() -> None:
    def reply(code: int, fields: Mapping[str, Any]) -> Frame:
        if code == RequestCode.VIEW_MESSAGE:
            return answer(ResponseCode.SYSTEM_ERROR, remark="can not find message by the offset, 7")
        entries = [{"physicOffset": n} for n in range(fields["count"])]
        return answer(ResponseCode.OK, json.dumps({"queueData": entries, "minQueueIndex": 0}).encode())

    link = Broker(reply)
    (step,) = gather(scan_queue(link, PLACE, 5, 205), 2_000, 2**20)
    assert (step.messages, step.reached, step.gaps) == ([], 205, [Gap(str(PLACE), 5, 205)])


GONE = Gap(str(PLACE), 8, 16, str(PLACE), is_counted=True)


@each_row(("limit", "rows", "told"), [
    (None, 99, [(24, [GONE])]), (None, 10, [(18, [GONE]), (24, [])]), (None, 8, [(16, [GONE]), (24, [])]),
    (4, 99, [(4, [])]), (8, 99, [(16, [GONE])]), (10, 10, [(18, [GONE])]),
])  # fmt: skip
def test_what_is_gone_is_told_with_the_checkpoint_that_passes_it(
    monkeypatch: pytest.MonkeyPatch, limit: int | None, rows: int, told: list[tuple[int, list[Gap]]]
) -> None:
    """No later pull looks behind it."""
    letters = [
        encode(StoredMessage(PLACE.topic, 0, n, n, 0, 0, 0, bytes(8), 0, bytes(8), 0, 0, 0, b"x", b""))
        for n in range(24)
    ]
    steps = [Step(letters[:8], 8), Step(letters[16:], 24, [Gap(str(PLACE), 8, 16)])]
    monkeypatch.setattr(topics, "steps_of", lambda *_: steps)
    monkeypatch.setattr(topics, "is_still_there", lambda *_: True)
    monkeypatch.setattr(topics.RocketReading, "_link", lambda *_: None)
    request = ReadRequest(Source("s", "b", group="pay"), "drain", "p", limit=limit, batch_rows=rows)
    plan, seen = plan_of([QueueOffsets(PLACE, 0, 24)], {}), {"brokers": {"broker-a": {"version": "5.5.0"}}}
    reading = topics.RocketReading(NO_CLUSTER, request, plan, seen, None)
    assert [(one.checkpoint[str(PLACE)], [*one.gaps]) for one in reading.batches()] == told


@each_row("refused", [RequestCode.QUERY_QUEUE, RequestCode.VIEW_MESSAGE])
@each_row(("code", "remark"), [
    (ResponseCode.BUSY, "[OVERLOAD]system busy"),
    (ResponseCode.SYSTEM_ERROR, "org.apache.rocketmq.acl.common.AclException: Check signature failed"),
    (ResponseCode.SYSTEM_ERROR, "java.lang.NullPointerException"),
])  # fmt: skip
def test_what_an_index_does_not_show_for_another_reason_than_that_it_is_gone_is_no_gap(
    code: ResponseCode, remark: str, refused: RequestCode
) -> None:
    def reply(asked: int, _: Mapping[str, Any]) -> Frame:
        found = answer(ResponseCode.OK, json.dumps({"queueData": [{"physicOffset": 0}]}).encode())
        return answer(code, remark=remark) if asked == refused else found

    with pytest.raises(BrokerError, match="broker-a refused with code"):
        [*scan_queue(Broker(reply), PLACE, 5, 205)]


def test_a_queue_that_a_broker_does_not_have_is_a_gap() -> None:
    link = Broker(lambda *_: answer(ResponseCode.SYSTEM_ERROR, remark="0@%DLQ%pay is not exist!"))
    (step,) = scan_queue(link, PLACE, 5, 205)
    assert ([*step.messages], step.reached, step.gaps) == ([], 205, [Gap(str(PLACE), 5, 205)])


def test_a_broker_that_does_not_look_has_not_said_that_nothing_is_there() -> None:
    """A queue that was made again would pass for the one that was read, and a commit for a rollback."""
    busy = answer(ResponseCode.BUSY, remark="[OVERLOAD]system busy")
    cluster: Any = SimpleNamespace(call=lambda *_: busy)
    with pytest.raises(BrokerError, match="refused with code 2"):
        message_at(cluster, QueueOffsets(PLACE, 0, 9), 3)
    with pytest.raises(BrokerError, match="refused with code 2"):
        Outcomes(cluster, {"broker-a": (0, 0)}).real_messages(Broker(lambda *_: busy), "broker-a", [op(7)])


@each_row(("reached", "start", "is_untold"), [
    (8, 50, True),
    (7, 50, False),  # it was gone before it was read
    (0, 50, False),
    (0, 7, True),
])  # fmt: skip
def test_of_a_half_message_that_was_brought_and_is_gone_nothing_shows_that_it_was_rolled_back(
    reached: int, start: int, is_untold: bool
) -> None:
    """A full disk takes a log from its start before its time: with the half message what a commit wrote."""
    link = Broker(lambda *_: answer(ResponseCode.PULL_MOVED, minOffset=50, maxOffset=90, nextBeginOffset=50))
    outcomes = Outcomes(NO_CLUSTER, {"broker-a": (reached, start)})
    assert outcomes.real_messages(link, "broker-a", [op(7)]) == []
    assert outcomes.untold == ({"broker-a"} if is_untold else set())


def op(half: int) -> StoredMessage:
    """An op record that ends a half message."""
    return StoredMessage(OP_TOPIC, 0, 0, 0, 0, 0, 0, b"", 0, b"", 0, 0, 0, b"%d," % half, b"")


NO_CLUSTER: Any = None


def stored(offset: int, size: int) -> bytes:
    """A message as far as a scan looks: its length, magic and offset."""
    head = struct.pack(">iIiiiq", size, 0xDAA320A7, 0, 0, 0, offset)
    return head.ljust(size, b"\0")


def test_no_more_large_letters_wait_for_those_before_them_than_there_is_room_for() -> None:
    """One comes with each answer, and those of the first requests last."""
    size, room, alive = 2**16, 2**20, deque[Frame]()

    class Backwards(Broker):
        def receive(self, wait: float | None = None) -> Frame | None:
            return self._answers.pop() if self._answers else None

    def reply(_: int, fields: Mapping[str, Any]) -> Frame:
        at = fields["queueOffset"]
        alive.append(answer(ResponseCode.OK, stored(at, size), nextBeginOffset=at + 1))
        return alive[-1]

    link: Any = Backwards(reply)
    offsets: list[int] = []
    most = 0
    for step in PullScan(link, PLACE, 0, 600, room):
        offsets += map(queue_offset, step.messages)
        most = max(most, len(alive) - len(offsets))
    assert offsets == [*range(600)]
    assert most * size <= 3 * room


def test_what_is_read_through_an_index_is_asked_for_by_few_at_first_and_never_by_more_than_fit() -> None:
    together: list[int] = []

    def reply(code: int, fields: Mapping[str, Any]) -> Frame:
        if code == RequestCode.VIEW_MESSAGE:
            together[-1] += 1
            return answer(ResponseCode.OK, b"")
        together.append(0)
        entries = [{"physicOffset": n} for n in range(10_000)]  # more than was asked for
        return answer(ResponseCode.OK, json.dumps({"queueData": entries, "minQueueIndex": 0}).encode())

    link = Broker(reply)
    assert [step.reached for step in scan_queue(link, PLACE, 0, 100)] == [8, 24, 56, 100]
    assert together == [8, 16, 32, 44]
