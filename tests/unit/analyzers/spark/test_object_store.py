"""Spark's workers get to an archive on S3 with the same endpoint and credentials as everything else."""

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
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the AWS files are looked for; nothing else of this machine counts."""
    for name in (
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_ENDPOINT_URL",
        "AWS_PROFILE",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return tmp_path


@pytest.fixture
def keys(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "who")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")


def access() -> Any:
    return files_of(open_store(PLACE)).s3


def test_an_archive_in_a_folder_needs_nothing(tmp_path: Path) -> None:
    assert files_of(open_store(str(tmp_path))) == Files(str(tmp_path))


def test_amazon_needs_a_region_and_keys(keys: None) -> None:
    assert access() == {"access_key": "who", "secret_key": "secret", "region": "eu-central-1"}
    assert fs.S3FileSystem(**access()).region == "eu-central-1"


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_temporary_keys_come_with_a_token(keys: None, monkeypatch: pytest.MonkeyPatch, scheme: str) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"{scheme}://store.local:9000")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "token")
    assert files_of(open_store(PLACE)) == Files(
        "letters/team",
        {
            "access_key": "who", "secret_key": "secret", "session_token": "token", "region": "eu-central-1",
            "endpoint_override": "store.local:9000", "scheme": scheme,
        },
    )  # fmt: skip


def test_keys_come_from_the_files_too(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (files / "credentials").write_text("[ops]\naws_access_key_id = who\naws_secret_access_key = secret\n")
    monkeypatch.setenv("AWS_PROFILE", "ops")
    assert access()["access_key"] == "who"


def test_without_keys_it_is_one_line(files: Path) -> None:
    with pytest.raises(UsageError, match="no credentials"):
        access()


def test_the_user_s_own_settings_win() -> None:
    own = Spark(conf={"spark.driver.memory": "9g"})
    assert configuration(own, "local[1]")["spark.driver.memory"] == "9g"


def test_workers_of_a_cluster_have_deep_stacks_too() -> None:
    assert configuration(Spark(), "spark://h:7077")["spark.executor.extraJavaOptions"] == "-Xss16m"
