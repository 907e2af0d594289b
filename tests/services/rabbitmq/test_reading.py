"""Reading real queues: exact, lossless, and without harm."""

import errno
import os
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from support.brokers.rabbitmq.fixtures import KINDS, Rabbit, on_private_nodes, on_rabbitmq_3, request
from support.brokers.rabbitmq.letters import goes_while_somebody_waits
from support.connector_contract import Place, ReadingContract, drained, first_letters, letters
from support.waiting import SOON, eventually
from support.wire_builders import drain_and_end

from dlq.archive.storage.store import LocalStore
from dlq.capture.pull import PullOptions, pull
from dlq.connectors.base import Mode
from dlq.core.record import Record

MANY = 15_000
"""More than two segments hold, of which one is written while the other grows: some come after the first."""
each_kind = pytest.mark.parametrize("kind", KINDS)


@each_kind
class TestRabbitMQ(ReadingContract):
    @pytest.fixture
    def place(self, rabbit: Rabbit, kind: str) -> Place:
        queue = rabbit.queue(kind)
        sent = iter(range(1000))

        def fill(number: int) -> list[bytes]:
            bodies = [b"letter %d" % next(sent) for _ in range(number)]
            rabbit.publish(queue, bodies)
            return bodies

        return Place(rabbit.connector(), request(queue).source, fill)


def drain(rabbit: Rabbit, queue: str, **changes: Any) -> list[Record]:
    place = Place(rabbit.connector(), request(queue).source, lambda _n: [])
    return drained(place, batch_rows=10_000, **changes)


def left_in(rabbit: Rabbit, queue: str, number: int) -> list[tuple[Any, Any, bytes]]:
    """What lies there, once there is so much."""
    rabbit.wait_for(queue, number)
    return rabbit.take(queue, number)


def counts(headers: Any) -> tuple[int, int]:
    return int((headers or {}).get("x-delivery-count", 0)), int((headers or {}).get("x-acquired-count", 0))


@each_kind
def test_a_drain_takes_the_snapshot_and_leaves_late_letters_untouched(rabbit: Rabbit, kind: str) -> None:
    queue = rabbit.queue(kind)
    rabbit.fill(queue, 3000)
    reading = rabbit.read(queue, batch_rows=500)
    bodies: list[bytes] = []
    for batch in reading.batches():
        if batch.records and not bodies:
            rabbit.publish(queue, [b"late %d" % i for i in range(200)])
        bodies += [record.body for record in batch.records]
        reading.acknowledge(batch.position)
    assert reading.settled_position() == 3000
    reading.close()
    assert (reading.snapshot, reading.complete) == (3000, True)
    assert bodies == [b"letter %d" % i for i in range(3000)]
    late = left_in(rabbit, queue, 200)
    assert [body for _, _, body in late] == [b"late %d" % i for i in range(200)]
    assert not any(method.redelivered for method, _, _ in late)
    assert {counts(properties.headers) for _, properties, _ in late} == {(0, 0)}


@each_kind
def test_a_drain_that_ends_early_gives_the_rest_back_once_and_uncounted(rabbit: Rabbit, kind: str) -> None:
    queue = rabbit.queue(kind)
    rabbit.fill(queue, 500)
    reading = rabbit.read(queue, batch_rows=20)
    scan = reading.batches()
    taken = first_letters(scan).position
    reading.acknowledge(taken)
    del scan
    assert reading.settled_position() == taken
    reading.close()
    rest = left_in(rabbit, queue, 500 - taken)
    assert sorted(body for _, _, body in rest) == sorted(b"letter %d" % i for i in range(taken, 500))
    limited = kind == "quorum" and rabbit.version >= (4,)  # then the first letter is asked for alone
    assert sum(method.redelivered for method, _, _ in rest) <= (1 + 16 + 256 if limited else 64) - taken
    once = 0 if rabbit.version >= (4, 3) else 1
    most = max(counts(properties.headers)[0] for _, properties, _ in rest)
    assert most == (0 if kind == "classic" else once)


