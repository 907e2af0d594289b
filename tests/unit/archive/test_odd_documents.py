"""Whatever somebody writes into an archive's documents and cells, a command says which file is damaged.

Each field of each format gets each odd value; which command looks at it goes round, so that all of them meet
all formats.
"""

import json
import os
import socket
from collections.abc import Callable, Iterator
from itertools import cycle, islice, product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.archives import CREATED, letter, parquet, write_analysis, write_segment
from support.rows import each_row

from dlq.analyzers import topology
from dlq.archive import analyses, losses, manifests, schema
from dlq.archive.storage.store import LocalStore
from dlq.cli.app import run
from dlq.core.errors import ArchiveError, UsageError
from dlq.core.settings import Ledger, Settings
from dlq.replay.ledger import as_arrow, opened
from dlq.replay.plans import planfile

ODD = (
    "null", "true", "-1", "0.5", "1e999", "NaN", str(10**400), '""', '"x"', '"\\ud800"', '"../x"',
    '"\\u0000"', "[]", "[null]", "[[]]", "{}", '{"x": null}', '{"x": {}}', '{"": [1]}',
)  # fmt: skip
_STEP = 11
"""Each so many variants meet a command."""
PLAN = "20261121T000000-abcd"
HEADER = {
    "format": 1, "plan": PLAN, "created_at": CREATED, "where": None, "to": "origin", "letters": 1,
    "rate": None, "keep_headers": False, "witness": False, "any_advice": False,
    "targets": {"queue:orders": 1}, "left_out": {}, "stripped": {}, "warnings": {}, "audience": {},
    "brokers": {"shop": 1}, "segments": {"p-0": "x"}, "edits": None, "digest": "x",
    "actor": "ann", "reason": "y",
}  # fmt: skip
LETTER = {
    "record_id": letter(1).record_id, "key": "ab" * 16, "lap": 1, "broker": "shop", "segment": "p-0",
    "row": 0, "target": ["queue", "orders", ""],
}  # fmt: skip
TOPOLOGY = {
    "format": 1, "source": "orders", "broker": "shop", "reads": {"queue": "orders.dlq"},
    "delivery_limits": {"orders": 3}, "alternate_exchanges": ["a"],
    "dead_letter_exchanges": {"orders": "dlx"}, "diverts": ["d"], "places_of_the_dead": {"a": ["b", "c"]},
    "max_delivery_attempts": {"a": 1}, "killed_none": {"a": 1},
    "brokers": {"n": {"file_reserved_hours": 48, "check_interval_ms": 1, "index": True}},
    "message_ttl": 1000,
}  # fmt: skip
LOSS = {
    "format": 1, "event": "found", "source": "orders", "at": CREATED,
    "missing": [{"place": "orders.dlq 0", "first": 5, "end": 9, "log": ""}], "read_at": CREATED,
    "reason": None, "actor": None,
}  # fmt: skip
RAMP = {"format": 1, "steps": [{"sent": 1, "came_back": 0, "evidence": "consumed"}], "stopped_by": None}
SETTINGS = """
[brokers.shop]
kind = "memory"
[sources.orders]
broker = "shop"
queue = "orders.dlq"
[retain]
max_age = "1d"
states = ["waiting"]
"""
COMMANDS = (
    ["ls"], ["show", letter(1).record_id], ["query", "select * from letters"], ["report"], ["verify"],
    ["incidents"], ["analyze"], ["failures"], ["retain", "--compact"], ["retain", "--apply", "--compact"],
    ["export", "-"],
    ["replay", "plan", "--any-advice"], ["replay", "status"], ["replay", "status", PLAN],
    ["replay", "apply", PLAN], ["replay", "reconcile", PLAN],
    ["dismiss", "--lost", "orders", "--reason", "x"],
    ["dismiss", letter(1).record_id, "--reason", "x"],
)  # fmt: skip
KINDS: dict[str, tuple[str, Callable[[LocalStore], object]]] = {
    "manifest": ("manifests/p-0.json", lambda store: list(manifests.list_committed(store))),
    "analysis": ("analyses/20260101T000000/analysis.json", analyses.latest),
    "plan": (f"plans/{PLAN}.jsonl", lambda store: planfile.load(store, PLAN)),
    "letter of a plan": (f"plans/{PLAN}.jsonl", lambda store: list(planfile.letters(store, PLAN))),
    "topology": ("topology/20261121T000000-p.json", lambda store: topology.facts(store, Settings())),
    "bounds": (f"plans/{PLAN}.shop.bounds.json", lambda store: planfile.bounds_of(store, PLAN, "shop")),
    "ramp": (f"plans/{PLAN}.ramp.json", lambda store: planfile.ramp_of(store, PLAN)),
    "note of the ledger": ("ledger.json", lambda store: as_arrow(Ledger(), store)),
    "state of a run": ("runs/nightly.json", lambda store: None),
    "loss": ("losses/20261121T000000-abcd.json", losses.read_losses),
    "what was said of a loss": ("losses/20261122T000000-abcd.json", losses.read_losses),
}
"""Kind of document -> where it lies, and what reads it."""
FILES = {kind: file for kind, (file, _) in KINDS.items()}


