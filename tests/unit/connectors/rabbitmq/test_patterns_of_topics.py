"""Which routing keys the pattern of a topic exchange's binding matches, however long it is."""

import time

import pytest
from support.rows import each_row

from dlq.connectors.rabbitmq.look.routes import topic_matches

MATCHES = [
    ("", "", True), ("", "a", False), ("a", "", False), ("#", "", True), ("#.#", "a.b", True),
    ("#.#.b", "a.b", True), ("*", "a", True), ("*", "a.b", False), ("a.#", "a", True),
    ("#.b.#", "a.b.c", True), ("#.b.#.b", "a.b.c", False), ("*.#.*", "a", False), ("*.#.*", "a.b", True),
]  # fmt: skip


@each_row(("pattern", "key", "does"), MATCHES)
def test_words_stars_and_hashes(pattern: str, key: str, does: bool) -> None:
    assert topic_matches(pattern, key) is does


@pytest.mark.parametrize("piece", ["#.", "#.*.", "*.", "#.x.", "."])
def test_a_pattern_costs_what_its_length_allows(piece: str) -> None:
    began = time.process_time()
    topic_matches(piece * 10**6, "a." * 120 + "a")
    assert time.process_time() - began < 1.5
