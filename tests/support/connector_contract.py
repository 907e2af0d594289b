"""The connector contract as tests: one suite for every connector (see `dlq.connectors.base`).

A test class inherits `ReadingContract` and gives a `place` fixture: a connector, a source, and a way to
put letters there.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from support.archives import change_body, letters_in
from support.waiting import eventually

from dlq.archive.storage.store import LocalStore
from dlq.capture.pull import PullOptions, pull
from dlq.connectors.base import Batch, Mode, Reading, ReadRequest
from dlq.connectors.file import FileConnector
from dlq.connectors.jsonl.format import line_of
from dlq.core.brokers import REGISTRY
from dlq.core.record import Record
from dlq.core.settings import Source


@dataclass
class Place:
    """Where a connector is tried: `fill(n)` adds n letters and returns their bodies in order."""

    connector: Any
    source: Source
    fill: Callable[[int], list[bytes]]
    forgets: bool = True
    """Acknowledged letters are gone from the broker (RocketMQ and files forget nothing)."""
    cannot: Mapping[str, str] = field(default_factory=dict)
    """What this connector cannot do, of grow (letters are added while a reading is open) and gauge -> why."""

    def needs(self, ability: str) -> None:
        """Skip the test, with the reason, where the connector cannot do what it is about."""
        if ability in self.cannot:
            pytest.skip(f"{ability}: {self.cannot[ability]}")

    def request(self, **changes: Any) -> ReadRequest:
        """A drain of the source with small batches."""
        return replace(ReadRequest(self.source, "drain", "pull-1", batch_rows=10), **changes)


def letters(reading: Reading) -> list[Record]:
    """All letters of a reading, which is closed after it."""
    try:
        return [record for batch in reading.batches() for record in batch.records]
    finally:
        reading.close()


def first_letters(batches: Iterable[Batch]) -> Batch:
    """The first batch that has letters: empty ones come before it, where the broker takes its time."""
    return next(batch for batch in batches if batch.records)


def ids_in(place: Place) -> list[str]:
    """The ids of what a reading shows now."""
    return sorted(record.record_id for record in letters(place.connector.read(place.request())))


def drained(place: Place, **changes: Any) -> list[Record]:
    """Drain as a pull does: acknowledge each batch, and settle."""
    reading = place.connector.read(place.request(**changes))
    found: list[Record] = []
    try:
        for batch in reading.batches():
            found += batch.records
            reading.acknowledge(batch.position)
        if place.forgets:
            assert reading.settled_position() == len(found)
    finally:
        reading.close()
    return found


class ReadingContract:
    """What every reading guarantees."""

    def test_every_letter_is_shown_once_and_in_order(self, place: Place) -> None:
        bodies = place.fill(25)
        assert [record.body for record in letters(place.connector.read(place.request()))] == bodies

    def test_positions_count_the_letters_of_the_reading(self, place: Place) -> None:
        place.fill(25)
        reading = place.connector.read(place.request())
        shown = 0
        for batch in reading.batches():
            shown += len(batch.records)
            assert batch.position == shown
        reading.close()
        assert shown == 25

    def test_batches_are_no_larger_than_asked_for(self, place: Place) -> None:
        place.fill(25)
        reading = place.connector.read(place.request())
        sizes = [len(batch.records) for batch in reading.batches()]
        reading.close()
        assert max(sizes) <= 10

    def test_a_limit_is_exact(self, place: Place) -> None:
        bodies = place.fill(25)
        assert [r.body for r in letters(place.connector.read(place.request(limit=7)))] == bodies[:7]

    def test_letters_that_come_later_are_not_read(self, place: Place) -> None:
        place.needs("grow")
        bodies = place.fill(25)
        reading = place.connector.read(place.request())
        batches: Iterator[Batch] = reading.batches()
        first = next(batches)
        place.fill(5)
        rest = [record for batch in batches for record in batch.records]
        reading.close()
        assert [record.body for record in [*first.records, *rest]] == bodies

    def test_what_is_not_acknowledged_comes_again_with_the_same_ids(self, place: Place) -> None:
        place.fill(25)
        first = ids_in(place)
        assert len(first) == 25
        eventually(lambda: ids_in(place) == first)  # a busy broker takes a moment to have them all back

    def test_what_is_acknowledged_is_forgotten_where_the_broker_forgets(self, place: Place) -> None:
        place.fill(25)
        assert len(drained(place)) == 25
        assert len(letters(place.connector.read(place.request()))) == (0 if place.forgets else 25)

    def test_a_copy_takes_nothing_away(self, place: Place) -> None:
        bodies = place.fill(25)
        assert len(letters(place.connector.read(place.request(mode="copy", force=True)))) == 25
        assert sorted(record.body for record in drained(place)) == sorted(bodies)

    def test_what_is_read_carefully_comes_whole(self, place: Place) -> None:
        bodies = sorted(place.fill(25))
        copied = letters(place.connector.read(place.request(mode="copy", careful=True, force=True)))
        assert sorted(record.body for record in copied) == bodies
        assert sorted(record.body for record in drained(place, careful=True)) == bodies

    def test_a_letter_is_known_by_its_content_and_not_by_an_id(self, place: Place, tmp_path: Path) -> None:
        bodies = place.fill(3)
        store = LocalStore(str(tmp_path / "archive"))

        def pulled(mode: Mode, connector: Any = place.connector) -> tuple[int, int]:
            result = pull(store, connector, place.source, PullOptions(mode, force=True))
            assert any("look at both" in note for note in result.notes) == (mode == "copy")
            return result.captured, result.recaptured

        seen = letters(place.connector.read(place.request(mode="copy", force=True)))
        forged = json.dumps({**line_of(seen[0]._replace(body=b"forged")), "broker_kind": "rabbitmq"})
        (tmp_path / "forged.jsonl").write_text(f"{forged}\n")
        assert pulled("import", FileConnector(str(tmp_path / "forged.jsonl"))) == (1, 0)
        assert pulled("copy") == (3, 0)
        change_body(store, seen[1].record_id, b"changed")
        assert pulled("copy") == (1, 2)
        assert pulled("drain") == (0, 3)
        archived = letters_in(store)
        assert sorted(one.body for one in archived) == sorted([*bodies, b"forged", b"changed"])
        assert len({one.record_id for one in archived}) == 5

    def test_records_say_where_and_when_they_were_captured(self, place: Place) -> None:
        place.fill(1)
        [record] = letters(place.connector.read(place.request()))
        assert (record.source, record.broker) == (place.source.name, place.source.broker)
        assert (record.pull_id, record.mode) == ("pull-1", "drain")
        assert record.captured_at is not None
        assert record.broker_kind in REGISTRY
        assert len(record.record_id) == 32
        assert int(record.record_id, 16) >= 0
        assert record.body_size == len(record.body)

    def test_an_empty_place_ends_at_once(self, place: Place) -> None:
        place.fill(0)
        assert letters(place.connector.read(place.request())) == []

    def test_a_gauge_counts_what_is_there_and_takes_nothing(self, place: Place) -> None:
        place.needs("gauge")
        bodies = place.fill(3)
        eventually(lambda: place.connector.gauge(place.source).depth == 3)
        assert [record.body for record in letters(place.connector.read(place.request()))] == bodies

    def test_closing_twice_does_no_harm(self, place: Place) -> None:
        place.fill(1)
        reading = place.connector.read(place.request())
        reading.close()
        reading.close()