@pytest.fixture
def store(store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalStore:
    monkeypatch.chdir(tmp_path)
    # Thousands of documents need not outlive a power cut, and on a busy disk each would cost 40 ms.
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)
    (tmp_path / "dlq.toml").write_text(SETTINGS)
    fill(store)
    return store


def fill(store: LocalStore) -> None:
    """One document of each format."""
    write_segment(store, "p-0", [letter(1)])
    write_analysis(store, "20260101T000000", [{"record_id": letter(1).record_id, "cause": "expired"}])
    store.put(FILES["plan"], json.dumps(HEADER).encode() + b"\n" + json.dumps(LETTER).encode() + b"\n")
    store.put(FILES["topology"], json.dumps(TOPOLOGY).encode())
    store.put(FILES["bounds"], json.dumps({"format": 1, "bounds": {"q": 1}}).encode())
    store.put(FILES["ramp"], json.dumps(RAMP).encode())
    store.put(FILES["state of a run"], json.dumps({"format": 1, "last_success": 1.0}).encode())
    store.put(FILES["loss"], json.dumps(LOSS).encode())
    dismissed = {**LOSS, "event": "dismissed", "missing": [], "reason": "x", "actor": "ann"}
    store.put(FILES["what was said of a loss"], json.dumps(dismissed).encode())
    with opened(Ledger(), store):
        pass


def document(store: LocalStore, kind: str) -> dict[str, Any]:
    if kind == "letter of a plan":
        return LETTER
    text = store.get(FILES[kind])
    return dict(json.loads(text.splitlines()[0] if kind == "plan" else text))


def spoiled(fields: dict[str, Any], name: str, odd: str) -> bytes:
    """The document with the field as this JSON text, which json.dumps would not write."""
    others = {key: value for key, value in fields.items() if key != name}
    return json.dumps(others)[:-1].encode() + f"{', ' if others else ''}{json.dumps(name)}: {odd}}}".encode()


def variants(store: LocalStore, kind: str) -> Iterator[bytes]:
    fields = document(store, kind)
    for name in fields:
        yield from (spoiled(fields, name, odd) for odd in ODD)
        yield json.dumps({key: value for key, value in fields.items() if key != name}).encode()
    deep = "[" * 500 + "]" * 500
    yield from (b"", b"{", b"[]", b"5", b"\xff", b"[" * 100_000, b"[" * 100_000 + b"]" * 100_000)
    yield from (
        spoiled(fields, name, odd) for name, odd in (("surplus", "1"), ("format", deep), ("surplus", deep))
    )


