"""Segments that somebody changed, and names that mean to leave the archive: one line, never a traceback."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

LINE = '{"broker_kind": "rabbitmq", "queue": "q", "body_text": "x"}\n'


def imported(dlq: Callable[..., Any], folder: Path) -> Path:
    """The one segment of an archive."""
    (folder / "letters.jsonl").write_text(LINE)
    assert dlq("import", "letters.jsonl", "--source", "orders", "--no-analyze").code == 0
    [segment] = folder.glob("archive/segments/*/*/*.parquet")
    return segment


def change(segment: Path, column: str, instead: pa.Array | None) -> None:
    table = pq.ParquetFile(segment).read()
    at = table.schema.get_field_index(column)
    changed = table.remove_column(at)
    pq.write_table(changed if instead is None else changed.add_column(at, column, instead), segment)


@pytest.mark.parametrize("command", [("ls",), ("export", "out.jsonl"), ("replay", "plan"), ("analyze",)])
@pytest.mark.parametrize("column", ["body", "headers"])
def test_no_command_falls_over_a_column_of_another_type(
    dlq: Callable[..., Any], tmp_path: Path, column: str, command: tuple[str, ...]
) -> None:
    change(imported(dlq, tmp_path), column, pa.array([{"x": 1}]))
    said = dlq(*command)
    assert (said.code, said.err.count("\n")) == (3, 1)
    assert column in said.err
    assert "unexpected" not in said.err


@pytest.mark.parametrize("column", ["record_id", "body", "body_sha256"])
@pytest.mark.parametrize(
    "instead", [None, pa.array([5]), pa.array([{"x": 1}])], ids=["none", "int", "struct"]
)
def test_verify_names_a_segment_whose_columns_are_not_what_they_were(
    dlq: Callable[..., Any], tmp_path: Path, column: str, instead: pa.Array | None
) -> None:
    segment = imported(dlq, tmp_path)
    change(segment, column, instead)
    said = dlq("verify")
    assert said.code in (3, 6)
    assert segment.stem in said.err + said.out
    assert "unexpected" not in said.err
    assert "Traceback" not in said.err


@pytest.mark.parametrize("name", ["../x", "a//b", "/abs", "..", "a\nb", "\x1b[31m", "", "a/../../b", "a\\b"])
def test_a_source_of_no_sound_name_makes_no_key(dlq: Callable[..., Any], tmp_path: Path, name: str) -> None:
    (tmp_path / "letters.jsonl").write_text(LINE)
    said = dlq("import", "letters.jsonl", "--source", name)
    assert said.code == 2
    assert said.err.count("\n") == 1
    assert not list(tmp_path.rglob("*.parquet"))


def test_a_file_of_any_name_gives_its_letters_to_sound_keys(dlq: Callable[..., Any], tmp_path: Path) -> None:
    folder = tmp_path / "a b"
    folder.mkdir()
    odd = folder / "..\n..%2F\x1b[31m.jsonl"
    odd.write_text(LINE)
    assert dlq("import", str(odd), "--source", "orders").code == 0
    (tmp_path / "odd.toml").write_text(
        '[brokers.b]\nkind = "memory"\n[sources."../x"]\nbroker = "b"\nqueue = "q"\n'
    )
    assert dlq("-c", "odd.toml", "ls").code == 2
    names = [path.relative_to(tmp_path / "archive").as_posix() for path in (tmp_path / "archive").rglob("*")]
    assert all(json.dumps(name).isascii() and ".." not in name and "\n" not in name for name in names)
