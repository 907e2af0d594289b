"""What goes to the workers of a cluster, and what is said when they cannot run it."""

import subprocess
import sys
from pathlib import Path

import pytest

from dlq.analyzers.spark.shipping import ROOMS, name_what_lacks, pack

STEPS = ("spark.tasks", "spark.client_log", "spark.user_rules", "classification")
SCRIPT = """
import sys
sys.meta_path = [finder for finder in sys.meta_path if "editable" not in str(finder)]
sys.path.insert(0, sys.argv[1])
for name in sys.argv[2:]:
    print(__import__(name, fromlist=["x"]).__file__)
print({name.partition(".")[0] for name in sys.modules} - sys.stdlib_module_names)
"""
HEAVY = ("duckdb", "sqlalchemy", "pandas", "s3fs", "botocore", "typer", "pyspark")


def imported(zipped: Path, *names: str) -> list[str]:
    command = [sys.executable, "-c", SCRIPT, str(zipped), *names]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def test_python_imports_the_rooms_from_the_zip_and_little_else(tmp_path: Path) -> None:
    zipped = pack(tmp_path / "dlq.zip")
    *files, loaded = imported(zipped, *ROOMS, *(f"dlq.analyzers.{step}" for step in STEPS))
    assert all(file.startswith(f"{zipped}/dlq/") for file in files)
    assert not any(f"'{name}'" in loaded for name in HEAVY)


@pytest.mark.parametrize(("said", "meant"), [
    ('Lost task 0.3 (TID 3) (10.0.0.5 executor 1): Cannot run program "/no": error=2',
     "of M on 10.0.0.5 cannot classify letters: there is no program P;"),
    ("Error from python worker:\n  Traceback\n  ImportError: no zlib\nPYTHONPATH", "P does not start: ImportError: no zlib;"),
    ("ModuleNotFoundError: No module named 'pyarrow'", "of M cannot classify letters: P has no pyarrow;"),
])  # fmt: skip
def test_what_a_worker_lacks_is_one_line(said: str, meant: str) -> None:
    told = name_what_lacks(said, "M", "P") or ""
    assert meant in told
    assert "\n" not in told


def test_other_faults_stay_what_they_are() -> None:
    assert name_what_lacks("ValueError: 7", "M", "P") is None
