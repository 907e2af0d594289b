"""The letters inside an HTML report: some of every kind, and never too many bytes."""

import json
import zlib
from pathlib import Path

import pytest
from support.archives import letter, write_analysis, write_segment

from dlq.archive import views
from dlq.archive.storage.store import LocalStore
from dlq.core.documents import Document
from dlq.reports.formats import sample
from dlq.reports.letters.masking import Masker


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(str(tmp_path))


def taken(store: LocalStore) -> Document:
    return sample.gather(views.connect(store))


def test_a_rare_kind_is_in_the_sample_beside_a_frequent_one(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sample, "LETTERS", 4)
    write_segment(store, "p-0", [letter(n, body=b"x") for n in range(1, 101)])
    rare = {"record_id": letter(50).record_id, "cause": "expired"}
    others = [{"record_id": letter(n).record_id, "cause": "unknown"} for n in range(51, 101)]
    write_analysis(store, "a", [rare, *others])
    found = {(row["record_id"], row["cause"]) for row in taken(store)["letters"]}
    assert {cause for _, cause in found} == {"expired", "unknown", None}
    latest = {(letter(100).record_id, "unknown"), (letter(49).record_id, None)}
    assert found >= {*latest, (letter(50).record_id, "expired")}
    assert len(found) == 4


def test_a_sample_stays_within_its_budget_whatever_is_in_the_letters(store: LocalStore) -> None:
    long = "ü" * 100_000
    known = {"message_id": long, "failure_text": long, "headers": {"h": long}, "body": long.encode()}
    write_segment(store, "p-0", [letter(n, body_size=200_000, **known) for n in range(1, 300)])
    found = taken(store)
    assert found["letters"]
    assert len(found["stories"]) > 10
    assert len(json.dumps(found["letters"], ensure_ascii=False).encode()) < 1_300_000
    assert len(json.dumps(found["stories"], ensure_ascii=False).encode()) < 500_000


def test_a_story_shows_a_body_as_its_producer_wrote_it(store: LocalStore) -> None:
    packed = zlib.compress(b"hello from RocketMQ")
    letters = [
        letter(1, broker_kind="rocketmq", flags=1, body=packed, body_size=len(packed)),
        letter(2, flags=1, body=b"AMQP", body_size=4), letter(3, body=b"x" * 5000, body_size=5000),
    ]  # fmt: skip
    write_segment(store, "p-0", letters)
    stories = {row["record_id"]: row for row in taken(store)["stories"]}
    first, second, third = (stories[one.record_id] for one in letters)
    assert (first["body"], second["body_kind"]) == ("hello from RocketMQ", "hex")
    assert third["body_note"] == "its beginning"


def test_a_masked_story_shows_shapes_and_lengths(store: LocalStore) -> None:
    mail = "jane.doe@example.com"
    body = json.dumps({"card": {"number": mail}, "filler": "x " * 3000}).encode()
    packed = zlib.compress(mail.encode())
    known = {"message_id": mail, "key": mail, "failure_text": f"for '{mail}'", "headers": {"h": mail}}
    letters = [letter(1, body=body, body_size=len(body), **known),
               letter(2, broker_kind="rocketmq", flags=1, body=packed, body_size=len(packed))]  # fmt: skip
    write_segment(store, "p-0", letters)
    found = sample.gather(views.connect(store), Masker())
    assert mail not in json.dumps(found)
    stories = {row["record_id"]: row for row in found["stories"]}
    first, second = (stories[one.record_id] for one in letters)
    assert '"number": "text of 20"' in first["body"]
    assert (second["body"], second["body_note"]) == (f"[masked: {len(packed)} bytes]", "")
