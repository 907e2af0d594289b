"""Every way to die, every kind of duplicate and every state of a transaction, provoked on real brokers.

What a test did to a message is written in its KEYS; the analysis must say the same of it.
"""

import time
from pathlib import Path
from typing import Any

import pytest
from support import preloaded
from support.brokers.rocketmq.driver import Driver, Half, unique_key
from support.brokers.rocketmq.fixtures import Rocket
from support.brokers.rocketmq.sending import sent_back
from support.waiting import eventually, settled

from dlq.archive import views
from dlq.archive.storage.store import LocalStore, Store
from dlq.capture.pull import PullOptions, pull
from dlq.connectors.rocketmq.link.message import StoredMessage, parse_properties
from dlq.core.headers.rocketmq_topics import DISCARDED, HALF
from dlq.core.settings import Source

pytestmark = pytest.mark.rocketmq
HOUR = 3_600_000


def drain(rocket: Rocket, store: Store, source: Source) -> None:
    pull(store, rocket.connector, source, PullOptions("drain"))


def sent(rocket: Rocket, keys: str, body: bytes = b"", key: str | None = None) -> StoredMessage:
    """One message in the test's topic, as the broker keeps it."""
    before = rocket.driver.end(rocket.topic)
    rocket.driver.send(rocket.topic, body or keys.encode(), {"UNIQ_KEY": key or unique_key(), "KEYS": keys})
    eventually(lambda: rocket.driver.end(rocket.topic) > before)
    return rocket.driver.messages(rocket.topic, start=before)[0]


def at_retry(driver: Driver, topic: str) -> StoredMessage:
    return driver.newest(topic)[0]


def test_every_way_into_a_dead_letter_topic_and_every_duplicate_is_told_apart(
    rocket: Rocket, tmp_path: Path
) -> None:
    driver, group, store = rocket.driver, rocket.group, LocalStore(str(tmp_path / "archive"))
    driver.send_back(sent(rocket, "send_back"), group)
    fallback = {
        "UNIQ_KEY": unique_key(), "KEYS": "client_fallback", "RETRY_TOPIC": rocket.topic,
        "RECONSUME_TIME": "17", "MAX_RECONSUME_TIMES": "16", "CONSUME_START_TIME": "1",
    }  # fmt: skip
    driver.send(f"%RETRY%{group}", b"f", fallback, j=17, l=16)
    pop_topic = f"%RETRY%{group}_{rocket.topic}"
    driver.send(pop_topic, b"p", {"UNIQ_KEY": unique_key(), "KEYS": "pop"})
    driver.send_back(at_retry(driver, pop_topic), group)
    driver.send(rocket.dead, b"h", {"UNIQ_KEY": unique_key(), "KEYS": "none"})
    twice = sent(rocket, "redelivery_or_rebalance")
    for _ in range(2):
        driver.send_back(twice, group)
    key = unique_key()
    for _ in range(2):
        driver.send_back(sent(rocket, "producer_resend", key=key), group)
    for _ in range(2):
        driver.send_back(sent(rocket, "business_resend"), group)
    shared = sent(rocket, "several_groups")
    for one in (group, f"{group}-other"):
        driver.send_back(shared, one)
    commit_twice(rocket)
    returned = replay_and_die_again(rocket)
    source = Source("dead", "pay", group=f"{group}*")
    rocket.wait_for_routes(rocket.dead, f"{rocket.dead}-other")
    eventually(lambda: driver.end(rocket.dead) >= 15)
    drain(rocket, store, source)
    preloaded.analyze(store.location)
    found = letters(store, "keys[1], mechanism, duplicate_kind, cause, origin, attempts, record_id")
    mechanisms = {
        row[0]: row[1] for row in found if row[0] in ("send_back", "client_fallback", "pop", "none")
    }
    assert mechanisms == {name: name for name in ("send_back", "client_fallback", "pop", "none")}
    kinds: dict[str, set[str | None]] = {}
    for row in found:
        kinds.setdefault(row[0], set()).add(row[2])
    duplicates = (
        "redelivery_or_rebalance", "producer_resend", "business_resend", "several_groups", "double_commit",
    )  # fmt: skip
    assert {name: kinds[name] for name in duplicates} == {name: {name} for name in duplicates}
    assert [row[2] for row in found if row[0] == "replay" and row[6] != returned] == ["replay_returned"]
    assert {row[4] for row in found if row[0] != "none"} == {rocket.topic}
    assert {row[3] for row in found} == {"redelivery_exhausted", "unknown"}


def letters(store: Store, columns: str) -> list[tuple[Any, ...]]:
    return views.connect(store).execute(f"SELECT {columns} FROM letters").fetchall()


