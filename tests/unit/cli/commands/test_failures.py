"""dlq failures: what a team says of failures, and what the commands make of it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.archives import letter, write_analysis, write_segment
from support.builders import Dlq, rows
from support.rows import each_row

from dlq.archive.storage.store import LocalStore
from dlq.core.clock import now

IDS = [f"{number:x}" * 32 for number in range(1, 5)]
TIMEOUT, NULL = "aa" * 16, "bb" * 16
FAILED = dict.fromkeys(IDS[:3], TIMEOUT) | {IDS[3]: NULL}
SNOOZE = ("--until", "3d")


@pytest.fixture
def store(store: LocalStore) -> LocalStore:
    """Three letters of one failure, one of another."""
    write_segment(store, "p-0", [letter(n, record_id=one) for n, one in enumerate(IDS)])
    analyze(store, FAILED, "20260101T000000")
    return store


def analyze(store: LocalStore, fingerprints: dict[str, str], name: str) -> None:
    said = {"cause": "application_error", "advice": "replay", "exception_class": "java.lang.Boom"}
    verdicts = [{"record_id": one, "fingerprint": which, **said} for one, which in fingerprints.items()]
    write_analysis(store, name, verdicts)


@pytest.fixture
def dlq(dlq: Dlq, store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> Dlq:
    monkeypatch.setenv("COLUMNS", "300")
    return dlq


def show(dlq: Dlq, failure: str = TIMEOUT) -> dict[str, Any]:
    return json.loads(dlq("failures", "show", failure)[1])  # type: ignore[no-any-return]


def speak(dlq: Dlq, *words: str) -> None:
    """Say something of a failure, with a reason."""
    code, _out, err = dlq("failures", *words, "--reason", "known")
    assert code == 0, err


def die_again(store: LocalStore, failure: str, record_id: str = "e" * 32, **values: Any) -> None:
    """A letter of the failure that is new in this analysis."""
    later = {"dead_at": now() + 1, "captured_at": now() + 1, **values}
    write_segment(store, f"p-{record_id}", [letter(9, record_id=record_id, **later)])
    analyze(store, FAILED | {record_id: failure}, f"20260102T{record_id[:6]}")


def failures(dlq: Dlq, *arguments: str) -> list[tuple[str, str, str | None]]:
    code, out, err = dlq("failures", *arguments)
    assert code == 0, err
    return [(row["fingerprint"], row["state"], row["owner"]) for row in rows(out)]


def test_every_failure_is_new_until_somebody_speaks_of_it(dlq: Dlq, store: LocalStore) -> None:
    assert failures(dlq) == [(TIMEOUT, "new", None), (NULL, "new", None)]
    assert store.list("ledger") == [], "looking makes none"
    code, out, _err = dlq("failures", "assign", "aaaaaaaa", "--as", "ann@desk", "--reason", "mine")
    shown = json.loads(out)
    assert (code, shown["state"], shown["owner"], shown["note"]) == (0, "open", "ann@desk", "mine")
    assert failures(dlq) == [(NULL, "new", None), (TIMEOUT, "open", "ann@desk")]
    assert failures(dlq, "ls", "--owner", "ann@desk") == [(TIMEOUT, "open", "ann@desk")]
    assert failures(dlq, "ls", "--state", "new") == [(NULL, "new", None)]


def test_all_that_was_said_stays_and_says_who_when_and_why(dlq: Dlq, store: LocalStore) -> None:
    dlq("failures", "assign", NULL, "ann", "--as", "bob")
    _code, _out, err = dlq("failures", "assign", NULL, "eve", "--as", "ann", "--reason", "holiday")
    assert "until now it was assigned to ann" in err
    dlq("failures", "assign", NULL, "--nobody", "--as", "eve")
    history = show(dlq, NULL)["history"]
    assert [(one["actor"], one["action"], one["value"], one["reason"]) for one in history] == [
        ("bob", "assign", "ann", ""), ("ann", "assign", "eve", "holiday"), ("eve", "assign", "", ""),
    ]  # fmt: skip
    assert all(one["at"].endswith("Z") for one in history)
    assert failures(dlq)[-1] == (NULL, "open", None)
    analyze(store, dict.fromkeys(IDS, TIMEOUT), "20260102T000000")
    gone = show(dlq, NULL)
    assert (gone["letters"], gone["history"]) == (0, history), "also where its letters are gone"


@pytest.mark.parametrize("dead_at", [1, None])
def test_a_letter_that_dies_afterwards_regresses(dlq: Dlq, store: LocalStore, dead_at: int | None) -> None:
    """Of one that says no time it counts when it was pulled."""
    speak(dlq, "resolve", TIMEOUT)
    assert failures(dlq)[-1] == (TIMEOUT, "resolved", None)
    die_again(store, TIMEOUT, dead_at=dead_at and now() + 1)
    assert failures(dlq)[0] == (TIMEOUT, "regressed", None)
    code, document = report(dlq, "--fail-on", "regressed > 0")
    assert (code, document["fingerprints"][0]["fingerprint"]) == (5, TIMEOUT)
    assert [row["regressed"] for row in document["sources"]] == [1]
    assert "came back" in document["next"][0]["why"]
    speak(dlq, "reopen", TIMEOUT)
    assert failures(dlq)[-1] == (TIMEOUT, "open", None)


def test_a_letter_of_an_older_version_than_the_fix_does_not_regress(
    dlq: Dlq, store: LocalStore, tmp_path: Path
) -> None:
    _code, _out, err = dlq("failures", "resolve", TIMEOUT, "--in", "v2.4.1")
    assert "sources.orders has no version setting: any letter of it" in err
    source = '[sources.orders]\nbroker = "shop"\nqueue = "orders.dlq"\nversion = "header:app-version"'
    (tmp_path / "dlq.toml").write_text(f'[brokers.shop]\nkind = "memory"\n{source}')
    code, out, err = dlq("failures", "resolve", TIMEOUT, "--in", "2.4.1")
    shown = json.loads(out)
    assert (code, err, shown["state"], shown["resolved_in"]) == (0, "", "resolved", "2.4.1")
    for again, version, state in (("0" * 32, "2.4.0", "resolved"), ("1" * 31 + "0", "2.4.1", "regressed")):
        die_again(store, TIMEOUT, again, headers={"app-version": version})
        assert (TIMEOUT, state, None) in failures(dlq)
        assert report(dlq)[1]["counts"]["regressed"] == (state == "regressed")
    assert "resolved_in       2.4.1" in dlq("failures", "show", TIMEOUT, "-o", "table")[1]


def test_ls_shows_how_failures_stand_once_somebody_has_spoken_of_one(dlq: Dlq) -> None:
    _code, out, _err = dlq("ls", "-o", "table")
    assert "state" not in out.splitlines()[0].split()
    speak(dlq, "snooze", NULL, *SNOOZE)
    _code, out, _err = dlq("ls", "-o", "table")
    head, *rows = out.splitlines()
    at = head.index(" state ")
    assert [row[at:].split()[0] for row in rows] == ["new", "new", "new", "snoozed"]
    assert rows[-1].startswith(IDS[3][:12])  # the newest of all


def test_incidents_of_snoozed_failures_alone_come_last(dlq: Dlq, store: LocalStore) -> None:
    named = {TIMEOUT: "i1", NULL: "i2"}
    verdicts = [
        {"record_id": one, "fingerprint": which, "incident_id": named[which]} for one, which in FAILED.items()
    ]
    found = [{"incident_id": name, "size": 1, "sources": ["orders"], "causes": []} for name in ("i1", "i2")]
    write_analysis(store, "20260102T000000", verdicts, incidents=found)

    def stand() -> list[tuple[str, str]]:
        listed = json.loads(dlq("incidents", "-o", "json")[1])["incidents"]
        return [(row["incident_id"], row["state"]) for row in listed]

    assert stand() == [("i1", "new"), ("i2", "new")]
    speak(dlq, "snooze", TIMEOUT, *SNOOZE)
    assert stand() == [("i2", "new"), ("i1", "snoozed")]
    _code, out, _err = dlq("incidents", "-o", "table")
    assert out.index("i2") < out.index("i1") < out.index("snoozed")


def test_a_snoozed_failure_is_below_all_others_until_it_has_too_many_letters(dlq: Dlq) -> None:
    speak(dlq, "snooze", TIMEOUT, "--letters", "4")
    assert failures(dlq)[-1] == (TIMEOUT, "snoozed", None)
    speak(dlq, "snooze", TIMEOUT, "--letters", "3")
    assert failures(dlq)[-1] == (TIMEOUT, "open", None)
    speak(dlq, "snooze", NULL, *SNOOZE)
    assert failures(dlq)[-1] == (NULL, "snoozed", None)


@each_row(("words", "told"), [
    (["resolve", TIMEOUT], "say how it was fixed"),
    (["resolve", TIMEOUT, "--in", "next"], "--in next: not a version; write it like 2.4.1"),
    (["reopen", TIMEOUT], "say why"),
    (["note", TIMEOUT, " "], "a note says something"),
    (["snooze", TIMEOUT, "--reason", "x"], "a snooze needs one end"),
    (["snooze", TIMEOUT, "--until", "1h", "--letters", "3"], "a snooze needs one end"),
    (["snooze", TIMEOUT, "--until", "soon", "--reason", "x"], "neither a time"),
    (["snooze", TIMEOUT, "--until", "2020-01-01", "--reason", "x"], "that time has passed"),
    (["assign", "cc"], "no failure has the fingerprint 'cc'; dlq failures lists them"),
    (["assign", TIMEOUT, "ann", "--nobody"], "either an owner or --nobody"),
    (["note", TIMEOUT, "x" * 2_001], "at most 2,000 characters"),
    (["ls", "--state", "opne"], "not a state; did you mean 'open'?"),
])  # fmt: skip
def test_what_cannot_be_said_is_a_line_and_not_kept(dlq: Dlq, words: list[str], told: str) -> None:
    code, out, err = dlq("failures", *words)
    assert (code, out) == (2, "")
    assert told in err
    assert len(err.splitlines()) == 1
    assert [state for _, state, _ in failures(dlq)] == ["new", "new"]


def test_each_step_names_the_next_one_and_letters_without_a_verdict_once(dlq: Dlq, store: LocalStore) -> None:
    def told(*words: str) -> str:
        return dlq("-o", "table", "failures", *words)[2]

    assert "next: dlq failures assign aaaaaaaaaaaa" in told("show", TIMEOUT)
    assert "dlq replay plan --failure aaaaaaaaaaaa --fixed" in told("assign", TIMEOUT)
    assert "next:" not in told("snooze", TIMEOUT, "--until", "1d", "--reason", "x")
    dlq("failures", "assign", NULL)
    dlq("dismiss", "--failure", NULL, "--reason", "x")
    assert "next: dlq failures resolve" in told("show", NULL)
    write_segment(store, "p-1", [letter(9, record_id="e" * 32)])
    for words in (("ls",), ("show", TIMEOUT), ("note", TIMEOUT, "x")):
        assert told(*words).count("no verdict yet: dlq analyze") == 1


def test_hostile_notes_and_names_steer_no_terminal(dlq: Dlq) -> None:
    dlq("failures", "note", TIMEOUT, "\x1b[2Jgone\u202e", "--as", "\x1b]0;x\x07")
    for words in (["failures"], ["failures", "show", TIMEOUT]):
        for output in ("table", "json", "jsonl"):
            _code, out, _err = dlq("-o", output, *words)
            assert "gone" in out
            assert "\x1b" not in out
            assert "\u202e" not in out


def test_two_processes_that_speak_at_once_lose_nothing(dlq: Dlq, tmp_path: Path) -> None:
    script = """
