"""dlq dismiss: what it closes, what it leaves, and what the other commands make of it."""

import json
from pathlib import Path

import pytest
from support.archives import letter, write_analysis, write_segment
from support.builders import Dlq, rows
from support.rows import each_row

from dlq.archive.storage.store import LocalStore

IDS = [f"{number:x}" * 32 for number in range(1, 7)]


@pytest.fixture
def dlq(dlq: Dlq, store: LocalStore) -> Dlq:
    """`dlq` in a folder with six letters, four of them expired and two unknown."""
    write_segment(store, "p-0", [letter(n, record_id=one) for n, one in enumerate(IDS)])
    causes = ["expired"] * 4 + ["unknown"] * 2
    verdicts = [{"record_id": one, "cause": cause} for one, cause in zip(IDS, causes, strict=True)]
    write_analysis(store, "20260101T000000", [{**one, "advice": "replay"} for one in verdicts])
    return dlq


def test_dismissed_letters_are_closed_everywhere_and_open_again_after_undo(dlq: Dlq) -> None:
    code, out, _err = dlq("dismiss", "--where", "cause = 'unknown'", "--reason", "test traffic")
    assert (code, json.loads(out)) == (0, {"dismissed": 2, "known": 0})
    state = "select replay_state, detail from letters join replays using (record_id)"
    found = rows(dlq("query", state)[1])
    assert [row["replay_state"] for row in found] == ["dismissed"] * 2
    assert all(row["detail"].startswith("test traffic (") for row in found)
    report = json.loads(dlq("report")[1])
    counts = {name: report["counts"][name] for name in ("total", "open", "unknown", "dismissed", "expired")}
    assert counts == {"total": 4, "open": 4, "unknown": 0, "dismissed": 2, "expired": 4}
    assert sum(row["waiting"] for row in report["advice"]) == 4
    assert dlq("report", "--fail-on", "unknown > 0")[0] == 0
    assert json.loads(dlq("replay", "plan")[1])["left_out"] == {"dismissed": 2, "no_broker": 4}
    assert "2 dismissed" in dlq("report", "--format", "terminal")[1]
    assert json.loads(dlq("dismiss", "--undo", "--where", "true")[1]) == {"reopened": 2, "known": 4}
    assert json.loads(dlq("replay", "plan")[1])["left_out"] == {"no_broker": 6}
    assert dlq("report", "--fail-on", "unknown > 0")[0] == 5


def test_the_books_balance_with_dismissed_letters_and_show_says_who_closed_one_and_why(dlq: Dlq) -> None:
    dlq("dismiss", IDS[0][:8], "--reason", "stale \x1b[2J prices")
    (source,) = rows(dlq("verify", "-o", "jsonl")[1])
    assert (source["captured"], source["dismissed"], source["waiting"]) == (6, 1, 5)
    _code, out, _err = dlq("-o", "table", "show", IDS[0][:8])
    assert "stale \\x1b[2J prices" in out
    assert f"dlq dismiss {IDS[0][:12]} --undo" in out


def test_a_second_dismissal_changes_nothing(dlq: Dlq) -> None:
    dlq("dismiss", IDS[0], "--reason", "first")
    code, out, err = dlq("dismiss", IDS[0], IDS[1], "--reason", "second")
    assert (code, json.loads(out)) == (0, {"dismissed": 1, "known": 1})
    assert err == "1 letter left alone: dismissed before, sent, or set aside\n"
    told = dlq("query", f"select detail from replays where record_id = '{IDS[0]}'")[1]
    assert json.loads(told)["detail"].startswith("first (")


def test_where_no_letter_is_chosen_nothing_is_counted(dlq: Dlq) -> None:
    for words, verb in ((["--reason", "x"], "dismissed"), (["--undo"], "reopened")):
        code, out, _err = dlq("-o", "json", "dismiss", "--where", "false", *words)
        assert (code, json.loads(out)) == (0, {verb: 0, "known": 0})
    assert dlq("-o", "table", "dismiss", "--where", "false", "--undo")[1] == "0 letters open again\n"


@each_row(("arguments", "told"), [
    (["--reason", "x"], "no letters are chosen"),
    ([IDS[0]], "say why they need no replay"),
    ([IDS[0], "--reason", " "], "say why they need no replay"),
    ([IDS[0], "--source", "orders", "--reason", "x"], "by id or with"),
    (["ffffffff", "--reason", "x"], "no letter has the id"),
    (["--where", "caus = 'x'", "--reason", "x"], "did you mean 'cause'"),
])  # fmt: skip
def test_a_mistake_closes_nothing(dlq: Dlq, tmp_path: Path, arguments: list[str], told: str) -> None:
    code, out, err = dlq("dismiss", *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert told in err
    assert not (tmp_path / "archive/ledger.db").exists()
