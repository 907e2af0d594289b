"""The lowest versions of libraries that pyproject.toml allows are enough.

Nobody has them by chance, because installers take the newest; but a host on which another program holds a
library back gets just these, and finds out in a night when `dlq` is needed. So everything but
Spark is installed in its lowest version, and does its work without a broker.
"""

import json
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from support.environments import environment, install, release_script

ROOT = Path(__file__).parents[2]
DEPENDING = ("tls", "hostile_ledgers", "conditions", "openwire", "views", "user_sql", "cleartext", "metrics")
"""Words in the names of the test modules that depend most on what a library does."""
IMPORT_ALL = """
import dlq.core, importlib, json, pkgutil
folder = dlq.core.__path__[0].removesuffix("core")
missing = {}
for module in pkgutil.walk_packages([folder], "dlq."):
    if not module.name.endswith("__main__"):
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            missing[module.name] = error.name
print(json.dumps(missing))
"""
VERSIONS = """
import json, sys
from importlib.metadata import version
print(json.dumps([version(name) for name in sys.argv[1:]]))
"""
DEATH = {"reason": "rejected", "queue": "orders", "count": 1, "time": "2026-11-02T03:12:44Z"}
LETTER = {
    "broker_kind": "rabbitmq", "queue": "orders.dlq", "message_id": "order-1",
    "headers": {"x-death": [DEATH]}, "body_text": '{"order": 1}',
}  # fmt: skip


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of an environment with nothing but the lowest versions and `dlq`."""
    work = tmp_path_factory.mktemp("lowest")
    source: Path = release_script("dist").committed(work)
    (source / "pyproject.toml").write_bytes((ROOT / "pyproject.toml").read_bytes())
    lowest = ROOT / "requirements" / "lowest.txt"
    python = environment(work / "venv", "--requirements", lowest, locked=lowest)
    install(python, "--no-deps", source)
    install(python, "pytest", "pytest-timeout", "hypothesis", "prometheus-client")
    return python


def test_the_lowest_versions_are_installed(python: Path) -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    wanted = [Requirement(line) for line in listed]
    told = subprocess.check_output([python, "-c", VERSIONS, *(one.name for one in wanted)], text=True)
    lowest = [next(s.version for s in one.specifier if s.operator == ">=") for one in wanted]
    assert all(found.startswith(low) for found, low in zip(json.loads(told), lowest, strict=True)), told


def test_every_module_is_imported_but_for_those_of_spark(python: Path) -> None:
    missing = json.loads(subprocess.check_output([python, "-c", IMPORT_ALL], text=True))
    assert {name for name, library in missing.items() if library.partition(".")[0] != "pyspark"} == set()


def test_what_depends_most_on_libraries_works_with_them(python: Path) -> None:
    source = python.parents[2] / "source"
    modules = [p for p in (source / "tests/unit").rglob("test_*.py") if any(w in p.name for w in DEPENDING)]
    assert len(modules) >= len(DEPENDING)
    without = ["-p", "no:cacheprovider", "-p", "no:support.real_servers", "-p", "no:support.scheduling"]
    command = [python, "-m", "pytest", "-q", *without, *modules]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_letters_go_into_an_archive_are_shown_and_come_out(python: Path, tmp_path: Path) -> None:
    def dlq(*words: str) -> str:
        return subprocess.check_output([python.with_name("dlq"), *words], cwd=tmp_path, text=True)

    (tmp_path / "dlq.toml").touch()
    (tmp_path / "letters.jsonl").write_text(json.dumps(LETTER) + "\n")
    assert "Usage: dlq" in dlq("--help")
    assert json.loads(dlq("import", "letters.jsonl", "-o", "json"))["records"] == 1
    row = json.loads(dlq("ls"))
    assert row["cause"] == "poison_ack"
    assert "rejected" in dlq("show", row["record_id"], "-o", "table")
    assert "1 dead letter" in dlq("report", "--format", "terminal")
    dlq("report", "--out", "report.html")
    assert json.loads(dlq("query", "SELECT count(*) AS n FROM letters")) == {"n": 1}
    assert json.loads(dlq("export", "-"))["message_id"] == LETTER["message_id"]
    assert json.loads(dlq("verify", "-o", "json"))["balanced"]
