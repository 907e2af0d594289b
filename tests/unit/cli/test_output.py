"""One object in each output format: what a script reads of it is the same."""

import csv
import io
import itertools
import json
from pathlib import Path

import pytest
from support.archives import letter, write_segment
from support.rows import each_row

from dlq.archive.storage.store import LocalStore
from dlq.cli.app import run
from dlq.cli.context import Context

DOCUMENT = {"records": 3, "problem": None, "states": {"held": 1}, "names": ("a", "b\u2028")}


def test_each_format_holds_the_object(capfd: pytest.CaptureFixture[str]) -> None:
    for output in ("json", "jsonl"):
        Context(output_flag=output).emit(DOCUMENT)
        assert json.loads(capfd.readouterr().out) == json.loads(json.dumps(DOCUMENT))
    Context(output_flag="csv").emit(DOCUMENT)
    heading, cells = csv.reader(io.StringIO(capfd.readouterr().out))
    assert heading == ["records", "problem", "states", "names"]
    assert cells == ["3", "", '{"held": 1}', '["a", "b\\u2028"]']
    Context(output_flag="table").emit(DOCUMENT, lambda: print("3 letters"))
    assert capfd.readouterr().out == "3 letters\n", "a table is drawn by the command itself"


def row(capsys: pytest.CaptureFixture[str], values: list[object], raw: bool = False) -> list[str]:
    Context(output_flag="csv", raw=raw).emit_rows(["c"] * len(values), [values])
    return list(csv.reader(io.StringIO(capsys.readouterr().out, newline="")))[1]


FORMULAS: list[object] = ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\tx", "\uff1d1"]


def test_no_cell_of_csv_is_a_formula(capsys: pytest.CaptureFixture[str]) -> None:
    assert row(capsys, FORMULAS) == [f"'{formula}" for formula in FORMULAS]
    others: list[object] = [-5, "-5", "+4915.5", "1e-5", -0.5, "a=b", "", None, {"a": 1}]
    assert row(capsys, others) == ["-5", "-5", "+4915.5", "1e-5", "-0.5", "a=b", "", "", '{"a": 1}']
    assert row(capsys, ["\x1b[2Jgone\nand\tmore"]) == ["\\x1b[2Jgone\nand\tmore"]


SIGNS = "=+-@\uff1d\uff0b\uff0d\uff20\ufe66\ufe62\ufe63\ufe6b\u2212"


@each_row("delimiter, sign", itertools.product(",;\t|", SIGNS))
def test_no_cell_is_a_formula_whatever_separates_cells(
    delimiter: str, sign: str, capsys: pytest.CaptureFixture[str]
) -> None:
    call = f"{sign}HYPERLINK(1)"
    parts = (
        call, f"a;{call}", f"a; {call}", f"a\t{call}", f"a|{call}", f'a;"{call}', f"a\n{call}", f" {call}",
    )  # fmt: skip
    Context(output_flag="csv").emit_rows(["c"] * 10, [[*parts, {"a": f"x;{call}"}, [f"x|{call}"]]])
    out = capsys.readouterr().out
    for quoting in (csv.QUOTE_MINIMAL, csv.QUOTE_NONE):
        for line in csv.reader(io.StringIO(out, newline=""), delimiter=delimiter, quoting=quoting):
            assert not any(cell.strip(' "').startswith(sign) for cell in line), line


def test_raw_csv_is_what_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert row(capsys, ["=1+1", "\x1b[2J"], raw=True) == ["=1+1", "\x1b[2J"]


def test_raw_stands_before_or_after_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    query = ("query", "select '=1+1' as a", "-ocsv")
    for words in (("--raw", *query), (*query, "--raw")):
        assert (run(words), capsys.readouterr().out) == (0, "a\n=1+1\n")


def test_a_report_goes_to_standard_output_by_the_name_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_segment(LocalStore("archive"), "p-0", [letter(1)])
    assert run(["report", "--format", "json", "--out", "-"]) == 0
    assert json.loads(capfd.readouterr().out)["letters"] == 1
    Path("dlq.toml").write_text('[brokers.shop]\nkind = "memory"\nurl = "memory://shop.db"\n')
    assert run(["coverage", "--svg", "-"]) == 2
    assert not Path("-").exists()
