"""dlq failures: what a team says of failures, and what the commands make of it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.archives import letter, write_analysis, write_segment
from support.builders import Dlq, rows

from dlq.archive.store import LocalStore
from dlq.core.clock import now

IDS = [f"{number:x}" * 32 for number in range(1, 5)]
TIMEOUT, NULL = "aa" * 16, "bb" * 16


@pytest.fixture
def store(store: LocalStore) -> LocalStore:
    """Three letters of one failure, one of another."""
    write_segment(store, "p-0", [letter(n, record_id=one) for n, one in enumerate(IDS)])
    analyze(store, dict.fromkeys(IDS[:3], TIMEOUT) | {IDS[3]: NULL}, "20260101T000000")
    return store


def analyze(store: LocalStore, fingerprints: dict[str, str], name: str) -> None:
    said = {"cause": "application_error", "advice": "replay", "exception_class": "java.lang.Boom"}
    verdicts = [{"record_id": one, "fingerprint": which, **said} for one, which in fingerprints.items()]
    write_analysis(store, name, verdicts)


@pytest.fixture
def dlq(dlq: Dlq, store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> Dlq:
    monkeypatch.setenv("COLUMNS", "300")
    return dlq


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


def test_all_that_was_said_stays_and_says_who_when_and_why(dlq: Dlq) -> None:
    dlq("failures", "assign", NULL, "ann", "--as", "bob")
    _code, _out, err = dlq("failures", "assign", NULL, "eve", "--as", "ann", "--reason", "holiday")
    assert "until now it was assigned to ann" in err
    dlq("failures", "assign", NULL, "--nobody", "--as", "eve")
    history = json.loads(dlq("failures", "show", NULL)[1])["history"]
    assert [(one["actor"], one["action"], one["value"], one["reason"]) for one in history] == [
        ("bob", "assign", "ann", ""),
        ("ann", "assign", "eve", "holiday"),
        ("eve", "assign", "", ""),
    ]
    assert all(one["at"].endswith("Z") for one in history)
    assert failures(dlq)[-1] == (NULL, "open", None)


@pytest.mark.parametrize("dead_at", [1, None])
def test_a_letter_that_dies_afterwards_regresses(dlq: Dlq, store: LocalStore, dead_at: int | None) -> None:
    """Of one that says no time it counts when it was pulled."""
    dlq("failures", "resolve", TIMEOUT, "--reason", "fixed in 2.4.1")
    assert failures(dlq)[-1] == (TIMEOUT, "resolved", None)
    later, again = now() + 1, "e" * 32
    write_segment(store, "p-1", [letter(9, record_id=again, dead_at=dead_at and later, captured_at=later)])
    analyze(store, dict.fromkeys([*IDS[:3], again], TIMEOUT) | {IDS[3]: NULL}, "20260102T000000")
    assert failures(dlq)[0] == (TIMEOUT, "regressed", None)
    dlq("failures", "reopen", TIMEOUT, "--reason", "not yet")
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
    died = {"dead_at": now() + 1, "captured_at": now() + 1}
    ids = dict.fromkeys(IDS[:3], TIMEOUT) | {IDS[3]: NULL}
    for n, (version, state) in enumerate([("2.4.0", "resolved"), ("2.4.1", "regressed")]):
        again = f"{n}e" * 16
        write_segment(
            store, f"p-{n}e", [letter(9, record_id=again, headers={"app-version": version}, **died)]
        )
        analyze(store, ids := ids | {again: TIMEOUT}, f"2026010{n + 2}T000000")
        assert (TIMEOUT, state, None) in failures(dlq)
        assert json.loads(dlq("report", "-o", "json")[1])["counts"]["regressed"] == (state == "regressed")
    assert "resolved_in       2.4.1" in dlq("failures", "show", TIMEOUT, "-o", "table")[1]


def test_ls_shows_how_failures_stand_once_somebody_has_spoken_of_one(dlq: Dlq) -> None:
    _code, out, _err = dlq("ls", "-o", "table")
    assert "state" not in out.splitlines()[0].split()
    dlq("failures", "snooze", NULL, "--until", "3d", "--reason", "known")
    _code, out, _err = dlq("ls", "-o", "table")
    head, *rows = out.splitlines()
    at = head.index(" state ")
    assert [row[at:].split()[0] for row in rows] == ["new", "new", "new", "snoozed"]
    assert rows[-1].startswith(IDS[3][:12])  # the newest of all


def test_incidents_of_snoozed_failures_alone_come_last(dlq: Dlq, store: LocalStore) -> None:
    verdicts = [
        {"record_id": one, "fingerprint": TIMEOUT if n < 3 else NULL, "incident_id": "i1" if n < 3 else "i2"}
        for n, one in enumerate(IDS)
    ]
    found = [{"incident_id": name, "size": 1, "sources": ["orders"], "causes": []} for name in ("i1", "i2")]
    write_analysis(store, "20260102T000000", verdicts, incidents=found)

    def stand() -> list[tuple[str, str]]:
        code, out, err = dlq("incidents", "-o", "json")
        assert code == 0, err
        return [(row["incident_id"], row["state"]) for row in json.loads(out)["incidents"]]

    assert stand() == [("i1", "new"), ("i2", "new")]
    dlq("failures", "snooze", TIMEOUT, "--until", "3d", "--reason", "known")
    assert stand() == [("i2", "new"), ("i1", "snoozed")]
    _code, out, _err = dlq("incidents", "-o", "table")
    assert out.index("i2") < out.index("i1")
    assert "snoozed" in out


def test_a_snoozed_failure_is_below_all_others_until_it_has_too_many_letters(dlq: Dlq) -> None:
    dlq("failures", "snooze", TIMEOUT, "--letters", "4", "--reason", "known")
    assert failures(dlq)[-1] == (TIMEOUT, "snoozed", None)
    dlq("failures", "snooze", TIMEOUT, "--letters", "3", "--reason", "known")
    assert failures(dlq)[-1] == (TIMEOUT, "open", None)
    dlq("failures", "snooze", NULL, "--until", "3d", "--reason", "known")
    assert failures(dlq)[-1] == (NULL, "snoozed", None)


@pytest.mark.parametrize(("words", "told"), [
    (["resolve", TIMEOUT], "say how it was fixed"),
    (["resolve", TIMEOUT, "--in", "next"], "--in next: not a version; write it like 2.4.1"),
    (["reopen", TIMEOUT], "say why"),
    (["note", TIMEOUT, " "], "a note says something"),
    (["snooze", TIMEOUT, "--reason", "x"], "a snooze needs an end"),
    (["snooze", TIMEOUT, "--until", "1h", "--letters", "3"], "a snooze needs an end"),
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


def test_a_failure_whose_letters_are_gone_keeps_its_history(dlq: Dlq, store: LocalStore) -> None:
    dlq("failures", "note", TIMEOUT, "remember")
    analyze(store, dict.fromkeys(IDS, NULL), "20260102T000000")
    shown = json.loads(dlq("failures", "show", TIMEOUT)[1])
    assert (shown["letters"], shown["note"]) == (0, "remember")


def test_each_step_names_the_next_one(dlq: Dlq) -> None:
    def told(*words: str) -> str:
        return dlq("-o", "table", "failures", *words)[2]

    assert "next: dlq failures assign aaaaaaaaaaaa" in told("show", TIMEOUT)
    assert "dlq replay plan --failure aaaaaaaaaaaa --fixed" in told("assign", TIMEOUT)
    assert "next:" not in told("snooze", TIMEOUT, "--until", "1d", "--reason", "x")
    dlq("failures", "assign", NULL)
    dlq("dismiss", "--failure", NULL, "--reason", "x")
    assert "next: dlq failures resolve" in told("show", NULL)


def test_each_step_tells_once_of_letters_without_a_verdict(dlq: Dlq, store: LocalStore) -> None:
    write_segment(store, "p-1", [letter(9, record_id="e" * 32)])
    for words in (("ls",), ("show", TIMEOUT), ("note", TIMEOUT, "x")):
        assert dlq("-o", "table", "failures", *words)[2].count("no verdict yet: dlq analyze") == 1


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
    both = [
        subprocess.Popen([*words, who, TIMEOUT], cwd=tmp_path, stdout=subprocess.DEVNULL)
        for who in ("ann", "bob")
    ]
    assert [one.wait() for one in both] == [0, 0]
    history = json.loads(dlq("failures", "show", TIMEOUT)[1])["history"]
    for who in ("ann", "bob"):
        mine = [one["reason"] for one in history if one["actor"] == who]
        assert mine == [f"{who} {number}" for number in range(8)]


def report(dlq: Dlq, *arguments: str) -> tuple[int, dict[str, Any]]:
    code, out, _err = dlq("report", *arguments)
    return code, json.loads(out)


def test_a_report_shows_who_has_a_failure_and_snoozed_ones_last(dlq: Dlq) -> None:
    _code, document = report(dlq)
    assert [row["state"] for row in document["fingerprints"]] == ["new", "new"]
    dlq("failures", "snooze", TIMEOUT, "--until", "1d", "--reason", "known", "--as", "ann")
    dlq("failures", "assign", NULL, "<b>bob|\x1b[2J</b>")
    _code, document = report(dlq)
    found = [(row["fingerprint"], row["state"], row["owner"]) for row in document["fingerprints"]]
    assert found == [(NULL, "open", "<b>bob|\x1b[2J</b>"), (TIMEOUT, "snoozed", None)]
    for format_ in ("terminal", "markdown", "html"):
        out = dlq("report", "--format", format_)[1]
        assert "snoozed" in out
        assert "\x1b[2J" not in out
        assert format_ == "terminal" or "<b>bob" not in out


def test_new_and_regressed_failures_are_thresholds(dlq: Dlq) -> None:
    assert report(dlq, "--fail-on", "new_failures > 0", "--fail-on", "regressed > 0")[0] == 5
    for one in (TIMEOUT, NULL):
        dlq("failures", "assign", one)
    code, document = report(dlq, "--fail-on", "new_failures > 0", "--fail-on", "regressed > 0")
    assert (code, document["counts"]["new_failures"], document["counts"]["regressed"]) == (0, 0, 0)


def test_a_regressed_failure_passes_its_threshold_and_stands_on_top(dlq: Dlq, store: LocalStore) -> None:
    dlq("failures", "resolve", NULL, "--reason", "fixed")
    again = "e" * 32
    write_segment(store, "p-1", [letter(9, record_id=again, dead_at=now() + 1)])
    analyze(store, dict.fromkeys(IDS[:3], TIMEOUT) | dict.fromkeys([IDS[3], again], NULL), "20260102T000000")
    code, document = report(dlq, "--fail-on", "regressed > 0")
    assert (code, document["fingerprints"][0]["fingerprint"]) == (5, NULL)
    assert [row["regressed"] for row in document["sources"]] == [1]
    assert "came back" in document["next"][0]["why"]


def test_no_failure_is_called_the_most_frequent_while_somebody_has_a_more_frequent_one(dlq: Dlq) -> None:
    assert report(dlq)[1]["next"][0]["why"] == "an example of the most frequent failure, 3 letters"
    dlq("failures", "assign", TIMEOUT)
    assert report(dlq)[1]["next"][0]["why"] == "an example of the most frequent new failure, 1 letter"


def test_nobody_is_sent_to_failures_that_need_nobody(dlq: Dlq) -> None:
    assert any(step["command"].startswith("dlq show") for step in report(dlq)[1]["next"])
    dlq("failures", "resolve", TIMEOUT, "--reason", "fixed")
    dlq("failures", "snooze", NULL, "--until", "3d", "--reason", "known")
    assert not any(step["command"].startswith("dlq show") for step in report(dlq)[1]["next"])


def test_a_snoozed_failure_raises_no_alarm(dlq: Dlq) -> None:
    bounds = ("--fail-on", "total > 1", "--fail-on", "application_error > 1", "--fail-on", "fingerprints > 1")
    assert report(dlq, *bounds)[0] == 5
    dlq("failures", "snooze", TIMEOUT, "--letters", "4", "--reason", "known")
    code, document = report(dlq, *bounds)
    assert (code, document["counts"]["total"], document["alarming"]["total"]) == (0, 4, 1)
    assert sum(row["open"] for row in document["sources"]) == 1
    part = ("--where", "attempts = 1")  # a part of the letters ends no snooze, and is counted alike
    assert report(dlq, *part, *bounds)[0] == 0
    assert report(dlq, "--failure", TIMEOUT, "--fail-on", "total > 0")[0] == 0


def test_a_failure_names_its_queues_and_others_of_its_exception(dlq: Dlq, store: LocalStore) -> None:
    told = {
        "cause": "application_error", "exception_class": "java.lang.Boom", "exception_message": "order {}",
    }  # fmt: skip
    verdicts = [
        {**told, "record_id": one, "fingerprint": which, "origin": queue, "exception_message": f"order {n}"}
        for n, (one, which, queue) in enumerate(
            zip(IDS, [TIMEOUT, TIMEOUT, NULL, "cc" * 16], ["stock", "orders", "mails", "bills"], strict=True)
        )
    ]
    verdicts[3]["exception_message"] = "no room"
    write_analysis(store, "20260103T000000", verdicts)
    dlq("failures", "resolve", NULL, "--reason", "mended there")
    shown = json.loads(dlq("failures", "show", TIMEOUT)[1])
    assert shown["origins"] == ["orders", "stock"]
    assert [(one["fingerprint"], one["state"], one["origins"]) for one in shown["same_exception"]] == [
        (NULL, "resolved", ["mails"])
    ]
    code, table, _ = dlq("failures", "show", TIMEOUT, "-o", "table")
    assert code == 0
    assert "other failures with the same exception (1), each for itself:" in table
    assert "orders and stock" in dlq("failures", "ls", "-o", "table")[1]
