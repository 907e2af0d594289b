"""`dlq init` on a terminal, with a Kafka whose users need no password."""

import tomllib
from pathlib import Path

from support.brokers.kafka.fixtures import KafkaPlace
from support.terminals import converse


def test_on_a_terminal_the_dead_letter_topics_of_a_broker_become_sources(
    kafka: KafkaPlace, tmp_path: Path
) -> None:
    kafka.driver.create_topic(kafka.dead)
    code, seen = converse(tmp_path, ["init"], [("URL of your broker", kafka.node.url)])
    assert code == 0, seen
    assert "check them, then: dlq doctor" in seen
    made = tomllib.loads((tmp_path / "dlq.toml").read_text())
    assert made["sources"][kafka.dead] == {"broker": "kafka", "topic": kafka.dead}
    assert "File that holds the password" not in seen
