"""Spark's workers get to an archive on S3 with the same endpoint and credentials as everything else."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from dlq.analyzers.spark.files import Files, files_of
from dlq.analyzers.spark.session import configuration
from dlq.archive.store import open_store
from dlq.core.errors import UsageError
from dlq.core.settings import Spark

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
