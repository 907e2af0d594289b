"""The class data of Spark: one JVM writes them, later ones map them, and a file that is of no use is none."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dlq.analyzers.spark.class_data import option

HEAD = b"\xf0\x0b\xab\xa2"
AN_HOUR_AGO = time.time() - 3601
A_MONTH_AGO = time.time() - 31 * 86_400
SCRIPT = """
from pathlib import Path
from dlq.analyzers.spark.session import session
from dlq.core.settings import Spark

with session(Spark(master="local[1]"), few=True) as spark:
    jvm = spark._jvm.java.lang.ProcessHandle.current().pid()
    print(".jsa" in Path(f"/proc/{jvm}/maps").read_text().replace("classes.jsa", ""))
"""


@pytest.fixture
def java(tmp_path: Path) -> Path:
    program = tmp_path / "java"
    program.touch()
    return program


@pytest.fixture
def jars(tmp_path: Path) -> Path:
    folder = tmp_path / "jars"
    folder.mkdir()
    return folder


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a cache"))
    return tmp_path / "a cache" / "dlq"


def the_file(cache: Path) -> Path:
    (file,) = cache.iterdir()
    return file


def has_a_head(cache: Path) -> bool:
    for file in cache.iterdir():  # Java takes the empty file away before it writes
        with file.open("rb") as written:
            return any(written.read(4))
    return False


def test_the_first_jvm_writes_and_others_go_without_until_it_has(java: Path, jars: Path, cache: Path) -> None:
    assert option(java, jars) == f"-XX:ArchiveClassesAtExit='{the_file(cache)}'"
    assert option(java, jars) == ""
    the_file(cache).write_bytes(HEAD)
    assert option(java, jars) == f"-XX:SharedArchiveFile='{the_file(cache)}'"


def test_each_java_and_each_spark_has_a_file_of_its_own(java: Path, jars: Path, cache: Path) -> None:
    option(java, jars)
    assert option(java, jars.parent) != ""
    assert len(list(cache.iterdir())) == 2


def test_files_that_nobody_used_for_a_month_go(java: Path, jars: Path, cache: Path) -> None:
    option(java, jars)
    os.utime(the_file(cache), (A_MONTH_AGO, A_MONTH_AGO))
    option(java, jars.parent)
    assert the_file(cache).stat().st_mtime > A_MONTH_AGO


@pytest.mark.parametrize("half", [b"", bytes(4096)])
def test_half_a_file_is_none_and_is_written_anew_after_an_hour(
    java: Path, jars: Path, cache: Path, half: bytes
) -> None:
    option(java, jars)
    the_file(cache).write_bytes(half)
    assert option(java, jars) == ""
    os.utime(the_file(cache), (AN_HOUR_AGO, AN_HOUR_AGO))
    assert "ArchiveClassesAtExit" in option(java, jars)


def test_a_file_from_before_java_was_installed_is_written_anew(java: Path, jars: Path, cache: Path) -> None:
    option(java, jars)
    the_file(cache).write_bytes(HEAD)
    os.utime(the_file(cache), (AN_HOUR_AGO, AN_HOUR_AGO))
    assert "ArchiveClassesAtExit" in option(java, jars)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("of_another", ["file", "folder"])
def test_what_belongs_to_another_user_is_left_alone(
    java: Path, jars: Path, cache: Path, of_another: str
) -> None:
    option(java, jars)
    the_file(cache).write_bytes(HEAD)
    assert "SharedArchiveFile" in option(java, jars)
    os.chown(cache if of_another == "folder" else the_file(cache), 4711, 4711)
    assert option(java, jars) == ""
    assert the_file(cache).read_bytes() == HEAD


@pytest.mark.parametrize("mode", [0o720, 0o702])
@pytest.mark.parametrize("open_to_others", ["file", "folder"])
def test_what_others_can_write_is_left_alone(
    java: Path, jars: Path, cache: Path, open_to_others: str, mode: int
) -> None:
    option(java, jars)
    the_file(cache).write_bytes(HEAD)
    (cache if open_to_others == "folder" else the_file(cache)).chmod(mode)
    assert option(java, jars) == ""


@pytest.mark.parametrize("linked", ["file", "folder"])
def test_a_link_is_left_alone(java: Path, jars: Path, cache: Path, tmp_path: Path, linked: str) -> None:
    option(java, jars)
    the_file(cache).write_bytes(HEAD)
    path = cache if linked == "folder" else the_file(cache)
    path.symlink_to(path.rename(tmp_path / "elsewhere"))
    assert option(java, jars) == ""


@pytest.mark.parametrize("chosen", ["-Xshare:off", "-Xss16m -XX:SharedArchiveFile=mine.jsa"])
def test_options_of_the_user_are_left_alone(java: Path, jars: Path, cache: Path, chosen: str) -> None:
    assert option(java, jars, chosen) == ""
    assert not cache.exists()


def test_without_a_folder_to_write_to_java_starts_as_ever(java: Path, jars: Path, cache: Path) -> None:
    cache.parent.touch()
    assert option(java, jars) == ""


def test_a_user_without_a_home_goes_without(
    java: Path, jars: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("os.getuid", lambda: 4_000_000_000)
    monkeypatch.chdir(tmp_path)
    assert option(java, jars) == ""
    assert {path.name for path in tmp_path.iterdir()} == {"java", "jars"}


@pytest.mark.spark
def test_a_second_session_maps_what_the_first_one_wrote(cache: Path) -> None:
    def mapped() -> str:
        return subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, check=True).stdout.decode()

    assert mapped() == "False\n"
    deadline = time.monotonic() + 120
    while not has_a_head(cache):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert mapped() == "True\n"
    the_file(cache).unlink()  # 190 MB