import sys
from dlq.cli.app import run
for number in range(8):
    assert run(["-q", "failures", "note", sys.argv[2], f"{sys.argv[1]} {number}", "--as", sys.argv[1]]) == 0
"""
    words = [sys.executable, "-c", script]
    begin = lambda who: subprocess.Popen([*words, who, TIMEOUT], cwd=tmp_path, stdout=subprocess.DEVNULL)  # noqa: E731
    assert [one.wait() for one in (begin("ann"), begin("bob"))] == [0, 0]
    history = show(dlq)["history"]
    for who in ("ann", "bob"):
        mine = [one["reason"] for one in history if one["actor"] == who]
        assert mine == [f"{who} {number}" for number in range(8)]


def report(dlq: Dlq, *arguments: str) -> tuple[int, dict[str, Any]]:
    code, out, _err = dlq("report", *arguments)
    return code, json.loads(out)


def test_a_report_shows_who_has_a_failure_and_snoozed_ones_last(dlq: Dlq) -> None:
    speak(dlq, "snooze", TIMEOUT, *SNOOZE)
    dlq("failures", "assign", NULL, "<b>bob|\x1b[2J</b>")
    _code, document = report(dlq)
    found = [(row["fingerprint"], row["state"], row["owner"]) for row in document["fingerprints"]]
    assert found == [(NULL, "open", "<b>bob|\x1b[2J</b>"), (TIMEOUT, "snoozed", None)]
    for format_ in ("terminal", "markdown", "html"):
        out = dlq("report", "--format", format_)[1]
        assert "snoozed" in out
        assert "\x1b[2J" not in out
        assert format_ == "terminal" or "<b>bob" not in out


def test_new_failures_are_a_threshold(dlq: Dlq) -> None:
    bounds = ("--fail-on", "new_failures > 0", "--fail-on", "regressed > 0")
    assert report(dlq, *bounds)[0] == 5
    for one in (TIMEOUT, NULL):
        dlq("failures", "assign", one)
    code, document = report(dlq, *bounds)
    assert (code, document["counts"]["new_failures"], document["counts"]["regressed"]) == (0, 0, 0)


def test_no_failure_is_called_the_most_frequent_while_somebody_has_a_more_frequent_one(dlq: Dlq) -> None:
    assert report(dlq)[1]["next"][0]["why"] == "an example of the most frequent failure, 3 letters"
    dlq("failures", "assign", TIMEOUT)
    assert report(dlq)[1]["next"][0]["why"] == "an example of the most frequent new failure, 1 letter"
    speak(dlq, "resolve", TIMEOUT)
    speak(dlq, "snooze", NULL, *SNOOZE)
    assert not any(step["command"].startswith("dlq show") for step in report(dlq)[1]["next"])


def test_a_snoozed_failure_raises_no_alarm(dlq: Dlq) -> None:
    bounds = ("--fail-on", "total > 1", "--fail-on", "application_error > 1", "--fail-on", "fingerprints > 1")
    assert report(dlq, *bounds)[0] == 5
    speak(dlq, "snooze", TIMEOUT, "--letters", "4")
    code, document = report(dlq, *bounds)
    assert (code, document["counts"]["total"], document["alarming"]["total"]) == (0, 4, 1)
    assert sum(row["open"] for row in document["sources"]) == 1
    part = ("--where", "attempts = 1")  # a part of the letters ends no snooze, and is counted alike
    assert report(dlq, *part, *bounds)[0] == 0
    assert report(dlq, "--failure", TIMEOUT, "--fail-on", "total > 0")[0] == 0


def test_a_failure_names_its_queues_and_others_of_its_exception(dlq: Dlq, store: LocalStore) -> None:
    names = ("fingerprint", "origin", "exception_message")
    told = [(TIMEOUT, "stock", "order 0"), (TIMEOUT, "orders", "order 1"), (NULL, "mails", "order 2"),
            ("cc" * 16, "bills", "no room")]  # fmt: skip
    known = {"cause": "application_error", "exception_class": "java.lang.Boom"}
    verdicts = [
        {**known, "record_id": one, **dict(zip(names, row, strict=True))}
        for one, row in zip(IDS, told, strict=True)
    ]
    write_analysis(store, "20260103T000000", verdicts)
    speak(dlq, "resolve", NULL)
    shown = show(dlq)
    assert shown["origins"] == ["orders", "stock"]
    (other,) = shown["same_exception"]
    assert (other["fingerprint"], other["state"], other["origins"]) == (NULL, "resolved", ["mails"])
    code, table, _ = dlq("failures", "show", TIMEOUT, "-o", "table")
    assert code == 0
    assert "other failures with the same exception (1), each for itself:" in table
    assert "orders and stock" in dlq("failures", "ls", "-o", "table")[1]
