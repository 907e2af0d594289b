"""What goes to the workers of a cluster, how they get to an archive on S3, and what is said when they cannot run."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from dlq.analyzers.spark.files import Files, files_of
from dlq.analyzers.spark.session import configuration
from dlq.analyzers.spark.shipping import ROOMS, name_what_lacks, pack
from dlq.archive.storage.store import open_store
from dlq.core.errors import UsageError
from dlq.core.settings import Spark

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


PLACE = "s3://letters/team"


@pytest.fixture
def aws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """What Spark is told of the archive while these variables and files, and nothing else, say who asks."""
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN", "ENDPOINT_URL", "PROFILE"):
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    for name, file in (("CONFIG", "config"), ("SHARED_CREDENTIALS", "credentials")):
        monkeypatch.setenv(f"AWS_{name}_FILE", str(tmp_path / file))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")

    def ask(**variables: str) -> Any:
        for name, text in variables.items():
            monkeypatch.setenv(f"AWS_{name}", text)
        return files_of(open_store(PLACE))

    return ask


KEYS = {"ACCESS_KEY_ID": "who", "SECRET_ACCESS_KEY": "secret", "DEFAULT_REGION": "eu-central-1"}
TOLD = {"access_key": "who", "secret_key": "secret", "region": "eu-central-1"}


def test_the_archive_s_credentials_and_endpoint_are_told(aws: Callable[..., Any], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no credentials"):
        aws()
    assert files_of(open_store(str(tmp_path))) == Files(str(tmp_path)), "a folder needs nothing"
    assert aws(**KEYS) == Files("letters/team", TOLD)
    assert fs.S3FileSystem(**TOLD).region == "eu-central-1"
    for scheme in ("http", "https"):
        more = {"session_token": "token", "endpoint_override": "store.local:9000", "scheme": scheme}
        found = aws(ENDPOINT_URL=f"{scheme}://store.local:9000", SESSION_TOKEN="token")
        assert found == Files("letters/team", {**TOLD, **more})


def test_keys_come_from_the_files_too(aws: Callable[..., Any], tmp_path: Path) -> None:
    keys = "[ops]\naws_access_key_id = who\naws_secret_access_key = secret\n"
    (tmp_path / "credentials").write_text(keys)
    assert aws(PROFILE="ops").s3["access_key"] == "who"


def test_the_user_s_own_settings_win() -> None:
    own = Spark(conf={"spark.driver.memory": "9g"})
    assert configuration(own, "local[1]")["spark.driver.memory"] == "9g"


def test_workers_of_a_cluster_have_deep_stacks_too() -> None:
    assert configuration(Spark(), "spark://h:7077")["spark.executor.extraJavaOptions"] == "-Xss16m"
