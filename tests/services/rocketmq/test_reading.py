"""Draining %DLQ% topics of real RocketMQ brokers without losing a byte."""

import os
import zlib
from pathlib import Path

import pytest
from support.brokers.rocketmq.driver import unique_key
from support.brokers.rocketmq.fixtures import Rocket
from support.faults import Archive
from support.waiting import eventually

from dlq.connectors.rocketmq.link.message import parse_properties
from dlq.core.errors import NotFound

pytestmark = pytest.mark.rocketmq


def test_a_dead_letter_is_captured_as_it_lies(rocket: Rocket) -> None:
    body = bytes(range(256)) + b"\0\xff"
    rocket.driver.dead_letter(
        rocket.topic, rocket.group, body, {"KEYS": "17 o-17", "TAGS": "t", "user": "日本\n=:,"}
    )
    (record,) = rocket.read().records
    (stored,) = rocket.driver.messages(rocket.dead)
    assert record.body == body
    assert record.raw_properties == stored.properties
    assert record.properties == parse_properties(stored.properties)
    assert record.properties["user"] == "日本\n=:,"
    assert (record.origin, record.origin_kind, record.origin_group) == (rocket.topic, "topic", rocket.group)
    assert (record.keys, record.attempts) == (["17", "o-17"], 1)
    assert record.message_id == record.properties["UNIQ_KEY"]
    assert record.published_at == stored.born_at * 1000
    assert record.dead_at == stored.stored_at * 1000
    assert (record.broker_node, record.queue_id, record.offset) == ("broker-a", 0, 0)
    assert record.broker_version == rocket.cluster.version


def test_a_compressed_body_is_kept_compressed_and_its_key_is_read(rocket: Rocket) -> None:
    plain = b'{"order":{"id":17}}' + b" " * 9000
    rocket.driver.send(rocket.topic, zlib.compress(plain), {"UNIQ_KEY": unique_key()}, f=1)
    rocket.driver.send_back(rocket.driver.newest(rocket.topic)[0], rocket.group)
    rocket.driver.newest(rocket.dead)
    request = rocket.request()
    source = request.source.__class__("s", "pay", group=rocket.group, key="json:$.order.id")
    (record,) = rocket.read(source=source).records
    assert record.body == zlib.compress(plain)
    assert (record.flags, record.content_encoding, record.key) == (1, "deflate", "17")


def fill(rocket: Rocket, count: int, size: int = 100) -> None:
    rocket.driver.create_topic(rocket.dead)
    body = os.urandom(size)
    rocket.driver.send_many(rocket.dead, count, lambda i: (body, {"UNIQ_KEY": unique_key(), "n": str(i)}))
    eventually(lambda: rocket.driver.end(rocket.dead) == count)


@pytest.mark.parametrize("again", [0, 9000], ids="made again with {}".format)
def test_a_topic_that_is_deleted_in_mid_pull_has_nothing_left_and_is_read_anew(
    rocket: Rocket, tmp_path: Path, again: int
) -> None:
    driver, dead = rocket.driver, rocket.dead

    def fill(what: str, count: int) -> None:
        driver.create_topic(dead)
        letter = lambda n: (b"%s %d" % (what.encode(), n), {"UNIQ_KEY": unique_key()})  # noqa: E731
        driver.send_many(dead, count, letter)
        eventually(lambda: driver.end(dead) == count)

    def make_anew(_done: int) -> None:
        if not over:
            over.append(True)
            driver.delete_topic(dead)
            if again:
                fill("new", again)

    fill("old", 8000)
    source = {"s": {"group": rocket.group}}
    archive, over = Archive(tmp_path, {"kind": "rocketmq", "url": rocket.cluster.url}, source), list[bool]()
    pulled = archive.pull("s", make_anew)
    assert (pulled.left, pulled.captured + pulled.gone, pulled.partial) == (0, 8000, True)
    assert pulled.lost == pulled.gone or again > 8000
    assert any("deleted while it was read" in note for note in pulled.notes), pulled.notes
    if not again:
        fill("new", 40)
    archive.pull("s")
    found = archive.bodies("s")
    news = {b"new %d" % n: 1 for n in range(again or 40)}
    assert {body: number for body, number in found.items() if body.startswith(b"new")} == news
    assert archive.pull("s").captured == 0


def test_cold_data_and_large_messages_come_whole_too(rocket: Rocket) -> None:
    fill(rocket, 150, size=60_000)
    rocket.driver.set("accessMessageInMemoryMaxRatio", 0)
    try:
        seen = rocket.read(batch_bytes=500_000)
    finally:
        rocket.driver.set("accessMessageInMemoryMaxRatio", 40)
    assert [record.offset for record in seen.records] == list(range(150))
    assert all(sum(record.body_size for record in batch.records) <= 500_000 for batch in seen.batches)


def test_a_letter_has_the_same_id_whichever_way_it_is_read(rocket: Rocket) -> None:
    fill(rocket, 100)
    pulled = rocket.read().records
    rocket.driver.create_topic(rocket.dead, permission=2)
    seen = eventually(
        lambda: (found := rocket.read()).notes[0].startswith(f"{rocket.dead}@broker-a:0 may not") and found
    )
    assert [record.record_id for record in seen.records] == [record.record_id for record in pulled]
    assert [record.raw_properties for record in seen.records] == [record.raw_properties for record in pulled]


