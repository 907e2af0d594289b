"""One object in each output format: what a script reads of it is the same."""

import csv
import io
import json

import pytest

from dlq.cli.context import Context

DOCUMENT = {"records": 3, "problem": None, "states": {"held": 1}, "names": ("a", "b\u2028")}


@pytest.mark.parametrize("output", ["json", "jsonl"])
def test_json_holds_the_object(output: str, capfd: pytest.CaptureFixture[str]) -> None:
    Context(output_flag=output).emit(DOCUMENT)
    assert json.loads(capfd.readouterr().out) == json.loads(json.dumps(DOCUMENT))


def test_csv_holds_the_object_as_a_heading_and_one_row(capsys: pytest.CaptureFixture[str]) -> None:
    Context(output_flag="csv").emit(DOCUMENT)
    heading, row = csv.reader(io.StringIO(capsys.readouterr().out))
    assert heading == ["records", "problem", "states", "names"]
    assert row == ["3", "", '{"held": 1}', '["a", "b\u2028"]']


def test_a_table_is_drawn_by_the_command_itself(capsys: pytest.CaptureFixture[str]) -> None:
    Context(output_flag="table").emit(DOCUMENT, lambda: print("3 letters"))
    assert capsys.readouterr().out == "3 letters\n"
