"""What an analysis keeps for the next one, what makes it judge again, and what it says has changed."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from support.analyzers.letters import died, record
from support.archives import letter, write_analysis, write_segment

from dlq.analyzers import classification, topology
from dlq.analyzers.analysis import analyze, changed_since, still_holds
from dlq.analyzers.asked import Asked
from dlq.analyzers.classification import Terms
from dlq.analyzers.rules import BROKEN, Facts
from dlq.archive import analyses
from dlq.archive.analyses import Analysis
from dlq.archive.manifests import Manifest
from dlq.archive.storage.store import LocalStore
from dlq.core.clock import from_iso, now
from dlq.core.errors import ConfigError, UsageError
from dlq.core.record import Record
from dlq.core.settings import Evidence, Replay, Rule, Settings

ASKING = Settings(evidence={"dedup": Evidence("dedup", "rocketmq-dedup", "sqlite:///dedup.db", ("*",))})
EASYNETQ = b'{"Exception": "System.TimeoutException: no answer\\r\\n   at Shop.Pay.Run()", "Queue": "pay"}'


def rejected(number: int, **columns: Any) -> Record:
    return died(("rejected", "orders", 1), record_id=f"{number:032x}", captured_at=number, **columns)


def verdicts(store: LocalStore, of: Analysis) -> dict[int, Mapping[str, Any]]:
    files = (pq.read_table(store.parquet(name)).to_pylist() for name in of.tables["verdicts"])
    return {int(row["record_id"], 16): row for file in files for row in file}


def stems(analysis: Analysis) -> list[list[str]]:
    return [sorted(part["stems"]) for part in analysis.extra["parts"]]


@pytest.fixture
def store(tmp_path: Any) -> LocalStore:
    """Its path has what a pattern would have."""
    return LocalStore(str(tmp_path / "my [archive] {1}*"))


def test_new_segments_are_classified_until_terms_vary(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited = died(("delivery_limit", "orders", 1), record_id=f"{3:032x}", captured_at=3)
    in_body = record(
        record_id=f"{2:032x}", dead_letter_queue="EasyNetQ_Default_Error_Queue", body=EASYNETQ, captured_at=2
    )
    write_segment(
        store, "p-0", [rejected(1, message_id="m", body_size=1, body_sha256="aa"), in_body, limited]
    )

    # Facts of no known type make a rule fail: its letter is unknown, and nothing else suffers.
    monkeypatch.setattr("dlq.archive.topology.read", lambda _name, data: json.loads(data))
    topology = {"format": 1, "source": "orders", "delivery_limits": {"orders": "many"}}
    store.put("topology/20261118T110000-0001.json", json.dumps(topology).encode())
    first = analyze(store, Settings())
    assert (first.records, dict(first.causes)) == (3, {"poison_ack": 1, "application_error": 1, "unknown": 1})
    assert first.extra["broken"] == 1
    said = verdicts(store, first)
    assert (said[3]["rule"], said[3]["cause"]) == (BROKEN, "unknown")
    assert said[3]["evidence"].startswith("the rule delivery-limit failed on it: TypeError")
    assert (said[2]["rule"], said[2]["exception_class"], said[2]["origin"]) == (
        "easynetq", "System.TimeoutException", "pay",
    )  # fmt: skip
    assert still_holds(store, Settings()) == first

    # The same letter under a second source is a letter of its own, and no duplicate of its own verdict.
    write_segment(store, "p-1", [rejected(1, message_id="m", body_size=1, body_sha256="aa", source="again")])
    assert still_holds(store, Settings()) is None
    second = analyze(store, Settings())
    assert stems(second) == [["p-0"], ["p-1"]]
    assert second.extra["parts"][0] == first.extra["parts"][0]
    assert second.extra["broken"] == 1
    assert still_holds(store, Settings()) == second
    for other in (Settings(replay=Replay(max_laps=1)), Settings(rules=(Rule("mine", "false"),)), ASKING):
        assert still_holds(store, other) is None
    assert dict(second.causes) == {"poison_ack": 2, "application_error": 1, "unknown": 1}
    assert second.extra["changed"]["causes"] == {"poison_ack": 1}
    assert second.extra["changed"]["new_fingerprints"] == 0
    third = analyze(store, Settings(replay=Replay(max_laps=1)), since=2)
    assert third.rules_digest != second.rules_digest
    assert {part["file"] for part in third.extra["parts"]}.isdisjoint(
        p["file"] for p in second.extra["parts"]
    )
    assert third.records == 2
    assert still_holds(store, Settings(replay=Replay(max_laps=1))) is None


def test_a_pull_that_brings_nothing_ends_what_was_ongoing(store: LocalStore) -> None:
    looked_at = from_iso("2026-11-21T10:00:00Z") or 0
    write_segment(store, "20261121T100000-aaaa-00000", [letter(n, dead_at=looked_at) for n in range(30)])
    for pull, is_ongoing in (("100000", True), ("100500", True), ("150000", False), ("160000", False)):
        store.put(f"topology/20261121T{pull}-aaaa.json", b'{"format": 1, "source": "orders"}')
        known = still_holds(store, Settings())
        assert (known is None) is (pull in ("100000", "150000"))
        done = analyze(store, Settings(), only_new=True)
        [name] = done.tables["incidents"]
        assert pq.read_table(store.parquet(name))["ongoing"].to_pylist() == [is_ongoing]
        assert known in (None, done)


def test_what_cannot_be_analyzed_is_said(store: LocalStore) -> None:
    with pytest.raises(UsageError, match="the archive is empty"):
        analyze(store, Settings())
    write_segment(store, "p-0", [rejected(1)])
    for where, why in (
        ("no_such_column = 1", "where = 'no_such_column = 1' is no condition"),
        ("java_method('java.lang.System', 'exit', 0) is null", "where uses java_method; a rule may use"),
        ("REFLECT('a', 'b') = 'c'", "where uses REFLECT; a rule may use"),
    ):
        with pytest.raises(ConfigError, match=f"rule 'mine': {why}"):
            analyze(store, Settings(rules=(Rule("mine", where, "expired"),)))


def test_a_rule_that_fails_on_a_letter_is_asked_of_the_others(store: LocalStore) -> None:
    write_segment(store, "p-0", [rejected(n, failure_text=text) for n, text in enumerate(("(", "orders"))])
    done = analyze(store, Settings(rules=(Rule("mine", "'orders' rlike failure_text", "expired"),)))
    assert {number: row["rule"] == "mine" for number, row in verdicts(store, done).items()} == {
        0: False,
        1: True,
    }


# fingerprints, and how many are new after "f1" and "f2"
NEW = [(["f1", "f2"], 0), (["f1", "f3"], 1), (["n1", "n1", "n3"], 2), ([None, "n1"], 1)]


def test_a_failure_is_new_that_the_analysis_before_had_not(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    ids = [letter(number).record_id for number in range(3)]
    write_segment(store, "p-0", [letter(number) for number in range(3)])
    before = [{"record_id": one, "fingerprint": which} for one, which in zip(ids, ("f1", "f2"), strict=False)]
    write_analysis(store, "20260101T000000", before)
    found = []
    for day, (named, _) in enumerate(NEW, 2):
        verdicts = [{"record_id": one, "fingerprint": name} for one, name in zip(ids, named, strict=False)]
        write_analysis(store, f"2026010{day}T000000", verdicts)
        files = analyses.load(store, f"2026010{day}T000000").tables["verdicts"]
        changed = changed_since(store, analyses.load(store, "20260101T000000"), {}, files)
        found.append(changed["new_fingerprints"])
    assert found == [expected for _, expected in NEW]


TERMS = Terms(Facts(delivery_limits={"orders": {"orders": 3}}), max_laps=3, with_text=False)


@pytest.mark.parametrize("other", [
    TERMS._replace(max_laps=4),
    TERMS._replace(with_text=True),
    TERMS._replace(facts=Facts()),
    TERMS._replace(facts=replace(TERMS.facts, delivery_limits={"orders": {"orders": 4}})),
    TERMS._replace(facts=replace(TERMS.facts, alternate_exchanges={"orders": ("unrouted",)})),
])  # fmt: skip
def test_other_terms_have_another_key(other: Terms) -> None:
    assert other.key() != TERMS.key() == Terms(*TERMS).key()


def test_other_code_has_another_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rule = tmp_path / "rules" / "mine.py"
    rule.parent.mkdir()
    rule.write_text("one")
    monkeypatch.setattr(classification, "files_in", lambda _room: tmp_path)
    before = TERMS.key()
    (tmp_path / "notes.txt").write_text("not code")
    assert TERMS.key() == before
    rule.write_text("two")
    assert TERMS.key() != before


def a_manifest(stem: str, rows: int) -> Manifest:
    return Manifest(stem, "p", "orders", "copy", f"{stem}.parquet", rows, "", "2026-10-26T07:33:20Z")


@pytest.mark.parametrize(
    ("rows", "parallel", "tasks"),
    [([], 2, 0), ([1], 8, 1), ([10] * 4, 2, 2), ([10] * 4, 4, 4), ([classification.LARGEST_SHARE] * 3, 1, 3)],
)
def test_each_core_has_a_share_and_no_share_is_too_large(rows: list[int], parallel: int, tasks: int) -> None:
    committed = [a_manifest(f"p-{n}", count) for n, count in enumerate(rows)]
    found = classification.shares(committed, parallel)
    assert len(found) == tasks
    assert sorted(one.stem for share in found for one in share) == [m.stem for m in committed]


def test_a_segment_of_the_second_since_which_letters_are_asked_for_is_looked_at(store: LocalStore) -> None:
    segment = replace(a_manifest("p-0", 1), created_at="2026-10-26T07:33:20.5Z")
    since = from_iso("2026-10-26T07:33:20Z")
    assert Asked(store, Settings(), since, (), (), [segment], "").chosen == [segment]


def test_after_a_clock_that_was_ahead_the_names_of_analyses_sort_and_do_not_grow(store: LocalStore) -> None:
    write_segment(store, "p-0", [rejected(1)])
    ahead = analyze(store, Settings(), now=lambda: now() + 400 * 86_400 * 1_000_000)
    analyses.commit(store, replace(ahead, analysis=f"{ahead.analysis}.1.1"))  # as an older dlq went on
    later = [analyze(store, Settings()).analysis for _ in range(3)]
    assert later == analyses.ids(store)[2:]
    assert {len(name) for name in later} == {len(ahead.analysis)}


def test_the_last_look_is_the_last_pull_or_empty_and_a_long_pull_looked_when_it_began(
    store: LocalStore,
) -> None:
    segment = a_manifest("p-0", 1)
    for pull, looked_at in (("odd", 1_793_000_000), ("20261026T080000-ab12", 1_793_001_600)):
        store.put(f"topology/{pull}.json", b"{}")
        assert topology.last_look(store, [segment]) == looked_at * 1_000_000
    ahead = replace(segment, pull_id="20991026T080000-ab12")
    assert topology.last_look(store, [segment, ahead]) == looked_at * 1_000_000
    store.delete("topology/20261026T080000-ab12.json")
    long = replace(segment, pull_id="20261026T070000-ab12")
    assert topology.last_look(store, [long]) == 1_792_998_000 * 1_000_000
