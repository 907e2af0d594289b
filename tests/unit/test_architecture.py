"""The folders' import direction, and the packaging, as tests."""

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAY_IMPORT = {
    "core": set(),
    "connectors": {"core"},
    "archive": {"core"},
    "capture": {"core", "connectors", "archive"},
    "replay": {"core", "connectors", "archive"},
    "analyzers": {"core", "archive"},
    "reports": {"core", "archive", "analyzers", "replay"},
    "cli": {"core", "connectors", "archive", "capture", "replay", "analyzers", "reports"},
}
HEAVY = {"pyspark", "duckdb", "pika", "stomp", "sqlalchemy", "pandas", "pyarrow", "numpy", "jinja2"}


def rooms_imported_by(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return {name.split(".")[1] for name in names if name.startswith("dlq.")}


def modules(room: str) -> list[Path]:
    return sorted((ROOT / room).glob("*.py"))


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_arrows_point_one_way(room: str) -> None:
    assert modules(room)
    for path in modules(room):
        assert rooms_imported_by(path) <= MAY_IMPORT[room] | {room}, path.name


def test_an_import_turned_round_is_seen(tmp_path: Path) -> None:
    turned = tmp_path / "turned.py"
    turned.write_text("def f():\n    from dlq.cli import app\n    import dlq.replay.plan\n")
    assert rooms_imported_by(turned) == {"cli", "replay"}


def test_help_loads_no_heavy_library() -> None:
    code = "import sys; from dlq.cli.app import build; build(); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert HEAVY & set(loaded.split()) == set()


def test_every_room_is_packaged_and_linked_for_type_checkers() -> None:
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    rooms = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert {f"dlq.{room}" for room in rooms} == set(table["packages"])
    assert {f"dlq.{room}": room for room in rooms} == table["package-dir"]
    assert rooms == {link.name for link in (ROOT / "typings/dlq").iterdir()}
    assert all((ROOT / room / "py.typed").exists() for room in rooms)


def test_nothing_names_a_path_of_somebodys_machine() -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in tracked.split():
        text = (ROOT / name).read_bytes() if (ROOT / name).is_file() else b""
        for path in (b"/wor" + b"k/main", b"/ro" + b"ot/", b"../" + b"shared"):
            assert path not in text, name
