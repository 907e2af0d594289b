"""What is looked for between letters is added by a module and a line: both engines carry it out."""

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[4]
MODULE = '''
"""How many letters share a dead-letter queue."""

from collections import Counter

from dlq.analyzers.groups.contract import Member, Reduced, Relation


def keys(letter):
    yield "crowd", letter.broker, letter.dead_letter_queue


def members(letters, context, said):
    counted = Counter(key for letter in letters for key in keys(letter))
    return (Member(key, (), count) for key, count in counted.items())


def together(key, counts, context):
    yield Reduced(sum(counts))


def conclude(letter, said, context):
    [count] = (said[key] for key in keys(letter))
    if count == 1:
        return letter
    return letter._replace(cause="unknown", evidence=f"one of {count} in {letter.dead_letter_queue}")


CROWDS = Relation(("crowd",), members, together, conclude, keys=keys)
'''
ROUND, LINE = "ROUNDS: Sequence[Sequence[Relation]] = (\n", "    (crowds.CROWDS,),\n"
IMPORT = "from dlq.analyzers.groups import "
SCRIPT = """
import json, sys
import pyarrow.parquet as pq
from support.analyzers import mixed
from support.analyzers.quick_spark import QUICK
from dlq.analyzers import classification
from dlq.analyzers.analysis import analyze
from dlq.analyzers.spark import engine
from dlq.archive.storage.store import LocalStore
from dlq.core.settings import Settings, Spark

classification.LARGEST_SHARE = engine.LARGEST_SHARE = 40
store = LocalStore(sys.argv[1])
mixed.fill(store)
settings = Settings(spark=Spark(master="local[1]", conf=QUICK))
said = {}
for name in ("plain", "spark"):
    done = analyze(store, settings, engine=name)
    rows = [row for file in done.tables["verdicts"] for row in pq.read_table(store.parquet(file)).to_pylist()]
    said[name] = sorted(([row["record_id"], row["cause"], row["evidence"], row["advice"]] for row in rows))
letters = {one.record_id: [one.broker, one.dead_letter_queue, one.broker_kind] for one in mixed.LETTERS}
print(json.dumps([said, letters]))
"""


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """All packages, among them a copy of the analysis with the module and the line."""
    folder = tmp_path / "packages" / "dlq"
    folder.mkdir(parents=True)
    for package in ROOT.glob("*/__init__.py"):
        (folder / package.parent.name).symlink_to(package.parent)
    (folder / "analyzers").unlink()
    shutil.copytree(ROOT / "analyzers", folder / "analyzers", ignore=shutil.ignore_patterns("__pycache__"))
    groups = folder / "analyzers" / "groups"
    (groups / "crowds.py").write_text(MODULE, encoding="utf-8")
    table = (groups / "relations.py").read_text(encoding="utf-8")
    assert table.count(ROUND) == table.count(IMPORT + "bursts") == 1
    added = table.replace(ROUND, ROUND + LINE).replace(IMPORT, f"{IMPORT}crowds, ")
    (groups / "relations.py").write_text(added, encoding="utf-8")
    return folder.parent


@pytest.mark.spark
def test_both_engines_carry_out_a_relation_of_one_module_and_a_line(packages: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "archive")],
        env={**os.environ, "PYTHONPATH": f"{packages}:{ROOT / 'tests'}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said, letters = json.loads(done.stdout)
    assert said["plain"] == said["spark"]
    crowds = Counter((broker, queue) for broker, queue, _ in letters.values())
    for record_id, cause, evidence, _ in said["plain"]:
        broker, queue, kind = letters[record_id]
        count = crowds[broker, queue]
        is_told = (cause, evidence) == ("unknown", f"one of {count} in {queue}")
        # Of records of transactions, which RocketMQ's may be, more is concluded later.
        assert is_told == (count > 1) or kind == "rocketmq"
    assert len(crowds) < len(letters) / 2