def test_letters_that_a_gone_consumer_held_are_waited_for(
    rabbit: Rabbit, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = rabbit.queue("quorum")
    rabbit.fill(queue, 25)
    holder = rabbit.connect()
    holder.basic_consume(queue, lambda *_: None)
    rabbit.wait_for(queue, 0)
    eventually(lambda: dict(rabbit.node.api("GET", "queues", rabbit.vhost, queue)).get("messages") == 25)
    goes_while_somebody_waits(holder, monkeypatch)
    assert len(drain(rabbit, queue)) == 25


@each_kind
def test_a_copy_over_many_windows_gives_all_back_in_order(rabbit: Rabbit, kind: str) -> None:
    queue = rabbit.queue(kind)
    rabbit.fill(queue, 20_000, b"%d")
    assert len(letters(rabbit.read(queue, "copy", force=True))) == 20_000
    assert [body for _, _, body in left_in(rabbit, queue, 20_000)] == [b"%d" % i for i in range(20_000)]


def test_a_dead_letter_says_where_it_came_from(rabbit: Rabbit) -> None:
    letter = drain(rabbit, rabbit.dead_letters(1))[0]
    [death] = letter.deaths
    assert (death.reason, death.count, death.queue) == ("rejected", 1, letter.origin)
    assert (letter.origin_kind, letter.origin_exchange) == ("queue", "")
    assert letter.origin_routing_key == letter.origin == death.routing_keys[0]
    assert (letter.exchange, letter.routing_key) == ("", letter.dead_letter_queue)
    assert letter.dead_at == letter.first_dead_at == death.time
    assert abs((letter.dead_at or 0) - (letter.captured_at or 0)) < 60_000_000
    assert (letter.attempts, letter.message_id, letter.persistent) == (1, "m", True)
    assert letter.headers["tenant"] == "42"
    assert letter.broker_version == ".".join(map(str, rabbit.version))


@on_private_nodes
def test_a_copy_of_a_quorum_queue_without_limit_says_that_it_reorders(rabbit: Rabbit) -> None:
    unlimited = {"x_delivery_limit": -1} if rabbit.version >= (4,) else {}
    queue = rabbit.queue("quorum", **unlimited)
    rabbit.wait_for_statistics(queue)
    reading = rabbit.read(queue, "copy")
    reading.close()
    assert ("back of the queue" in reading.notes[0]) == (rabbit.version < (4, 3))


def test_other_consumers_end_the_reading_incomplete(rabbit: Rabbit) -> None:
    queue = rabbit.queue()
    rabbit.fill(queue, 300)
    connector = rabbit.connector()
    reading = connector.read(request(queue))
    assert len(rabbit.take(queue, 100)) == 100
    started = time.monotonic()
    found = letters(reading)
    assert len(found) == 200
    assert not reading.complete
    assert 2 < time.monotonic() - started < SOON


@on_rabbitmq_3
def test_a_careful_reading_asks_for_one_letter_at_a_time(rabbit: Rabbit) -> None:
    queue = rabbit.queue("quorum")
    rabbit.fill(queue, 5)
    reading = rabbit.read(queue, careful=True)
    for batch in reading.batches():
        assert len(batch.records) <= 1
        left = 5 - batch.position if batch.records else 0
        eventually(lambda left=left: rabbit.depth(queue) >= left)  # where its leader is late it says 0
        reading.acknowledge(batch.position)
    assert reading.settled_position() == 5
    reading.close()


@pytest.mark.parametrize("careful", [False, True])
@pytest.mark.parametrize("mode", ["copy", "drain"])
def test_while_letters_that_are_alike_are_acknowledged_none_is_on_its_way(
    rabbit: Rabbit, mode: Mode, careful: bool
) -> None:
    queue = rabbit.holding([b"alike"] * 150)
    reading = rabbit.read(queue, mode, careful=careful, batch_rows=20)
    reading.alike = True
    answered = 0
    for batch in reading.batches():
        if mode == "drain":
            reading.acknowledge(batch.position)
            before, answered = answered, reading.settled_position()
            assert answered in (before, reading.position)
    reading.close()
    assert reading.complete
    assert reading.position == 150
    assert answered == (150 if mode == "drain" else 0)


@each_kind
def test_letters_that_are_alike_all_go_back_where_a_scan_ends_before_all_are_taken(
    rabbit: Rabbit, kind: str
) -> None:
    queue = rabbit.holding([b"alike"] * 90, kind)
    reading = rabbit.read(queue, batch_rows=20)
    reading.alike = True
    scan = reading.batches()
    while not reading._link.untaken:
        position = next(scan).position
        reading.acknowledge(position)
    scan.close()
    reading.acknowledge(position)
    before = reading.settled_position()
    reading.close()
    assert before < position
    assert len(left_in(rabbit, queue, 90 - before)) == 90 - before


def test_what_was_removed_is_known_where_a_scan_ends_early_and_nothing_is_left(rabbit: Rabbit) -> None:
    """A quorum queue without letters and consumers may have no leader, who alone can say it."""
    queue = rabbit.holding([b"letter %d" % n for n in range(17)], "quorum")
    reading = rabbit.read(queue, batch_rows=17)
    scan = reading.batches()
    assert first_letters(scan).position == 17
    scan.close()
    reading.acknowledge(17)
    eventually(lambda: rabbit.channel.queue_declare(queue, passive=True).method.consumer_count == 0)
    assert reading.settled_position() == 17
    reading.close()


def test_where_others_consume_a_letter_is_asked_for(rabbit: Rabbit) -> None:
    """While they do, their number does not tell whether acknowledgements are committed."""
    queue = rabbit.holding([b"letter %d" % n for n in range(30)], "quorum")
    other = rabbit.connect()
    other.basic_qos(prefetch_count=1)
    other.basic_consume(queue, lambda *_: None)
    rabbit.wait_for(queue, 29)
    assert len(drain(rabbit, queue, limit=20)) == 20
    other.connection.close()
    assert len(left_in(rabbit, queue, 10)) == 10


def test_a_slow_writer_stops_the_broker_and_not_the_memory(rabbit: Rabbit) -> None:
    queue = rabbit.queue()
    for _ in range(8):
        rabbit.publish(queue, [b"x" * (8 * 2**20)])
    reading = rabbit.read(queue)
    seen = 0
    for batch in reading.batches():
        assert sum(record.body_size for record in batch.records) <= 24 * 2**20
        seen += len(batch.records)
        time.sleep(0.1)
        reading.acknowledge(batch.position)
    assert seen == 8
    assert reading.settled_position() == 8
    reading.close()


def test_large_bodies_arrive_whole(rabbit: Rabbit) -> None:
    largest = 128 if rabbit.version < (4,) else 16
    queue = rabbit.queue()
    body = bytes(range(256)) * (largest * 4096)
    rabbit.publish(queue, [body, b""])
    found = drain(rabbit, queue)
    assert [record.body_size for record in found] == [largest * 2**20, 0]
    assert found[0].body == body


def test_drains_of_a_full_disk_cost_letters_no_delivery(
    rabbit: Rabbit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, store = rabbit.queue("quorum", x_delivery_limit=2), LocalStore(str(tmp_path))
    rabbit.fill(queue, 200)
    connector = rabbit.connector()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", full)
        for _ in range(4):
            failed = pull(store, connector, request(queue).source, PullOptions("drain"))
            assert "cannot write a segment in the archive" in str(failed.error)
    rabbit.wait_for(queue, 200)
    done = pull(store, connector, request(queue).source, PullOptions("drain"))
    assert (done.captured, done.acknowledged, done.partial) == (200, 200, False)


def _delete(rabbit: Rabbit, queue: str) -> None:
    rabbit.channel.queue_delete(queue)


def _make_again(rabbit: Rabbit, queue: str) -> None:
    rabbit.channel.queue_delete(queue)
    rabbit.channel.queue_declare(queue, durable=True)


def _delete_host(rabbit: Rabbit, _queue: str) -> None:
    rabbit.node.api("DELETE", "vhosts", rabbit.vhost)


@on_private_nodes
@pytest.mark.parametrize(
    ("kind", "end"), [("quorum", _delete), ("classic", _make_again), ("quorum", _delete_host)]
)
def test_letters_of_a_queue_that_is_deleted_in_mid_drain_are_gone(
    rabbit: Rabbit, tmp_path: Path, kind: str, end: Callable[[Rabbit, str], None]
) -> None:
    queue, connector = rabbit.queue(kind), rabbit.connector()
    rabbit.fill(queue, MANY)
    done = drain_and_end(connector, request(queue).source, tmp_path, lambda: end(rabbit, queue))
    rabbit.node.api("PUT", "vhosts", rabbit.vhost)
    assert done.partial
    assert (done.snapshot, done.left, done.gone) == (MANY, 0, MANY - done.captured - done.recaptured)


@on_private_nodes
@each_kind
def test_letters_of_a_queue_that_is_made_again_and_filled_are_not_taken_for_those_before(
    rabbit: Rabbit, tmp_path: Path, kind: str
) -> None:
    queue, connector = rabbit.queue(kind), rabbit.connector()
    rabbit.fill(queue, MANY)

    def fill_anew() -> None:
        _make_again(rabbit, queue)
        rabbit.fill(queue, MANY)

    done = drain_and_end(connector, request(queue).source, tmp_path, fill_anew)
    assert done.partial
    assert any("letters of a new queue of its name" in note for note in done.notes)


@on_private_nodes
def test_letters_of_a_patterns_queue_that_is_deleted_in_mid_drain_are_gone(
    rabbit: Rabbit, tmp_path: Path
) -> None:
    first, second = sorted(rabbit.queue() for _ in range(2))
    rabbit.fill(first, MANY)
    rabbit.fill(second, 10)
    connector, source = rabbit.connector(), request("dlq-test-*").source
    done = drain_and_end(connector, source, tmp_path, lambda: _delete(rabbit, first))
    assert (done.partial, done.snapshot, done.left) == (True, MANY + 10, 0)
    assert done.gone == MANY + 10 - done.captured - done.recaptured > 0
    assert rabbit.depth(second) == 0


@on_rabbitmq_3
def test_letters_near_their_delivery_limit_are_taken_one_at_a_time(rabbit: Rabbit, tmp_path: Path) -> None:
    queue = rabbit.queue("quorum", x_delivery_limit=3)
    rabbit.fill(queue, 20)
    connector = rabbit.connector()
    for _ in range(2):  # each failure gives all of them back
        reading = connector.read(request(queue))
        assert sum(len(batch.records) for batch in islice(reading.batches(), 20)) > 0
        reading.close()
        rabbit.wait_for(queue, 20)
    reading = connector.read(request(queue))
    for batch in reading.batches():
        assert len(batch.records) <= 1 or not any("limit" in note for note in reading.notes)
        reading.acknowledge(batch.position)
    assert (reading.snapshot, reading.position, reading.settled_position()) == (20, 20, 20)
    reading.close()