def commit_late(rocket: Rocket, half: Half) -> StoredMessage:
    """Commit the first copy only after a check has put a second one beside it; the second copy."""
    second = eventually(lambda: rocket.driver.copies(half.key)[1:])[0]
    rocket.driver.finish_at_once(half, commit=True)
    return second


def commit_twice(rocket: Rocket) -> None:
    before = rocket.driver.end(rocket.topic)
    half = rocket.driver.half(rocket.topic, b"two", {"KEYS": "double_commit"})
    second = commit_late(rocket, half)
    rocket.driver.finish_at_once(Half(half.key, second.queue_offset, second.commit_log_offset), commit=True)
    eventually(lambda: rocket.driver.end(rocket.topic) >= before + 2)
    for message in rocket.driver.messages(rocket.topic, start=before):
        rocket.driver.send_back(message, rocket.group)


def replay_and_die_again(rocket: Rocket) -> str:
    """The record id of a letter that was replayed and is dead again."""
    rocket.driver.send_back(sent(rocket, "replay"), rocket.group)
    source = Source("dead", "pay", group=rocket.group)
    [record] = eventually(lambda: [r for r in rocket.read(source=source).records if r.keys == ["replay"]])
    before = rocket.driver.end(rocket.topic)
    sent_back(rocket.connector, record, "origin")
    eventually(lambda: rocket.driver.end(rocket.topic) > before)
    rocket.driver.send_back(rocket.driver.messages(rocket.topic, start=before)[0], rocket.group)
    return record.record_id


def test_every_state_of_a_transaction_is_told(rocket: Rocket, tmp_path: Path) -> None:
    driver, store = rocket.driver, LocalStore(str(tmp_path / "archive"))
    source = Source("tx", "pay", transactions=True)
    keys: dict[str, str] = {}

    def half(name: str, properties: dict[str, str] | None = None, **changed: object) -> Half:
        made = driver.half(rocket.topic, name.encode(), {"KEYS": name, **(properties or {})}, **changed)
        keys[made.key] = name
        return made

    driver.set("transactionTimeOut", 600_000)  # no check before they end
    driver.finish_at_once(half("committed"), commit=True)
    driver.finish_at_once(half("rolled_back"), commit=False)
    driver.set("transactionTimeOut", 500)
    half("check_max_exceeded")
    half("immune", {"CHECK_IMMUNITY_TIME_IN_SECONDS": "3600"})
    half("check_skipped", g=int(time.time() * 1000) - 73 * HOUR)
    commit_late(rocket, half("committed late"))
    drain(rocket, store, source)
    wanted = {"check_max_exceeded", "immune", "check_skipped", "committed late"}

    def discarded() -> bool:
        there = {parse_properties(m.properties).get("UNIQ_KEY", "") for m in driver.messages(DISCARDED)}
        return {key for key, name in keys.items() if name in wanted} <= there

    eventually(discarded)
    settled(lambda: (driver.end(HALF), driver.end(DISCARDED)), 3.0)  # what was just discarded may come back
    drain(rocket, store, source)
    driver.set("transactionTimeOut", 600_000)  # no check before it is captured
    half("pending")
    eventually(lambda: driver.copies([*keys][-1]))
    drain(rocket, store, source)
    driver.set("transactionTimeOut", 500)
    preloaded.analyze(store.location)
    rows = (
        views.connect(store)
        .execute("SELECT unique_key, state, discarded, check_reached_producer FROM transactions")
        .fetchall()
    )
    said = {keys[key]: (state, gone, reached) for key, state, gone, reached in rows if key in keys}
    assert said == {
        "committed": ("committed", False, "no"),
        "rolled_back": ("rolled_back", False, "no"),
        "check_max_exceeded": ("check_max_exceeded", True, "unknown"),
        "immune": ("check_max_exceeded", True, "no"),
        "check_skipped": ("check_skipped", True, "unknown"),
        "committed late": ("committed", True, "unknown"),
        "pending": ("pending", False, "no"),
    }
    found = letters(store, "message_id, cause, mechanism, advice")
    verdicts = {keys[key]: (cause, how, advice) for key, cause, how, advice in found if key in keys and cause}
    assert verdicts == {
        "check_max_exceeded": ("check_max_exceeded", "check", "check_first"),
        "immune": ("check_max_exceeded", "check", "check_first"),
        "check_skipped": ("check_skipped", "check_age", "check_first"),
        "committed late": ("check_max_exceeded", "check", "never"),
        "pending": ("transaction_pending", "none", "hold"),
    }