@pytest.mark.parametrize("readable", [1, 0])
def test_queues_that_may_be_written_to_but_not_read_from_are_read_by_their_index(
    rocket: Rocket, readable: int
) -> None:
    rocket.driver.create_topic(rocket.dead, queues=3, readable=readable)
    for queue in range(3):
        rocket.driver.send(rocket.dead, b"x", {"UNIQ_KEY": unique_key()}, e=queue)
        eventually(lambda queue=queue: rocket.driver.end(rocket.dead, queue))
    seen = eventually(lambda: (found := rocket.read()).snapshot == 3 and found)
    assert [record.queue_id for record in seen.records] == [0, 1, 2]
    assert sum("beyond the topic's read queues" in note for note in seen.notes) == 3 - readable
    assert [one.depth for one in rocket.connector.discover() if one.name == rocket.dead] == [3]


def test_a_pattern_finds_its_groups(rocket: Rocket) -> None:
    for suffix in ("a", "b"):
        rocket.driver.dead_letter(rocket.topic, f"{rocket.group}-{suffix}", b"x")
        rocket.wait_for_routes(f"%DLQ%{rocket.group}-{suffix}")
    seen = rocket.read(source=rocket.request(group=f"{rocket.group}-*").source)
    assert [record.origin_group for record in seen.records] == [f"{rocket.group}-a", f"{rocket.group}-b"]


def test_a_group_of_a_pattern_whose_topic_was_deleted_is_told_once(rocket: Rocket) -> None:
    for name in ("kept", "gone"):
        rocket.driver.create_topic(f"{rocket.dead}-{name}")
        rocket.driver.send(f"{rocket.dead}-{name}", b"1")
        rocket.wait_for_routes(f"{rocket.dead}-{name}")
    pattern = f"{rocket.group}-*"
    first = rocket.read(group=pattern)
    assert (len(first.records), first.complete) == (2, True)
    rocket.driver.delete_topic(f"{rocket.dead}-gone")
    rocket.connector.cluster.forget_route(f"{rocket.dead}-gone")
    second = rocket.read(first.checkpoint, group=pattern)
    assert (second.records, second.complete) == ([], False)
    assert [gap[:3] for gap in second.gaps] == [(f"{rocket.dead}-gone@broker-a:0", 1, None)]
    assert any("its topic was deleted" in note for note in second.notes)
    third = rocket.read({**first.checkpoint, **second.checkpoint}, group=pattern)
    assert (third.gaps, third.complete) == ([], True)


def test_queues_that_a_topic_has_no_more_are_read_to_their_end(rocket: Rocket) -> None:
    rocket.driver.create_topic(rocket.dead, 2)
    rocket.wait_for_routes(rocket.dead)
    rocket.driver.send(rocket.dead, b"1", e=1)
    first = rocket.read()
    rocket.driver.send(rocket.dead, b"2", e=1)
    rocket.driver.create_topic(rocket.dead, 1)
    eventually(lambda: rocket.connector.cluster.route(rocket.dead)["broker-a"].writable == 1)
    assert [record.body for record in rocket.read(first.checkpoint).records] == [b"2"]


def test_a_queue_that_may_not_be_pulled_is_known_by_its_last_letter_too(rocket: Rocket) -> None:
    fill(rocket, 5)
    seen = rocket.read()
    rocket.driver.create_topic(rocket.dead, permission=2)
    again = eventually(lambda: (found := rocket.read(resume=seen.checkpoint)).notes[1:] and found)
    assert (again.records, again.complete) == ([], True)
    place = f"{rocket.dead}@broker-a:0"
    other = rocket.read(resume={place: 5, f"{place}#letter": seen.checkpoint[f"{place}#letter"] ^ 1})
    assert (len(other.records), other.complete) == (5, False)


def test_a_store_that_replaced_another_is_known_although_its_clock_was_set_back(rocket: Rocket) -> None:
    found: list[dict[str, int]] = []
    for group in ("earlier", "later"):
        for _ in range(2):
            rocket.driver.dead_letter(rocket.topic, f"{rocket.group}-{group}", b"x")
        found.append(rocket.read(source=rocket.request(group=f"{rocket.group}-{group}").source).checkpoint)
    earlier, later = found
    place = f"%DLQ%{rocket.group}-earlier@broker-a:0"
    of_later = {key.replace("-later@", "-earlier@"): value for key, value in later.items()}
    assert (set(of_later), of_later[place]) == (set(earlier), 2)
    source = rocket.request(group=f"{rocket.group}-earlier").source
    seen = rocket.read(source=source, resume=of_later)
    assert ([record.offset for record in seen.records], seen.complete) == ([0, 1], False)
    assert [gap[:3] for batch in seen.batches for gap in batch.gaps] == [(place, 2, None)]


def test_a_group_that_is_not_there_is_not_found(rocket: Rocket) -> None:
    with pytest.raises(NotFound, match="no topic %DLQ%nobody"):
        rocket.read(source=rocket.request(group="nobody").source)


def test_a_group_that_only_retries_has_no_dead_letters_yet(rocket: Rocket) -> None:
    rocket.driver.send(f"%RETRY%{rocket.group}", b"x")
    rocket.wait_for_routes(f"%RETRY%{rocket.group}")
    seen = rocket.read()
    assert (seen.records, seen.snapshot) == ([], 0)
    assert "a broker that is down is not asked" in seen.notes[0]