def whole(kind: str, document: bytes) -> bytes:
    if kind == "letter of a plan":
        return json.dumps(HEADER).encode() + b"\n" + document + b"\n"
    return document + b"\n" + json.dumps(LETTER).encode() + b"\n" if kind == "plan" else document


@pytest.mark.parametrize("kind", FILES)
def test_an_odd_document_is_read_or_named(store: LocalStore, kind: str) -> None:
    faults: list[str] = []
    for variant in list(variants(store, kind)):
        store.put(FILES[kind], whole(kind, variant))
        try:
            KINDS[kind][1](store)
        except (ArchiveError, UsageError) as error:  # the second: a newer format, or another ledger
            unnamed = [] if PLAN in str(error) or FILES[kind] in str(error) else [str(error)]
            faults += unnamed if isinstance(error, ArchiveError) else []
    assert faults == []


@pytest.mark.parametrize("kind", FILES)
def test_an_odd_document_ends_no_command(
    store: LocalStore, kind: str, capfd: pytest.CaptureFixture[str]
) -> None:
    faults = []
    for variant, command in zip(list(variants(store, kind))[::_STEP], cycle(COMMANDS), strict=False):
        store.put(FILES[kind], whole(kind, variant))
        code = run(command)
        said = capfd.readouterr().err
        if code not in (0, 2, 3, 6) or "Traceback" in said:
            faults.append((variant[-80:], command, code, said))
        if command[:2] == ["retain", "--apply"] or command[0] in ("analyze", "dismiss"):
            fill(store)
    assert faults == []


@each_row("named", ["../../outside", "/etc/passwd", "..", "orders.db\n/x"])
def test_a_plan_that_names_things_outside_reaches_none(
    store: LocalStore, tmp_path: Path, capfd: pytest.CaptureFixture[str], named: str
) -> None:
    plans = [
        ({**HEADER, "plan": named}, LETTER),
        ({**HEADER, "segments": {named: "x"}}, {**LETTER, "segment": named}),
        ({**HEADER, "brokers": {named: 1}}, {**LETTER, "broker": named}),
        ({**HEADER, "edits": "x", "plan": named}, LETTER),
    ]
    (tmp_path / "outside.shop.bounds.json").write_text('{"format": 1, "bounds": {}}')
    (tmp_path / "outside.parquet").write_bytes(b"PAR1")
    before = outside(tmp_path)
    for header, line in plans:
        store.put(FILES["plan"], json.dumps(header).encode() + b"\n" + json.dumps(line).encode() + b"\n")
        for command in ("status", "apply", "reconcile", "stop", "approve"):
            assert run(["replay", command, PLAN]) in (0, 2, 3, 4, 6)
            assert run(["replay", command, named]) in (2, 3)
            assert "Traceback" not in capfd.readouterr().err
    assert outside(tmp_path) == before


@each_row("path", ["../../outside.db", "/etc/passwd", "/dev/zero", "/nowhere/ledger.db", "x\0y"])
def test_a_note_of_a_ledger_outside_reaches_nothing(
    store: LocalStore, tmp_path: Path, capfd: pytest.CaptureFixture[str], path: str
) -> None:
    (tmp_path / "outside.db").write_text("mine")
    Path(store.location, "ledger.db").unlink(missing_ok=True)
    note = {"format": 1, "host": socket.gethostname(), "path": path}
    store.put("ledger.json", json.dumps(note).encode())
    before = outside(tmp_path)
    for command in (*COMMANDS, ["ledger", "move"], ["ledger", "move", "--from", path]):
        assert run(command) in (0, 2, 3, 6), command
        assert "Traceback" not in capfd.readouterr().err
    assert outside(tmp_path) == before


def outside(folder: Path) -> dict[str, tuple[int, bytes]]:
    """All files but those of the archive, with when they were changed and what is in them."""
    files = (path for path in folder.rglob("*") if path.is_file() and "archive" not in path.parts)
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


