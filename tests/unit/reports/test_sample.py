"""The letters inside an HTML report: some of every kind, and never too many bytes."""

import json
import zlib
from pathlib import Path

import pytest
from support.archives import letter, write_analysis, write_segment

from dlq.archive import views
from dlq.archive.store import LocalStore
from dlq.core.documents import Document
from dlq.reports import sample
from dlq.reports.masking import Masker


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
    write_analysis(
        store, "a", [rare, *({"record_id": letter(n).record_id, "cause": "unknown"} for n in range(51, 101))]
    )

    causes = [row["cause"] for row in taken(store)["letters"]]

    assert len(causes) == 4
    assert {"expired", "unknown", None} == set(causes)


def test_the_latest_of_a_kind_come_first(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample, "LETTERS", 2)
    write_segment(store, "p-0", [letter(n) for n in range(1, 10)])

    assert [row["record_id"] for row in taken(store)["letters"]] == [letter(9).record_id, letter(8).record_id]


def test_a_sample_stays_within_its_budget_whatever_is_in_the_letters(store: LocalStore) -> None:
    long = "ü" * 100_000
    letters = [
        letter(
            n, message_id=long, failure_text=long, headers={"h": long}, body=long.encode(), body_size=200_000
        )
        for n in range(1, 300)
    ]
    write_segment(store, "p-0", letters)

    found = taken(store)

    assert found["letters"]
    assert len(found["stories"]) > 10
    assert len(json.dumps(found["letters"], ensure_ascii=False).encode()) < 1_300_000
    assert len(json.dumps(found["stories"], ensure_ascii=False).encode()) < 500_000


def test_a_story_shows_a_body_as_its_producer_wrote_it(store: LocalStore) -> None:
    packed = zlib.compress(b"hello from RocketMQ")
    write_segment(
        store, "p-0",
        [
            letter(1, broker_kind="rocketmq", flags=1, body=packed, body_size=len(packed)),
            letter(2, flags=1, body=b"AMQP", body_size=4),
            letter(3, body=b"x" * 5000, body_size=5000),
        ],
    )  # fmt: skip

    stories = {row["record_id"]: row for row in taken(store)["stories"]}

    assert stories[letter(1).record_id]["body"] == "hello from RocketMQ"
    assert stories[letter(2).record_id]["body_kind"] == "hex"
    assert stories[letter(3).record_id]["body_note"] == "its beginning"


MAIL = "jane.doe@example.com"


def test_a_masked_story_shows_shapes(store: LocalStore) -> None:
    body = json.dumps({"card": {"number": MAIL}, "filler": "x " * 3000}).encode()
    known = {"message_id": MAIL, "key": MAIL, "failure_text": f"for '{MAIL}'", "headers": {"h": MAIL}}
    write_segment(store, "p-0", [letter(1, body=body, body_size=len(body), **known)])
    found = sample.gather(views.connect(store), Masker())
    assert MAIL not in json.dumps(found)
    assert '"number": "text of 20"' in found["stories"][0]["body"]


def test_a_masked_body_that_is_no_json_is_its_length(store: LocalStore) -> None:
    body = zlib.compress(MAIL.encode())
    write_segment(store, "p-0", [letter(1, broker_kind="rocketmq", flags=1, body=body, body_size=len(body))])
    (story,) = sample.gather(views.connect(store), Masker())["stories"]
    assert (story["body"], story["body_note"]) == (f"[masked: {len(body)} bytes]", "")
