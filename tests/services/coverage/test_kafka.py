"""What `dlq coverage` says of Kafka's share groups is what becomes of records: random settings of groups and
their topics for dead letters, in which one is killed in each way, and looked for."""

import random
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka import AcknowledgeType
from confluent_kafka.admin import ResourceType
from support.brokers.kafka.fixtures import KafkaPlace
from support.coverage import Case, Outcome, compare_late

from dlq.connectors.kafka.look.cluster import Cluster
from dlq.connectors.kafka.look.coverage import fetch, predict

pytestmark = [pytest.mark.kafka]
_LIMIT = 2
_WRITTEN = 3
"""Seconds in which a broker usually has written a dead letter."""


def draw(chance: random.Random, name: str) -> tuple[str | None, dict[str, Any] | None, bool]:
    """Its topic, that topic's settings (None: it is not there), and whether records are copied."""
    topic = chance.choice((f"dlq.{name}", f"dlq.{name}", f"dlq.{name}", f"other.{name}", None))
    settings: dict[str, Any] = {}
    if chance.random() < 0.8:
        settings["errors_deadletterqueue_group_enable"] = "true"
    if chance.random() < 0.25:
        settings["cleanup_policy"] = "compact"
    return topic, settings if chance.random() < 0.8 else None, chance.random() < 0.3


def make(kafka: KafkaPlace, chance: random.Random, name: str) -> list[Case]:
    topic, settings, copies = draw(chance, name)
    if topic is not None and settings is not None:
        kafka.driver.create_topic(topic, **settings)
    cases = [Case("group", f"{name}-{death.split()[0]}", death) for death in ("reject", "delivery limit")]
    for case in cases:
        where = {"errors_deadletterqueue_topic_name": topic} if topic else {}
        kafka.driver.configure(
            ResourceType.GROUP, case.name, share_auto_offset_reset="earliest",
            share_delivery_count_limit=_LIMIT,
            errors_deadletterqueue_copy_record_enable=str(copies).lower(), **where,
        )  # fmt: skip
    return cases


def kill(kafka: KafkaPlace, case: Case) -> None:
    kind, times = (AcknowledgeType.REJECT, 1) if case.death == "reject" else (AcknowledgeType.RELEASE, _LIMIT)
    kafka.driver.share(case.name, kafka.topic, lambda _: kind, times)


def find(kafka: KafkaPlace, cases: list[Case]) -> list[Outcome]:
    found: dict[str, set[str]] = {case.name: set() for case in cases}
    for topic in kafka.driver.topics():
        if topic.startswith(("dlq.", "other.")):
            for one in kafka.driver.records(topic):
                group = dict(one.headers() or []).get("__dlq.errors.group", b"").decode()
                found.setdefault(group, set()).add(topic)
    return [Outcome(case, frozenset(found[case.name])) for case in cases]


def run(kafka: KafkaPlace, seed: int, number: int) -> None:
    chance = random.Random(seed)
    kafka.driver.create_topic(kafka.topic)
    kafka.driver.send(kafka.topic, b"letter", key=b"k")
    cases = [case for at in range(number) for case in make(kafka, chance, f"g{kafka.number}-{at}")]
    cluster = kafka.connector.cluster
    assert isinstance(cluster, Cluster)
    with ThreadPoolExecutor(4) as several:
        [*several.map(lambda case: kill(kafka, case), cases)]
    fates = predict(fetch(cluster))
    time.sleep(_WRITTEN)
    compare_late(fates, lambda: find(kafka, cases))


def test_a_handful_leads_where_it_was_said(kafka: KafkaPlace) -> None:
    run(kafka, 1, 3)


def test_each_death_leads_where_it_was_said(kafka: KafkaPlace) -> None:
    run(kafka, 2, 20)
