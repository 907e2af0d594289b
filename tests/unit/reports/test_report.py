"""The report: its numbers, and where it is written."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.archives import MINUTE, letter, write_analysis, write_segment
from support.reporting import EARLIER, LATEST, an_id, ledger, rendered, store
from support.rows import each_row

from dlq.archive import views
from dlq.archive.storage.store import LocalStore
from dlq.core import causes, clock
from dlq.core.clock import from_iso
from dlq.core.errors import UsageError
from dlq.core.record import Record
from dlq.reports import failures, headline, report, retention, thresholds, timeline

__all__ = ["store"]

HOUR = 3_600_000_000


@pytest.fixture
def empty(tmp_path: Path) -> LocalStore:
    return LocalStore(str(tmp_path / "empty"))


def fill(store: LocalStore, *letters: Record, **said: str) -> LocalStore:
    """The store, with these letters, of which all have this verdict."""
    write_segment(store, "p-0", [*letters])
    write_analysis(
        store, LATEST, [{"record_id": one.record_id, "cause": "unknown", **said} for one in letters]
    )
    return store


def test_every_letter_is_counted_once_in_every_view_of_them(store: LocalStore) -> None:
    document = report.make(store)
    assert document["letters"] == 7
    for name in ("causes", "sources", "matrix", "advice", "replay_states"):
        assert sum(row["letters"] for row in document[name]) == 7
    assert sum(bucket["letters"] for bucket in document["timeline"]["buckets"]) == 7
    assert document["duplicates"] == [{"kind": "message_id", "groups": 1, "letters": 2}]
    assert (document["counts"]["incidents"], document["counts"]["ongoing"]) == (1, 1)
    assert set(document["counts"]) == set(thresholds.NAMES)


def test_causes_and_failures_say_what_they_are_and_what_is_next(store: LocalStore) -> None:
    document = report.make(store)
    first, (top,) = document["causes"][0], document["fingerprints"]
    assert (first["cause"], first["letters"], round(first["share"], 2)) == ("application_error", 3, 0.43)
    assert first["first"] == "1970-01-01T00:01:00Z"
    assert "exception" in first["meaning"]
    assert (top["letters"], top["example"], top["sources"]) == (3, an_id(1), ["orders"])
    assert document["counts"]["no_verdict"] == 1
    commands = [step["command"] for step in document["next"]]
    assert (commands[0], "dlq analyze" in commands) == (f"dlq show {an_id(1)[:12]}", True)


def test_when_failures_died_is_counted_in_the_same_steps(store: LocalStore) -> None:
    with views.connect(store) as connection:
        rows = failures.find_all(connection)
        found = timeline.count_each(connection, [row["fingerprint"] for row in rows])
    assert {name: sum(counts) for name, counts in found.items()} == {
        row["fingerprint"]: row["letters"] for row in rows
    }
    assert all(any(counts) and len(counts) == 30 for counts in found.values())


def test_the_oldest_letter_is_one_that_did_not_go_back(empty: LocalStore) -> None:
    fill(empty, *(letter(n, dead_at=n * MINUTE) for n in (1, 2)), letter(3, dead_at=None))
    first, second = "1970-01-01T00:01:00Z", "1970-01-01T00:02:00Z"
    for states, oldest in (
        ([], first), ([(1, "confirmed")], second), ([(1, "dismissed")], second), ([(1, "in_doubt")], first),
        ([(1, "confirmed"), (2, "confirmed")], None),
    ):  # fmt: skip
        document = report.make(empty, replays=ledger(*states))
        assert document["oldest"] == oldest, states
        assert (document["counts"]["oldest"] > 0) is (oldest is not None)


def test_each_source_says_what_is_open_there(store: LocalStore) -> None:
    document = report.make(store, replays=ledger((1, "confirmed"), (2, "dismissed"), (70, "dismissed")))
    told = {row["source"]: row for row in document["sources"]}
    names = ("open", "oldest", "new_failures", "regressed")
    assert [told["orders"][name] for name in names] == [4, "1970-01-01T00:03:00Z", 1, 0]
    assert [told["pay|ments"][name] for name in names] == [0, None, 0, 0]
    assert sum(row["open"] for row in told.values()) == document["counts"]["open"]


def test_letters_without_a_time_of_death_are_in_no_time(empty: LocalStore, tmp_path: Path) -> None:
    undated = letter(2, dead_at=None, published_at=MINUTE, captured_at=9 * MINUTE)
    document = report.make(fill(empty, letter(1), undated))
    assert document["undated"] == 1
    assert sum(bucket["letters"] for bucket in document["timeline"]["buckets"]) == 1
    assert document["causes"][0]["last"] == "1970-01-01T00:01:00Z"
    assert "; 1 of unknown time." in headline.sentences(document)[0]
    none = LocalStore(f"{tmp_path}/none")
    document = report.make(fill(none, letter(1, dead_at=None, captured_at=MINUTE)))
    assert (document["first"], document["last"], document["timeline"]["buckets"]) == (None, None, [])
    assert headline.sentences(document)[0] == "1 dead letter in 1 source; their time of death is unknown."


@pytest.mark.parametrize("name", report.FORMATS)
def test_of_expired_letters_no_text_says_that_they_may_have_been_processed(
    empty: LocalStore, name: str
) -> None:
    text = rendered(name, fill(empty, letter(1), cause="expired", advice="check_first"))
    assert "check_first" in text
    assert "processed" not in text
    assert "business" not in text


@each_row(("kinds", "name"), [
    (["rabbitmq"], "rejected by the consumer (poison_ack)"), (["activemq"], "poison_ack"),
    (["rabbitmq", "activemq"], "poison_ack"), ([None], "poison_ack"), ([], "poison_ack"),
])  # fmt: skip
def test_a_cause_is_said_in_the_words_of_its_broker(kinds: list[str | None], name: str) -> None:
    assert causes.cause_in_words("poison_ack", kinds) == name
    assert causes.cause_in_words("expired", kinds) == "expired"


def test_what_went_back_no_longer_waits(store: LocalStore) -> None:
    document = report.make(store, ledger((4, "confirmed"), (5, "in_doubt")))
    (replay,) = [row for row in document["advice"] if row["advice"] == "replay"]
    assert (replay["letters"], replay["waiting"]) == (3, 1)
    assert (document["counts"]["confirmed"], document["counts"]["in_doubt"]) == (1, 1)
    assert "may or may not have arrived" in json.dumps(document["next"])


def test_a_comparison_says_what_is_new_and_what_changed(store: LocalStore) -> None:
    compared = report.make(store, before=EARLIER[:8])["compare"]
    assert compared["analysis"] == EARLIER
    assert {row["cause"]: row["change"] for row in compared["causes"]} == {
        "application_error": 3, "poison_ack": 1, "expired": 1, "unknown": -1,
    }  # fmt: skip
    assert [row["change"] for row in compared["fingerprints"]] == ["new"]
    assert compared["reclassified"] == 1


def test_the_retention_clock_says_what_the_broker_will_delete(empty: LocalStore) -> None:
    now = clock.now()
    kept = {"mode": "copy", "broker_kind": "rabbitmq"}
    dying = [letter(1, dead_at=now - HOUR, **kept), letter(2, dead_at=now - 9 * HOUR, **kept)]
    fill(empty, *dying, letter(3, dead_at=now - HOUR, mode="drain"))
    for name, ttl in (("p", 5 * 3600 * 1000), ("a", 1)):
        document = {"format": 1, "source": "orders", "message_ttl": ttl}
        empty.put(f"topology/{name}.json", json.dumps(document).encode())
    empty.put("topology/q.json", b"{torn")
    (row,) = report.make(empty)["retention"]
    assert (row["source"], row["letters"], row["kept_seconds"]) == ("orders", 1, 5 * 3600)
    assert row["first"] == row["last"] == clock.iso(now + 4 * HOUR)


@each_row(("topology", "limit_ms"), [
    ({"brokers": {"a": {"file_reserved_hours": 72}, "b": {"file_reserved_hours": 48}}}, 48 * 3_600_000),
    ({"brokers": {"a": {"file_reserved_hours": None}}}, None),
    ({"message_ttl": 1000, "queue_type": "quorum"}, 1000), ({"message_ttl": None}, None), ({}, None),
])  # fmt: skip
def test_a_limit_is_read_from_what_a_pull_learned(topology: dict[str, Any], limit_ms: int | None) -> None:
    found = retention.limit_of(topology)
    assert (found and found[1]) == limit_ms


def test_an_analysis_that_is_not_there_is_told(store: LocalStore, empty: LocalStore) -> None:
    with pytest.raises(UsageError, match="is empty: dlq pull or dlq import fills it"):
        report.make(empty)
    with pytest.raises(UsageError, match=f"no analysis '20250101'.*{EARLIER}"):
        report.make(store, before="20250101")
    with pytest.raises(UsageError, match=f"2026 is ambiguous: {EARLIER}, {LATEST}"):
        report.make(store, before="2026")


@each_row(("span", "step"), [
    (0, 60), (3000, 60), (3600, 300), (12 * 3600, 900), (86_400, 3600), (30 * 86_400, 86_400),
    (9e9, 364 * 86_400),
])  # fmt: skip
def test_the_timeline_takes_the_smallest_step_that_fits(span: float, step: int) -> None:
    assert timeline.step_seconds(1.0, 1.0 + span) == step


def test_a_report_is_written_whole_or_not_at_all(store: LocalStore, tmp_path: Path) -> None:
    target = tmp_path / "new" / "report.json"
    report.write(report.make(store), report.format_of_file(str(target)), str(target))
    assert json.loads(target.read_text())["letters"] == 7
    assert [path.name for path in target.parent.iterdir()] == ["report.json"]
    with pytest.raises(UsageError, match="cannot write"):
        report.write(report.make(store), "json", f"{target}/report.json")


def test_evidence_alone_is_no_letter_in_any_count(empty: LocalStore) -> None:
    fill(empty, letter(1), letter(2), cause=None, rule="transaction_ended")
    document = report.make(empty)
    assert (document["letters"], document["causes"], document["sources"]) == (0, [], [])
    assert (document["counts"]["total"], document["counts"]["open"]) == (0, 0)
    write_analysis(empty, EARLIER, [{"record_id": an_id(1), "cause": None, "rule": "transaction_ended"}])
    compared = report.make(empty, before=EARLIER)["compare"]
    assert (compared["before"], compared["now"], compared["causes"]) == (0, 0, [])


def test_deaths_at_both_ends_of_the_calendar_are_counted(empty: LocalStore) -> None:
    ends = [from_iso("0001-01-01T00:00:00Z"), from_iso("9999-12-31T23:59:59Z")]
    fill(empty, *(letter(n, dead_at=at) for n, at in enumerate(ends, 1)), fingerprint="f")
    with views.connect(empty) as connection:
        (counts,) = timeline.count_each(connection, ["f"]).values()
    assert (counts[0], counts[-1], sum(counts)) == (1, 1, 2)
