"""The letters inside an HTML report: some of every kind, and never too many bytes."""

import base64
import json
import zlib
from pathlib import Path

import pytest
from support.archives import letter, write_analysis, write_segment

from dlq.archive import views
from dlq.archive.store import LocalStore
from dlq.core.documents import Document
from dlq.core.record import Record
from dlq.core.settings import Mask
from dlq.reports import sample
from dlq.reports.masking import WITHHELD, Masker


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(str(tmp_path))


def taken(store: LocalStore) -> Document:
    return sample.gather(views.connect(store))


def test_a_rare_kind_is_in_the_sample_beside_a_frequent_one(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sample, "_CHOOSE", sample._CHOOSE.replace("LIMIT 2000", "LIMIT 4"))
    write_segment(store, "p-0", [letter(n, body=b"x") for n in range(1, 101)])
    rare = {"record_id": letter(50).record_id, "cause": "expired"}
    write_analysis(
        store, "a", [rare, *({"record_id": letter(n).record_id, "cause": "unknown"} for n in range(51, 101))]
    )

    causes = [row["cause"] for row in taken(store)["letters"]]

    assert len(causes) == 4
    assert {"expired", "unknown", None} == set(causes)


def test_the_latest_of_a_kind_come_first(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample, "_CHOOSE", sample._CHOOSE.replace("LIMIT 2000", "LIMIT 2"))
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
LONG_CARD = json.dumps({"card": {"number": "abc-SECRET-2"}, "filler": "x " * 3000})


def masked_story(store: LocalStore, one: Record) -> Document:
    write_segment(store, "p-0", [one])
    found = sample.gather(views.connect(store), Masker([Mask(json="$.card.number")]))
    return {**found["letters"][0], **found["stories"][0]}


@pytest.mark.parametrize("place", [235, 1495, 3995])
@pytest.mark.parametrize("secret", [MAIL, base64.b64encode(f"{MAIL} again".encode()).decode()])
def test_what_is_cut_for_the_report_is_masked_before(store: LocalStore, place: int, secret: str) -> None:
    text = " " * place + secret
    story = masked_story(
        store,
        letter(
            1, message_id=text, key=text, failure_text=text, headers={"h": text}, body=text.encode(),
            body_size=len(text),
        ),
    )  # fmt: skip

    assert secret[:5] not in json.dumps(story)


def test_a_json_rule_hides_members_of_a_long_body_and_a_long_header(store: LocalStore) -> None:
    body = LONG_CARD.encode()
    story = masked_story(store, letter(1, headers={"h": LONG_CARD}, body=body, body_size=len(body)))

    assert "SECRET" not in json.dumps(story)
    assert "[masked]" in story["body"]
    assert "[masked]" in story["headers"]["h"]


TOO_LARGE = "withheld by --mask, which cannot see what is personal in it: the body is too large"


@pytest.mark.parametrize(
    ("body", "said"), [(b"\xff\x00" + MAIL.encode(), WITHHELD), (b"a" * (2**20 + 1), TOO_LARGE)]
)
def test_a_body_that_cannot_be_masked_is_withheld_and_says_so(
    store: LocalStore, body: bytes, said: str
) -> None:
    story = masked_story(store, letter(1, body=body, body_size=len(body)))

    assert story["body"] == said
