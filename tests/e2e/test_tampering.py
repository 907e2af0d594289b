"""Segments that somebody changed, and names that mean to leave the archive: one line, never a traceback."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from support.rows import each_row

Dlq = Callable[..., Any]
LINE = '{"broker_kind": "rabbitmq", "queue": "q", "body_text": "x"}\n'


def imported(dlq: Dlq, folder: Path) -> Path:
    """The one segment of an archive in a folder of its own."""
    folder.mkdir()
    (folder / "dlq.toml").write_text(f'archive = "{folder}/archive"\n')
    (folder / "letters.jsonl").write_text(LINE)
    words = ("import", f"{folder}/letters.jsonl", "--source", "orders", "--no-analyze")
    assert dlq("-c", f"{folder}/dlq.toml", *words).code == 0
    [segment] = folder.glob("archive/segments/*/*/*.parquet")
    return segment


def change(segment: Path, column: str, instead: pa.Array | None) -> None:
    table = pq.ParquetFile(segment).read()
    at = table.schema.get_field_index(column)
    changed = table.remove_column(at)
    pq.write_table(changed if instead is None else changed.add_column(at, column, instead), segment)


@each_row("column", ["body", "headers"])
def test_no_command_falls_over_a_column_of_another_type(dlq: Dlq, tmp_path: Path, column: str) -> None:
    change(imported(dlq, tmp_path / column), column, pa.array([{"x": 1}]))
    for words in ("ls", "export out.jsonl", "replay plan", "analyze"):
        said = dlq("-c", f"{column}/dlq.toml", *words.split())
        assert (said.code, said.err.count("\n")) == (3, 1), words
        assert column in said.err
        assert "unexpected" not in said.err


@each_row("column", ["record_id", "body", "body_sha256"])
@each_row("instead", [None, pa.array([5]), pa.array([{"x": 1}])])
def test_verify_names_a_segment_whose_columns_are_not_what_they_were(
    dlq: Dlq, tmp_path: Path, column: str, instead: pa.Array | None
) -> None:
    segment = imported(dlq, tmp_path / f"{column}-{instead and instead.type.num_fields}")
    change(segment, column, instead)
    said = dlq("-c", f"{segment.parents[4]}/dlq.toml", "verify")
    assert said.code in (3, 6)
    assert segment.stem in said.err + said.out
    assert "unexpected" not in said.err
    assert "Traceback" not in said.err


@each_row("name", ["../x", "a//b", "/abs", "..", "a\nb", "\x1b[31m", "", "a/../../b", "a\\b"])
def test_a_source_of_no_sound_name_makes_no_key(dlq: Dlq, tmp_path: Path, name: str) -> None:
    (tmp_path / "letters.jsonl").write_text(LINE)
    said = dlq("import", "letters.jsonl", "--source", name)
    assert said.code == 2
    assert said.err.count("\n") == 1
    assert not list(tmp_path.rglob("*.parquet"))


def test_a_file_of_any_name_gives_its_letters_to_sound_keys(dlq: Dlq, tmp_path: Path) -> None:
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
