"""Which letters a command is about: short ids, and the options that commands share."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.archives import MINUTE, letter, write_analysis, write_segment
from support.builders import Dlq, rows
from support.rows import each_row

from dlq.archive.storage.store import LocalStore
from dlq.core.clock import from_iso, now
from dlq.core.errors import UsageError
from dlq.operations.reading.selecting import Selection, read_moment

A, B, C, D = ("aaaaaaaa" + "1" * 24, "aaaaaaaa" + "2" * 24, "c" * 32, "d" * 32)


@pytest.fixture
def dlq(dlq: Dlq, store: LocalStore) -> Dlq:
    """`dlq` in a folder with four letters in two sources; A and B are an incident, C just died."""
    stock = {"source": "stock", "dead_letter_queue": "stock.dlq"}
    died = [letter(3, record_id=C, **stock, dead_at=now() - MINUTE), letter(4, record_id=D, **stock)]
    write_segment(store, "p-0", [letter(1, record_id=A), letter(2, record_id=B)])
    write_segment(store, "q-0", died)
    names, known = (
        ("record_id", "source", "incident_id", "fingerprint"),
        {"cause": "expired", "advice": "replay"},
    )
    first, second = "20260101-abc", "20260102-abc"
    verdicts = [(A, "orders", first, "f1f1"), (B, "orders", first, "f2f2"), (C, "stock", None, "f2f2"),
                (D, "stock", second, "e3e3")]  # fmt: skip
    classified = [{**dict(zip(names, row, strict=True)), **known} for row in verdicts]
    lasted = dict.fromkeys(("start", "peak", "end"), MINUTE)
    incidents = [
        {"incident_id": name, "size": 1, "sources": ["orders"], "causes": ["expired"], **lasted}
        for name in (first, second)
    ]
    write_analysis(store, "20260101T000000", classified, incidents=incidents)
    return dlq


SELECTIONS = [
    (("--source", "orders"), {A, B}), (("--source", "orders", "--source", "stock"), {A, B, C, D}),
    (("--since", "1h"), {C}), (("--since", "1970-01-01T00:02:00Z"), {B, C, D}),
    (("--incident", "20260101"), {A, B}), (("--failure", "f2"), {B, C}),
    (("--failure", "f2", "--source", "stock"), {C}),
    (("--failure", "f2", "--where", f"record_id = '{B}' or true"), {B, C}),
    (("--where", "record_id = 'aaaaaaaa1'"), {A}),
    (("--where", "\"record_id\" IN ('aaaaaaaa1', 'CCCCCCCC')"), {A, C}),
    (("--where", "record_id not in ('aaaaaaaa1', 'cccccccc') and record_id <> 'dddddddd'"), {B}),
    (("--where", f"record_id in ('{A}', '{B}', 'cccccccc')"), {A, B, C}),
    (("--where", f"record_id = '{'e' * 32}'"), set()),
    (("--where", "coalesce(failure_text, '') <> 'record_id = ''ab'''"), {A, B, C, D}),
]  # fmt: skip


@pytest.mark.parametrize(("options", "expected"), SELECTIONS)
def test_each_command_is_about_what_is_selected(dlq: Dlq, options: Sequence[str], expected: set[str]) -> None:
    code, out, _err = dlq("ls", "--columns", "record_id", *options)
    assert (code, {row["record_id"] for row in rows(out)}) == (0, expected)
    code, out, _err = dlq("export", "-", *options)
    assert (code, {row["record"]["record_id"] for row in rows(out)}) == (0, expected)
    code, out, _err = dlq("replay", "plan", *options)
    assert (code, json.loads(out)["left_out"]) == (0, {"no_broker": len(expected)} if expected else {})
    code, out, _err = dlq("report", *options)
    report = json.loads(out)
    assert (code, report["letters"], report["counts"]["total"]) == (0, len(expected), len(expected))
    assert sum(row["letters"] for row in report["fingerprints"]) == len(expected)


def test_a_report_of_a_selection_says_so_and_its_next_steps_keep_to_it(dlq: Dlq) -> None:
    _code, out, _err = dlq("report", "--incident", "20260101-abc", "--where", "\"origin\" <> '$x' or true")
    report = json.loads(out)
    assert [row["incident_id"] for row in report["incidents"]] == ["20260101-abc"]
    assert report["selection"].endswith(" --incident 20260101-abc")
    assert json.loads(dlq("report")[1])["selection"] is None
    (plan,) = [step["command"] for step in report["next"] if "replay plan" in step["command"]]
    where = r"""(\"origin\" <> '\$x' or true) and advice = 'replay'"""
    assert plan == f'dlq replay plan --where "{where}" --incident 20260101-abc'


def test_a_report_of_a_selection_holds_in_every_format(dlq: Dlq) -> None:
    for name in ("terminal", "markdown", "html"):
        code, out, err = dlq("report", "--format", name, "--source", "orders")
        assert (code, err) == (0, "")
        assert "Only letters with --source orders." in out
        assert "stock.dlq" not in out


@each_row(("options", "said"), [
    (("--where", "record_id = 'aaaaaaaa'"), "aaaaaaaa is ambiguous"),
    (("--where", "record_id in ('bbbbbbbb')"), "no letter has the id bbbbbbbb"),
    (("--where", "record_id = 'abc'"), "8 or more"),
    (("--source", "order"), "did you mean 'orders'"),
    (("--incident", "2026"), "2026 is ambiguous: 20260101-abc, 20260102-abc"),
    (("--incident", "x"), "no incident of the latest analysis has the id x"),
    (("--failure", "x"), "no letter has the fingerprint x"),
    (("--since", "soon"), "neither a time"),
    (("--where", "cause = 'expired') or (true"), "not one SQL condition"),
    (("--since", "1h", "--where", "true) or (true"), "not one SQL condition"),
])  # fmt: skip
def test_what_is_not_there_is_refused_in_one_line(dlq: Dlq, options: Sequence[str], said: str) -> None:
    for command in (("ls",), ("report",), ("export", "-"), ("replay", "plan")):
        code, out, err = dlq(*command, *options)
        assert (code, out, err.count("\n")) == (2, "", 1), command
        assert said in err


def test_ids_and_options_exclude_each_other(dlq: Dlq) -> None:
    code, _out, err = dlq("replay", "plan", "cccccccc", "--source", "stock")
    assert (code, "chosen by id or with --source stock" in err) == (2, True)


@pytest.mark.parametrize(("odd", "asked"), [
    ("feedface' or record_id > '", ("ls", "--where", "record_id = 'feedface'")),
    ("feedface') or (record_id > '", ("ls", "--source", "orders", "--where", "record_id in ('feedface')")),
    ("feedface' or record_id > '", ("query", "select * from ls where record_id = 'feedface'")),
])  # fmt: skip
def test_a_letter_whose_id_is_sql_stands_for_itself_alone(
    dlq: Dlq, tmp_path: Path, odd: str, asked: Sequence[str]
) -> None:
    write_segment(LocalStore(str(tmp_path / "archive")), "r-0", [letter(5, record_id=odd)])
    _code, out, _err = dlq(*asked)
    assert [row["record_id"] for row in rows(out)] == [odd]


def test_query_takes_short_ids_too(dlq: Dlq) -> None:
    _code, out, _err = dlq("query", "select source from letters where record_id = 'cccccccc'")
    assert json.loads(out) == {"source": "stock"}


@each_row(("command", "expected"), [
    ('dlq ls --where "a"', "dlq ls --where \"(b = 'c') and a\" --since 1h --incident i"),
    ("dlq ls --incident j", "dlq ls --incident j --where 'b = '\"'\"'c'\"'\"'' --since 1h"),
    *((command, command) for command in ("dlq verify", "dlq analyze", 'dlq query "select 1"')),
])  # fmt: skip
def test_a_command_for_all_letters_becomes_one_for_these_where_it_can(command: str, expected: str) -> None:
    assert Selection(where="b = 'c'", since="1h", incident="i").narrow(command) == expected


def test_a_moment_is_a_time_or_a_duration_back_from_now_that_ends_at_the_epoch() -> None:
    assert read_moment("2026-11-02T03:00:00Z") == from_iso("2026-11-02T03:00:00Z")
    assert read_moment("24h") == pytest.approx(now() - 86_400_000_000, abs=5_000_000)
    assert read_moment("99999999999d") == 0
    with pytest.raises(UsageError, match="neither a time"):
        read_moment("soon")
