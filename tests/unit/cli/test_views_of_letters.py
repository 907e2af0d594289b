"""ls, show, query and report as commands: what they print, where, and how they end."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.archives import letter, write_analysis, write_segment
from support.builders import Dlq, rows
from support.rows import each_row

from dlq.archive.storage.store import LocalStore

LETTERS = [letter(n, body=f"body {n}".encode(), headers={"h": "\x1b[2J"}) for n in range(1, 8)]


@pytest.fixture
def dlq(dlq: Dlq, store: LocalStore) -> Dlq:
    """`dlq` in a folder with an archive of seven letters, five of them classified."""
    write_segment(store, "p-0", LETTERS)
    said = {"cause": "expired", "advice": "replay"}
    write_analysis(store, "20260101T000000", [{"record_id": one.record_id, **said} for one in LETTERS[:5]])
    return dlq


def test_ls_gives_a_pipe_one_object_a_letter_the_newest_first_as_many_as_are_wanted(dlq: Dlq) -> None:
    code, out, err = dlq("ls")
    assert (code, err) == (0, "")
    assert [row["record_id"] for row in rows(out)] == [record.record_id for record in reversed(LETTERS)]
    assert len(rows(out)[0]) == 21
    _code, out, err = dlq("ls", "--limit", "3")
    assert (len(rows(out)), err) == (3, "3 of 7 letters shown; --limit 0 shows all\n")
    assert len(rows(dlq("ls", "--limit", "0")[1])) == 7


def test_ls_chooses_columns_and_letters(dlq: Dlq) -> None:
    where = "cause = 'expired' and body_size = 0"
    _code, out, _err = dlq("-o", "csv", "ls", "--columns", "advice,headers", "--where", where, "--limit", "1")
    assert out.splitlines() == ["advice,headers", 'replay,"{""h"": ""\\u001b[2J""}"']


def test_a_terminal_gets_no_control_character(dlq: Dlq) -> None:
    out = dlq("-o", "table", "ls", "--columns", "record_id,headers")[1]
    assert ("\x1b" in out, "\\u001b[2J" in out) == (False, True)
    shown = dlq("-o", "table", "show", LETTERS[0].record_id, "--mask")[1]
    assert ("\x1b" in shown, "expired: its time to live ran out" in shown) == (False, True)


def test_ls_shows_cause_and_failure_on_a_narrow_terminal(dlq: Dlq, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    head, *rows = dlq("-o", "table", "ls")[1].splitlines()
    assert head.split() == ["record_id", "dead_at", "source", "cause", "failure"]
    assert rows[-1].split() == ["0" * 12, "01-01", "00:01", "orders", "expired"]


def test_ls_shows_on_a_narrow_terminal_what_became_of_replays(
    dlq: Dlq, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert dlq("dismiss", LETTERS[0].record_id, "--reason", "test")[0] == 0
    head, *rows = dlq("-o", "table", "ls")[1].splitlines()
    assert head.split()[-1] == "replay_state"
    assert rows[-1].split()[-1] == "dismissed"


@pytest.mark.parametrize(
    ("kind", "failure"), [("rabbitmq", "rejected by the consumer in orders"), ("activemq", "in orders")]
)
def test_ls_calls_a_reject_by_the_word_of_its_broker(
    dlq: Dlq, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str, failure: str
) -> None:
    monkeypatch.setenv("DLQ_ARCHIVE", str(tmp_path / "rejects"))
    store = LocalStore(str(tmp_path / "rejects"))
    write_segment(store, "p-0", [letter(1, broker_kind=kind)])
    verdict = {"record_id": letter(1).record_id, "cause": "poison_ack", "origin": "orders"}
    write_analysis(store, "20260101T000000", [verdict])
    assert f" poison_ack  {failure}" in dlq("-o", "table", "ls")[1]


def test_no_letter_that_is_as_wanted_is_said_so(dlq: Dlq) -> None:
    assert dlq("ls", "--where", "cause = 'overflow'") == (0, "", "no letters\n")


@each_row(("arguments", "told"), [
    (["ls", "--where", "caus = 'x'"], "unknown column 'caus' here; did you mean 'cause'?"),
    (["ls", "--columns", "caus"], "unknown column 'caus' in --columns; did you mean 'cause'?"),
    (["ls", "--where", "true) OR (1=1) ORDER BY (1"], "is not one SQL condition"),
    (["query", "DELETE FROM records"], "exactly one SELECT"),
    (["query", "SELECT nope FROM letters"], "unknown column 'nope'"),
    (["query", "SELECT * FROM read_text('/etc/passwd')"], "only the archive's views can be read"),
    (["ls", "--where", "body like '%x%'"], "as text it is try(decode(body))"),
    (["show", "0000"], "give 8 or more"),
    (["show", "ffffffff"], "no letter has the id"),
    (["show", "0" * 20], "ambiguous"),
    (["report", "--fail-on", "unknwn > 1"], "did you mean 'unknown'"),
    (["report", "--format", "marcdown"], "did you mean 'markdown'"),
    (["report", "--compare", "2020"], "no analysis '2020'"),
])  # fmt: skip
def test_a_mistake_is_one_line_and_exit_2(dlq: Dlq, arguments: list[str], told: str) -> None:
    code, out, err = dlq(*arguments)
    assert (code, out) == (2, "")
    assert told in err
    assert err.count("\n") == 1


def test_query_reads_sql_from_stdin(dlq: Dlq, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "q.sql").write_text("select cause, count(*) as n from letters group by 1 order by 2")
    monkeypatch.setattr("sys.stdin", (tmp_path / "q.sql").open())
    assert rows(dlq("query", "-")[1]) == [{"cause": None, "n": 2}, {"cause": "expired", "n": 5}]
    same = "select 1 as a, 2 as a, 3 as a_1, 4 as a"
    assert rows(dlq("query", same)[1]) == [{"a": 1, "a_1": 2, "a_1_1": 3, "a_2": 4}], (
        "no column hides another"
    )
    (tmp_path / "q.sql").write_bytes(b"select '\xff'")
    monkeypatch.setattr("sys.stdin", (tmp_path / "q.sql").open(errors="surrogateescape"))
    assert dlq("query", "-") == (2, "", "dlq: SQL is not UTF-8; write it in UTF-8\n")


def test_letters_that_no_analysis_has_classified_have_no_cause_and_no_analysis(
    dlq: Dlq, store: LocalStore
) -> None:
    found = rows(dlq("ls")[1])
    assert [(row["cause"], row["analysis"]) for row in found[:3]] == [
        (None, None), (None, None), ("expired", "20260101T000000"),
    ]  # fmt: skip
    assert json.loads(dlq("show", LETTERS[6].record_id)[1])["analysis"] is None
    assert rows(dlq("query", "select count(*) as n from ls where analysis is null")[1]) == [{"n": 2}]
    write_segment(store, "q-0", [letter(9, source="more")])
    told = dlq("-o", "table", "ls")[2].splitlines()[-1]
    assert told == "8 letters have no verdict yet: dlq analyze"


@pytest.mark.parametrize("where", [None, "cause is null"])
def test_a_plan_leaves_out_what_no_analysis_has_classified(dlq: Dlq, where: str | None) -> None:
    code, out, err = dlq("replay", "plan", *(["--where", where] if where else []))
    assert (code, json.loads(out)["left_out"]["no_verdict"]) == (0, 2)
    assert "have no verdict yet: dlq analyze" in err


def test_a_report_counts_letters_without_a_verdict_as_such(dlq: Dlq) -> None:
    document = json.loads(dlq("report", "--fail-on", "unknown > 0")[1])
    assert {row["cause"]: row["letters"] for row in document["causes"]} == {"expired": 5, "no_verdict": 2}
    assert document["counts"]["no_verdict"] == 2
    assert "2 have no verdict yet" in dlq("-o", "table", "report")[1]


def test_a_report_before_any_analysis(dlq: Dlq, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_segment(LocalStore(str(tmp_path / "new")), "p-0", LETTERS)
    monkeypatch.setenv("DLQ_ARCHIVE", str(tmp_path / "new"))
    for format_ in ("terminal", "json", "markdown", "html"):
        code, out, _err = dlq("report", "--format", format_)
        assert (code, "no_verdict" in out) == (0, True)
    refused = "dlq: --fail-on needs an analysis, and there is none: run dlq analyze\n"
    assert dlq("report", "--fail-on", "total > 0") == (2, "", refused)
    empty = str(tmp_path / "empty")
    monkeypatch.setenv("DLQ_ARCHIVE", empty)
    told = f"the archive {empty} is empty: dlq pull or dlq import fills it\n"
    assert dlq("report")[::2] == (2, f"dlq: {told}")
    assert told in dlq("ls")[2]


def test_show_gives_everything_as_json(dlq: Dlq) -> None:
    document = json.loads(dlq("-o", "json", "show", LETTERS[0].record_id)[1])
    assert (document["body_text"], document["headers"]) == ("body 1", {"h": "\x1b[2J"})
    assert document["cause_meaning"] == "its time to live ran out"


def test_a_passed_threshold_ends_with_5_and_says_which(dlq: Dlq) -> None:
    code, out, err = dlq("report", "--fail-on", "expired > 50%", "--fail-on", "total > 100")
    assert code == 5
    assert err == "dlq: --fail-on expired > 50%: expired is 71.4% (5 of 7)\n"
    assert json.loads(out)["letters"] == 7


def test_a_report_takes_its_format_from_its_file(dlq: Dlq, tmp_path: Path) -> None:
    assert dlq("report", "--out", "report.md")[:2] == (0, "")
    assert (tmp_path / "report.md").read_text().startswith("# Dead letters\n")


def test_a_terminal_that_knows_only_ascii_gets_its_report(dlq: Dlq, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "dlq.cli", "-o", "table", "report"]
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(words, cwd=tmp_path, env=ascii_only, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"7 dead letters in 1 source" in done.stdout


def test_without_the_ledger_looking_goes_on_and_what_depends_on_replays_is_refused(dlq: Dlq) -> None:
    (plan,) = rows(dlq("replay", "plan")[1])
    Path("archive", "ledger.json").write_text('{"format": 1}')
    show = ["show", LETTERS[0].record_id]
    for command in (["ls"], show, ["query", "FROM letters"], ["report"], ["export", "-"]):
        code, out, err = dlq(*command)
        assert (code, bool(out)) == (0, True), command
        assert err.startswith("dlq: what was replayed is not known here: the ledger of the archive ")
        assert "is ledger.db, which is gone" in err
    for command in (["retain"], ["replay", "status", str(plan["plan"])]):
        code, out, err = dlq(*command)
        assert (code, out, "is ledger.db, which is gone" in err) == (2, "", True), command
