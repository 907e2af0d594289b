"""Streams as dead-letter targets: copied from where the last copy ended, never drained."""

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from support.brokers.rabbitmq.amqp10 import send_some
from support.brokers.rabbitmq.fixtures import Rabbit, on_private_nodes, on_rabbitmq_3, on_rabbitmq_4, request
from support.connector_contract import first_letters
from support.servers.cutter import Cutter
from support.waiting import settled

from dlq.archive.storage.store import LocalStore
from dlq.capture.pull import PullOptions, pull
from dlq.connectors.amqp10.codec.message import is_block
from dlq.connectors.base import Gap
from dlq.connectors.rabbitmq.plugin.connector import RabbitConnector
from dlq.connectors.rabbitmq.streams import read
from dlq.core.errors import UsageError
from dlq.core.settings import Source

pytestmark = pytest.mark.rabbitmq


def batches(rabbit: Rabbit, queue: str, **changes: Any) -> tuple[list[bytes], Any, list[Any]]:
    """What a copy gives: bodies, the reading, and its batches."""
    reading = rabbit.read(queue, "copy", **changes)
    found = list(reading.batches())
    reading.close()
    return [record.body for batch in found for record in batch.records], reading, found


def gaps(found: list[Any]) -> list[Gap]:
    return [gap for batch in found for gap in batch.gaps]


@on_private_nodes
def test_a_stream_is_copied_to_its_end_and_then_from_there(rabbit: Rabbit) -> None:
    queue = rabbit.queue("stream")
    bodies, reading, _ = batches(rabbit, queue)
    assert (bodies, reading.complete) == ([], True)
    rabbit.fill(queue, 2500)
    bodies, reading, found = batches(rabbit, queue)
    assert bodies == [b"letter %d" % n for n in range(2500)]
    assert (reading.complete, found[-1].checkpoint[queue]) == (True, 2500)
    rabbit.publish(queue, [b"a", b"b"])  # to count a stream takes 5 s
    bodies, reading, _ = batches(rabbit, queue, resume={queue: 2500})
    assert (bodies, reading.complete) == ([b"a", b"b"], True)
    assert batches(rabbit, queue, resume={queue: 2502})[0] == []
    bodies, reading, found = batches(rabbit, queue, limit=20, batch_rows=100)
    assert (len(bodies), reading.complete, found[-1].checkpoint[queue]) == (20, True, 20)


def test_a_copy_keeps_to_its_limit_when_its_connection_is_lost(rabbit: Rabbit, tmp_path: Path) -> None:
    stream, url = rabbit.queue("stream"), urlsplit(rabbit.url)
    rabbit.fill(stream, 9000)
    with Cutter(f"{url.hostname}:{url.port}") as cutter:
        connector = rabbit.connector(url=f"amqp://{url.username}@{cutter.address}{url.path}")
        cuts = iter([cutter.cut])
        when = lambda tally, _total: tally.captured and [cut() for cut in cuts]  # noqa: E731
        source = Source("log", "shop", queue=stream)
        options = PullOptions("copy", limit=7000)
        result = pull(LocalStore(str(tmp_path)), connector, source, options, when)
    assert "reconnected" in str(result.notes)
    assert (result.captured, result.recaptured, result.partial, result.error) == (7000, 0, False, None)


@on_private_nodes
def test_what_retention_took_is_a_gap(rabbit: Rabbit) -> None:
    segment, kept = 1_000, 3_000
    queue = rabbit.queue("stream", x_max_length_bytes=kept, x_stream_max_segment_size_bytes=segment)
    sent = [b"%d" % n + b"x" * 200 for n in range(600)]
    rabbit.publish(queue, sent)
    settled(lambda: len(batches(rabbit, queue)[0]))  # what is too old goes behind the broker's answers
    bodies, reading, found = batches(rabbit, queue, resume={queue: 5})
    assert 0 < len(bodies) < 600
    assert bodies == sent[-len(bodies) :]
    assert reading.complete
    first = int(first_letters(found).records[0].headers["x-stream-offset"])
    assert gaps(found) == [Gap(queue, 5, first, queue)]


@on_private_nodes
def test_a_stream_that_was_made_anew_is_read_anew(rabbit: Rabbit) -> None:
    queue = rabbit.queue("stream")
    rabbit.publish(queue, [b"x"] * 3)
    bodies, reading, found = batches(rabbit, queue, resume={queue: 5})
    assert (len(bodies), reading.complete) == (3, False)
    assert any("is not the stream that the last copy read" in note for note in reading.notes)
    assert gaps(found) == [Gap(queue, 5, None, queue)]
    reached = {queue: 5, **found[-1].checkpoint}
    rabbit.publish(queue, [b"x"] * 4)
    bodies, reading, _ = batches(rabbit, queue, resume=reached)
    assert (len(bodies), reading.complete) == (4, True)  # although it goes past where the other ended