def test_an_empty_cell_ends_no_command(store: LocalStore, capfd: pytest.CaptureFixture[str]) -> None:
    commands, faults = cycle(COMMANDS), []
    for field in schema.SEGMENT:
        inner = [("x", None)] if pa.types.is_map(field.type) else [None]
        is_nested = pa.types.is_map(field.type) or pa.types.is_list(field.type)
        odd = [pa.nulls(1, field.type), *([pa.array([inner], field.type)] if is_nested else [])]
        for cell, command in product(odd, islice(commands, _STEP // 2)):
            put_cell(store, field.name, lambda _field, cell=cell: cell)  # type: ignore[misc]
            code = run(command)
            said = capfd.readouterr().err
            if code not in (0, 2, 3, 6):
                faults.append((field.name, command, code, said))
            fill(store)
    assert faults == []


ANALYSED: dict[str, Any] = {
    "incident_id": "20260101-0000-x", "record_id": letter(1).record_id, "record_ids": [letter(1).record_id],
    "first_record_id": letter(1).record_id, "real_record_id": letter(1).record_id, "source": "orders",
    "sources": ["orders"], "cause": "expired", "causes": ["expired"], "advice": "replay",
    "fingerprint": "ab" * 8, "state": "pending", "duplicate_group": "g",
}  # fmt: skip


def full(table: str) -> dict[str, Any]:
    """A row of a table of an analysis with every cell filled."""
    filled: dict[str, Any] = {"string": "x", "bool": True, "timestamp[us, tz=UTC]": 10**15}
    return {
        field.name: ANALYSED.get(
            field.name, filled.get(str(field.type), ["x"] if "list" in str(field.type) else 1)
        )
        for field in analyses.TABLES[table]
    }


@pytest.mark.parametrize("table", analyses.TABLES)
def test_empty_cells_of_an_analysis(store: LocalStore, capfd: pytest.CaptureFixture[str], table: str) -> None:
    faults = []
    for field in analyses.TABLES[table]:
        rows = {name: [full(name)] for name in analyses.TABLES}
        rows[table][0][field.name] = None
        write_analysis(store, "20260101T000000", **rows)
        code = run(["report", "--format", "html", "--out", "report.html"])
        said = capfd.readouterr().err
        if code not in (0, 3, 6):
            faults.append((field.name, code, said))
    assert faults == []


def put_cell(store: LocalStore, name: str, cell: Callable[[pa.Field], pa.Array]) -> None:
    """The only letter of the archive has this in one of its columns."""
    table, field = schema.to_table([letter(1)]), schema.SEGMENT.field(name)
    spoiled = table.set_column(table.schema.get_field_index(name), field, cell(field))
    store.put("segments/source=orders/date=2026-11-21/p-0.parquet", parquet(spoiled))


@each_row("headers, mask", product([None, [("x", None)]], [[], ["--mask"]]))
def test_headers_that_are_none_end_no_report_with_letters(
    store: LocalStore, capfd: pytest.CaptureFixture[str], headers: Any, mask: list[str]
) -> None:
    put_cell(store, "headers", lambda field: pa.array([headers], field.type))
    assert run(["report", "--format", "html", "--out", "report.html", *mask]) in (0, 3), capfd.readouterr()
    assert Path("report.html").exists()


def test_a_text_of_a_segment_that_is_none_is_named(
    store: LocalStore, capfd: pytest.CaptureFixture[str]
) -> None:
    bad = pa.array([b"\xff\xfe"]).buffers()
    put_cell(store, "correlation_id", lambda _field: pa.Array.from_buffers(pa.string(), 1, bad))
    assert run(["replay", "plan", "--any-advice"]) == 3
    assert "p-0.parquet in the archive: its column correlation_id is damaged" in capfd.readouterr().err
    assert run(["export", "-"]) == 3
    assert "cannot read the archive: Invalid string encoding" in capfd.readouterr().err
