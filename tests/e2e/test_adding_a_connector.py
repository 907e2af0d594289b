"""The page about connectors is done as it says, to the letter: the command drains, classifies and replays the
broker of its example, which keeps the contract. Nothing but its files and a line of the registry is added."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = tuple(link.name for link in (ROOT / "typings" / "dlq").iterdir())
PAGE = (ROOT / "docs" / "adding-a-connector.md").read_text(encoding="utf-8")
STEPS = re.findall(
    r"^```(?:python|text)\n# (\S+?)(: a line of REGISTRY)?\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE
)
MOST_LINES = 200
CONFIG = """
archive = "archive"
[brokers.shop]
kind = "spool"
url = "spool://{folder}/spool"
[sources.orders]
broker = "shop"
queue = "orders.dlq"
[spark]
master = "local[1]"
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the program in which the page's steps are done."""
    folder = tmp_path_factory.mktemp("program")
    for room in ROOMS:
        shutil.copytree(ROOT / room, folder / "dlq" / room, ignore=shutil.ignore_patterns("__pycache__"))
    for name, is_line, text in STEPS:
        file = folder / ("" if name.startswith("tests/") else "dlq") / name
        if is_line:
            before, table, rows = file.read_text(encoding="utf-8").partition(
                "REGISTRY: Mapping[str, str] = {\n"
            )
            assert table
            text = f"{before}{table}{text}{rows}"
        assert file.exists() is bool(is_line), f"{name} is no file of the new broker's own"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return folder


def run(program: Path, folder: Path, *words: str, of_tests: str = "") -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(program), str(ROOT / "tests"), of_tests])
    return subprocess.run(
        [sys.executable, "-m", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_new_broker_makes_the_whole_trip(program: Path, tmp_path: Path) -> None:
    def dlq(*words: str) -> list[dict[str, object]]:
        done = run(program, tmp_path, "dlq.cli", "-o", "jsonl", *words)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    dead, alive = tmp_path / "spool" / "orders.dlq", tmp_path / "spool" / "orders"
    for queue in (dead, alive):
        queue.mkdir(parents=True)
    headers = {"from": "orders", "gave-up-because": "java.net.SocketTimeoutException: Read timed out"}
    for number in range(3):
        (dead / f"{number}.json").write_text(json.dumps({"headers": headers, "body_text": f"order {number}"}))
    (tmp_path / "dlq.toml").write_text(CONFIG.format(folder=tmp_path))

    dlq("doctor")
    dlq("pull", "--mode", "drain")
    assert list(dead.iterdir()) == []
    dlq("analyze")
    assert {(row["cause"], row["broker_kind"]) for row in dlq("query", "select * from letters")} == {
        ("application_error", "spool")
    }
    [plan] = dlq("replay", "plan")
    dlq("replay", "apply", str(plan["plan"]))
    bodies = sorted(json.loads(file.read_text())["body_text"] for file in alive.iterdir())
    assert bodies == ["order 0", "order 1", "order 2"]
    dlq("verify")


def test_it_keeps_the_contract(program: Path, tmp_path: Path) -> None:
    done = run(program, tmp_path, "pytest", "-q", "-p", "no:cacheprovider", f"{program}/tests/test_spool.py")
    assert done.returncode == 0, done.stdout


def test_a_driver_of_a_queue_is_a_page_or_two() -> None:
    own = [text for name, is_line, text in STEPS if not (is_line or name.startswith("tests/"))]
    assert sum(len(text.splitlines()) for text in own) <= MOST_LINES


def test_its_own_settings_are_checked(program: Path, tmp_path: Path) -> None:
    (tmp_path / "dlq.toml").write_text('[brokers.shop]\nkind = "spool"\nsuffix = "json"\n')
    done = run(program, tmp_path, "dlq.cli", "ls")
    assert (done.returncode, done.stderr) == (
        2,
        "dlq: dlq.toml: brokers.shop.suffix = 'json' has no dot; write it like .json\n",
    )
