"""Spark gets to an archive on S3 with the same endpoint and credentials as everything else."""

from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from dlq.analyzers.spark import s3a
from dlq.analyzers.spark.files import Files, files_of
from dlq.analyzers.spark.session import configuration
from dlq.archive.store import open_store
from dlq.core.errors import UsageError
from dlq.core.settings import Spark

PLACE = "s3://letters/team"
S3A = "spark.hadoop.fs.s3a."


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


def test_an_archive_in_a_folder_needs_nothing() -> None:
    assert s3a.configuration("/var/lib/dlq", {}) == {}


def test_amazon_needs_a_region_and_keys(keys: None) -> None:
    found = s3a.configuration(PLACE, {})
    assert found[f"{S3A}endpoint.region"] == "eu-central-1"
    assert (found[f"{S3A}access.key"], found[f"{S3A}secret.key"]) == ("who", "secret")
    assert f"{S3A}endpoint" not in found


def test_another_store_is_named_and_its_buckets_are_paths(
    keys: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9000")
    found = s3a.configuration(PLACE, {})
    assert found[f"{S3A}endpoint"] == "http://127.0.0.1:9000"
    assert found[f"{S3A}path.style.access"] == "true"


def test_temporary_keys_come_with_their_token(keys: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "token")
    found = s3a.configuration(PLACE, {})
    assert found[f"{S3A}session.token"] == "token"
    assert found[f"{S3A}aws.credentials.provider"].endswith("TemporaryAWSCredentialsProvider")


def test_keys_come_from_the_files_too(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (files / "credentials").write_text("[ops]\naws_access_key_id = who\naws_secret_access_key = secret\n")
    monkeypatch.setenv("AWS_PROFILE", "ops")
    assert s3a.configuration(PLACE, {})[f"{S3A}access.key"] == "who"


def test_without_keys_it_is_one_line(files: Path) -> None:
    with pytest.raises(UsageError, match="no credentials"):
        s3a.configuration(PLACE, {})


def test_the_jars_are_those_of_pyspark_s_own_hadoop_unless_the_user_names_some(keys: None) -> None:
    import pyspark

    jars = Path(str(pyspark.__file__)).with_name("jars")
    [hadoop] = jars.glob("hadoop-client-api-*.jar")
    version = hadoop.stem.removeprefix("hadoop-client-api-")
    assert f"hadoop-aws:{version}," in s3a.configuration(PLACE, {})["spark.jars.packages"]
    assert "spark.jars.packages" not in s3a.configuration(PLACE, {"spark.jars": "/opt/*"})


def test_the_user_s_own_settings_win(keys: None) -> None:
    own = Spark(conf={f"{S3A}access.key": "other", "spark.jars": "/opt/*"})
    assert configuration(own, "local[1]", location=PLACE)[f"{S3A}access.key"] == "other"


def test_workers_of_a_cluster_have_deep_stacks_too() -> None:
    assert configuration(Spark(), "spark://h:7077")["spark.executor.extraJavaOptions"] == "-Xss16m"


def of_workers() -> Files:
    return files_of(open_store(PLACE), s3a.configuration(PLACE, {}))


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_python_workers_get_there_with_the_same_endpoint_and_keys(
    keys: None, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"{scheme}://store.local:9000")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "token")
    assert of_workers() == Files(
        "letters/team",
        {
            "access_key": "who",
            "secret_key": "secret",
            "session_token": "token",
            "region": "eu-central-1",
            "endpoint_override": "store.local:9000",
            "scheme": scheme,
        },
    )


def test_python_workers_find_amazon_by_its_region(keys: None) -> None:
    options: Any = of_workers().s3
    assert options == {"access_key": "who", "secret_key": "secret", "region": "eu-central-1"}
    assert fs.S3FileSystem(**options).region == "eu-central-1"
