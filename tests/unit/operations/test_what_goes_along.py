"""The same letter gets the same verdict where it was pulled and where it is imported: what the verdict rests
on beside the letter goes along with it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.archives import letter, write_segment

from dlq.analyzers import topology
from dlq.archive.storage.store import open_store
from dlq.core.record import Death, Record

At = Callable[..., Any]
SINCE = 1_790_000_000_000_000
FACTS: dict[str, Any] = {
    "delivery_limits": {"orders": 3},
    "alternate_exchanges": ["unrouted"],
    "dead_letter_exchanges": {"orders": "dlx", "work.retry": "shop"},
    "dead_letter_keys": {"work.retry": "again"},
    "routes": {"shop": {"again": ["work"]}},
    "diverts": ["copy-to-dlq"],
    "places_of_the_dead": {"shop": ["DLQ", "ExpiryQueue"]},
    "max_delivery_attempts": {"never": -1},
    "killed_none": {"quiet": SINCE},
}
ID = {"_AMQ_ORIG_MESSAGE_ID": "7"}
EXPIRED = {"_AMQ_ACTUAL_EXPIRY": "1790000000000"}


def artemis(number: int, address: str, queue: str, **headers: str) -> Record:
    told = {"_AMQ_ORIG_ADDRESS": address, "_AMQ_ORIG_QUEUE": queue, **ID, **headers}
    return of(number, broker_kind="artemis", dead_letter_queue="DLQ", headers=told, published_at=SINCE * 2)


def of(number: int, **fields: Any) -> Record:
    return letter(number, **{"attempts": None, "origin": None, "origin_kind": None, **fields})


LETTERS = {
    "a delivery limit": of(1, deaths=(Death("delivery_limit", "orders"),)),
    "no route": of(2, dead_letter_queue="unrouted.q", exchange="shop", routing_key="nobody"),
    "parked by hand": of(
        3, exchange="", routing_key="orders.dlq", deaths=(Death("rejected", "orders", count=1),),
    ),
    "a way back": of(
        4, dead_letter_queue="parked", headers={"x-error": "boom"},
        deaths=(Death("expired", "work.retry", routing_keys=("k",), count=3),),
    ),
    "a divert": artemis(5, "shop", "copy-to-dlq"),
    "an old expiry": artemis(6, "shop", "shop", **EXPIRED),
    "no limit": artemis(7, "never", "never"),
    "a hand": artemis(8, "quiet", "quiet"),
}  # fmt: skip
NAMED = ("cause", "mechanism", "proof", "also_possible", "rule", "attempts", "origin", "advice", "evidence")


def learn(folder: Path, facts: dict[str, Any], pull: str = "20261121T000000-1") -> None:
    known = {"format": 1, "source": "orders", "broker": "shop", **facts}
    open_store(str(folder / "archive")).put(f"topology/{pull}.json", json.dumps(known).encode())


@pytest.fixture
def at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> At:
    """Runs a command in one of several folders; the JSON that it prints."""
    from dlq.cli.app import run

    def call(folder: str, *words: str) -> Any:
        (tmp_path / folder).mkdir(exist_ok=True)
        monkeypatch.chdir(tmp_path / folder)
        (tmp_path / folder / "dlq.toml").write_text('archive = "archive"\n')
        run(["-o", "json", *words])
        return json.loads(capfd.readouterr().out or "null")

    return call


def verdicts(at: At, folder: str, source: str = "orders", facts: tuple[str, ...] = NAMED) -> dict[str, Any]:
    sql = f"SELECT record_id, {', '.join(facts)} FROM letters WHERE source = '{source}' ORDER BY record_id"
    return {row.pop("record_id"): row for row in at(folder, "query", sql)}


@pytest.fixture
def here(tmp_path: Path, at: At) -> Path:
    """An archive with letters that were pulled, and what the pull learned; they are exported to a file."""
    (tmp_path / "here").mkdir()
    write_segment(open_store(str(tmp_path / "here" / "archive")), "p-1", [*LETTERS.values()])
    learn(tmp_path / "here", FACTS)
    at("here", "analyze")
    at("here", "export", "../all.jsonl")
    return tmp_path / "here"


def test_each_fact_makes_a_difference_to_one_of_the_letters(here: Path, at: At) -> None:
    before = verdicts(at, "here")
    for fact in FACTS:
        others = {name: told for name, told in FACTS.items() if name != fact}
        learn(here, others)
        at("here", "analyze")
        assert verdicts(at, "here") != before, fact


def test_every_fact_that_rules_read_is_tried() -> None:
    assert {*FACTS} == {*topology.NAMES}


@pytest.mark.usefixtures("here")
def test_a_letter_that_is_imported_gets_the_verdict_that_it_has_where_it_was_pulled(at: At) -> None:
    """And where it is handed on again."""
    pulled = verdicts(at, "here")
    assert [row["rule"] for row in pulled.values()] == [
        "delivery-limit", "alternate-exchange", "parked-by-hand", "hand-written-error", "artemis-carried",
        "artemis-dead-letter", "artemis-refused", "artemis-moved",
    ]  # fmt: skip
    at("there", "import", "../all.jsonl", "--source", "elsewhere")
    assert verdicts(at, "there", "elsewhere") == pulled
    at("there", "export", "../again.jsonl")
    at("beyond", "import", "../again.jsonl")
    assert verdicts(at, "beyond", "import") == pulled


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("of", LETTERS)
def test_of_one_line_alone_the_first_of_its_queue_brings_what_is_known(at: At, of: str) -> None:
    name = LETTERS[of].record_id
    at("here", "export", "--where", f"record_id = '{name}'", "../one.jsonl")
    at("there", "import", "../one.jsonl")
    assert verdicts(at, "there", "import") == {name: verdicts(at, "here")[name]}


def forged(facts: dict[str, Any]) -> str:
    line = {"broker_kind": "rabbitmq", "queue": "orders.dlq", "exchange": "x", "topology": facts}
    return json.dumps(line) + "\n"


@pytest.mark.parametrize("facts", [{}, {"alternate_exchanges": ["u"], "delivery_limits": {"orders": 99}}])
def test_an_import_changes_nothing_about_what_was_pulled(here: Path, at: At, facts: dict[str, Any]) -> None:
    """Into their own source, too."""
    pulled = verdicts(at, "here")
    (here / "forged.jsonl").write_text(forged(facts))
    at("here", "import", "forged.jsonl", "--source", "orders")
    learn(here, {"delivery_limits": {"bills": 7}, **FACTS}, "20261121T000001-1")
    at("here", "retain", "--apply")
    at("here", "analyze")
    found = verdicts(at, "here")
    assert {name: found[name] for name in pulled} == pulled


ODD: list[Any] = [
    {"delivery_limits": {"orders": "many"}}, {"delivery_limits": [], "routes": 7}, {"never heard of": {}},
    {"alternate_exchanges": [None]},
]  # fmt: skip


@pytest.mark.parametrize("facts", ODD)
def test_facts_of_a_file_that_are_none_are_not_believed(at: At, tmp_path: Path, facts: Any) -> None:
    (tmp_path / "odd.jsonl").write_text(forged(facts))
    assert at("there", "import", "../odd.jsonl")["records"] == 1
    assert at("there", "analyze")["records"] == 1


def test_two_brokers_that_say_different_things_of_a_queue_say_nothing(at: At, tmp_path: Path) -> None:
    told = {"alternate_exchanges": ["u"]}
    (tmp_path / "two.jsonl").write_text(forged(told) + forged({"alternate_exchanges": ["v"]}))
    (tmp_path / "same.jsonl").write_text(forged(told) + forged(told))
    for file, cause in (("two", "unknown"), ("same", "unroutable")):
        at(file, "import", f"../{file}.jsonl")
        assert {row["cause"] for row in verdicts(at, file, "import").values()} == {cause}