@on_private_nodes
def test_a_stream_that_was_made_anew_and_has_grown_past_the_old_one_is_read_anew(rabbit: Rabbit) -> None:
    queue = rabbit.queue("stream")
    reached: dict[str, int] = {}

    def copied() -> tuple[list[bytes], bool, list[Gap]]:
        bodies, reading, found = batches(rabbit, queue, resume=dict(reached))
        reached.update(item for batch in found for item in batch.checkpoint.items())
        return bodies, reading.complete, gaps(found)

    old, new = ([b"%b %d" % (age, n) for n in range(9)] for age in (b"old", b"new"))
    rabbit.publish(queue, old[:5])
    assert copied() == (old[:5], True, [])
    rabbit.publish(queue, old[5:6])
    assert copied() == (old[5:6], True, [])
    rabbit.channel.queue_delete(queue)
    rabbit.channel.queue_declare(queue, durable=True, arguments={"x-queue-type": "stream"})
    rabbit.publish(queue, new)
    assert copied() == (new, False, [Gap(queue, 6, None, queue)])
    assert copied() == ([], True, [])


@on_private_nodes
def test_a_drain_is_refused_with_its_reason(rabbit: Rabbit) -> None:
    queue = rabbit.queue("stream")
    for broker in (rabbit.broker(), rabbit.broker(management_url=None)):
        with pytest.raises(UsageError, match=r"a stream, from which nothing can be taken: --mode copy"):
            RabbitConnector(broker).read(request(queue, "drain"))


@on_rabbitmq_4
def test_a_letter_of_a_stream_says_where_it_died(rabbit: Rabbit) -> None:
    stream = rabbit.queue("stream")
    queue = rabbit.queue("classic", x_dead_letter_exchange="", x_dead_letter_routing_key=stream)
    rabbit.fill(queue, 2)
    rabbit.reject(queue, 2)
    rabbit.wait_for(stream, 2)
    _, reading, found = batches(rabbit, stream)
    records = [record for batch in found for record in batch.records]
    assert [(record.origin, record.attempts) for record in records] == [(queue, 1)] * 2
    assert reading.notes == []


@on_private_nodes
def test_a_stream_whose_last_chunk_is_more_than_is_asked_for_at_once_is_copied_to_its_end(
    rabbit: Rabbit, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = rabbit.queue("stream")
    rabbit.fill(stream, 200)
    monkeypatch.setattr(read, "ROUND", 3)
    bodies, reading, _ = batches(rabbit, stream)
    assert (len(bodies), reading.complete) == (200, True)


def of_both_kinds(rabbit: Rabbit, stream: str, kinds: str, first: int = 0) -> None:
    """Numbered letters in their order: `x` is one that AMQP 0-9-1 cannot carry."""
    for number, kind in enumerate(kinds, first):
        if kind == "x":
            send_some(rabbit, stream, 1, poisoned=0, first=number)
        else:
            rabbit.publish(stream, [b"%d" % number], headers={"table": {"array": [1, 2]}})


@on_rabbitmq_4
def test_a_copy_goes_on_behind_letters_that_only_amqp_1_0_carries(rabbit: Rabbit, tmp_path: Path) -> None:
    stream = rabbit.queue("stream")
    store, source = LocalStore(str(tmp_path)), Source("log", "shop", queue=stream)

    def pulled() -> tuple[int, int, bool, object]:
        result = pull(store, rabbit.connector(), source, PullOptions("copy"))
        return result.captured, result.recaptured, result.partial, result.error

    of_both_kinds(rabbit, stream, "..x.xx..")
    assert pulled() == (8, 0, False, None)
    of_both_kinds(rabbit, stream, ".x", first=8)
    assert pulled() == (2, 0, False, None)
    assert pulled() == (0, 0, False, None)


@on_rabbitmq_4
@pytest.mark.parametrize("kinds", ["x", "x.", ".x", "..", "..x.xx..", ""])
def test_a_look_by_amqp_1_0_takes_what_0_9_1_cannot_carry_alone(rabbit: Rabbit, kinds: str) -> None:
    stream = rabbit.queue("stream")
    of_both_kinds(rabbit, stream, kinds)
    bodies, reading, found = batches(rabbit, stream, careful=True)
    assert (bodies, reading.complete) == ([b"%d" % n for n in range(len(kinds))], True)
    records = [record for batch in found for record in batch.records]
    assert "".join("x" if is_block(record.raw_properties) else "." for record in records) == kinds
    reached = [int(record.headers["x-stream-offset"]) + 1 for record in records]
    assert [batch.checkpoint[stream] for batch in found if batch.records][-1:] == reached[-1:]
    if "x" not in kinds:
        plain = [record for batch in batches(rabbit, stream)[2] for record in batch.records]
        assert [r.record_id for r in plain] == [r.record_id for r in records]
    for limit in range(len(kinds)):
        assert len(batches(rabbit, stream, careful=True, limit=limit + 1)[0]) <= limit + 1


@on_rabbitmq_3
def test_an_older_broker_is_said_to_hide_how_letters_of_a_stream_died(rabbit: Rabbit) -> None:
    reading = batches(rabbit, rabbit.queue("stream"))[1]
    assert any("shows no x-death" in note for note in reading.notes)
