"""Each line of docs/install.md, tried in an empty environment; and what the base costs."""

import os
import resource
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from support.environments import release_script

MOST_BYTES = 400_000_000
MOST_SECONDS = 15
"""Of processor time: the clock says more of what else runs."""
DIST = release_script("dist")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clean copy of the commit, as a clone has it."""
    return Path(DIST.committed(tmp_path_factory.mktemp("clone")))


def run(*words: object, cwd: Path, **environment: str) -> str:
    """What a program prints, without Java, which not everybody has."""
    told = {**os.environ, "PYTHONDONTWRITEBYTECODE": "", "JAVA_HOME": "/nowhere", **environment}
    command = [str(word) for word in words]
    done = subprocess.run(command, cwd=cwd, env=told, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def seconds_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def size_of(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file())


def test_pip_installs_the_base_in_seconds_and_the_demo_goes_to_its_end(source: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=True)
    python, wheels = tmp_path / "venv/bin/python", tmp_path / "wheels"
    pip = [python, "-m", "pip", "--disable-pip-version-check"]
    run(*pip, "download", "--quiet", "--dest", wheels, "setuptools>=77", source, cwd=tmp_path)
    size, seconds = size_of(tmp_path / "venv"), seconds_of_children()
    fetched = ("--no-index", "--find-links", wheels)
    run(*pip, "install", "--quiet", *fetched, ".", cwd=source, PIP_FIND_LINKS=str(wheels))
    told = run(python.with_name("dlq"), "demo", "--folder", "tour", cwd=tmp_path)
    took = seconds_of_children() - seconds
    assert "0 sent, 24 known before" in told
    assert "install PySpark with: pip install 'dlq[spark]'" in " ".join(told.split())
    assert size_of(tmp_path / "venv") - size <= MOST_BYTES
    assert took <= MOST_SECONDS, f"{took:.1f} s"


def test_make_demo_in_a_fresh_clone_fetches_the_base_alone(source: Path) -> None:
    told = run("make", "demo", f"PYTHON={sys.executable}", cwd=source)
    assert "110 MB to fetch, 420 MB there" in told
    assert "0 sent, 24 known before" in told
    assert 370_000_000 < size_of(source / ".venv") < 440_000_000
    assert not [*source.glob(".venv/lib/python*/site-packages/pyspark")]
    assert not (source / ".brokers").exists()
