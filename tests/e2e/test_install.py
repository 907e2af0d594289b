"""Each line of docs/install.md, tried in an empty environment; and what the base costs."""

import os
import re
import resource
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

import pytest
from support.environments import ROOT, environment, release_script

MOST_BYTES = 360_000_000
MOST_SECONDS = 25
"""Of processor time, as the clock says more of what else runs, beside which each second does less. 6 of them
compile what its libraries bring; uv leaves that to the first import, and takes a third."""
DIST = release_script("dist")
DONE = "0 sent, 24 already in the ledger"
"""What the demo says at its end."""


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
    run(*pip, "download", "--quiet", "--dest", wheels, "hatchling>=1.27", source, cwd=tmp_path)
    size, seconds = size_of(tmp_path / "venv"), seconds_of_children()
    fetched = ("--no-index", "--find-links", wheels)
    run(*pip, "install", "--quiet", *fetched, ".", cwd=source, PIP_FIND_LINKS=str(wheels))
    told = run(python.with_name("dlq"), "demo", "--folder", "tour", cwd=tmp_path)
    took = seconds_of_children() - seconds
    assert DONE in told
    assert "install PySpark with: pip install 'dlq[spark]'" in " ".join(told.split())
    assert size_of(tmp_path / "venv") - size <= MOST_BYTES
    assert took <= MOST_SECONDS, f"{took:.1f} s"


def test_make_demo_in_a_fresh_clone_fetches_the_base_alone(source: Path) -> None:
    told = run("make", "demo", f"PYTHON={sys.executable}", cwd=source)
    assert "92 MB to fetch, 300 MB there" in told
    assert DONE in told
    assert 270_000_000 < size_of(source / ".venv") < 330_000_000
    assert not [*source.glob(".venv/lib/python*/site-packages/pyspark")]
    assert not (source / ".brokers").exists()


PAGE = ROOT / "docs" / "install.md"
LINES = re.findall(
    r"^\| [^|]+ \| `([^`]+)` \|$", PAGE.read_text(encoding="utf-8").partition("| extra")[0], re.M
)
"""The commands of the page's first table."""
BY_PIPX, BY_UVX, BY_VENV, ONE_FILE, COMPLETION, MANUAL = LINES


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment that holds pipx and uv, and nothing else."""
    return environment(tmp_path_factory.mktemp("tools") / "venv", "pipx", "uv", locked=None).parent


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with nothing in it."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def typed(tools: Path, home: Path, source: Path) -> Callable[..., str]:
    """Types a line in bash, in a clone; what is fetched is kept where uv keeps it."""
    path = os.pathsep.join([str(home / ".local" / "bin"), str(tools), "/usr/bin", "/bin"])
    cache = run(tools / "uv", "cache", "dir", cwd=source).strip()
    given = {"HOME": str(home), "PATH": path, "UV_CACHE_DIR": cache, "SHELL": "/bin/bash"}

    def type_(line: str) -> str:
        return run("bash", "-c", f"{line}; exit $?", cwd=source, **given)

    return type_


@pytest.fixture(scope="module")
def by_pipx(typed: Callable[..., str]) -> None:
    typed(BY_PIPX)


@pytest.mark.usefixtures("by_pipx")
def test_pipx_uvx_and_a_virtual_environment_take_it(typed: Callable[..., str]) -> None:
    typed(BY_VENV)
    for program in ("dlq", "~/dlq/bin/dlq"):
        assert typed(f"{program} --version").startswith("dlq ")
    for demo in ("dlq demo", BY_UVX):
        assert DONE in typed(demo)


def test_one_file_runs_on_python_alone(
    typed: Callable[..., str], source: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    work = tmp_path_factory.mktemp("dist")
    locked = ROOT / "requirements" / "release.txt"
    builders = environment(work / "venv", "build", "hatchling", "twine", "shiv", "uv", locked=locked)
    (source / "dist").mkdir()
    wheel = DIST.packages(builders, source, work / "dist", 1_700_000_000)
    DIST.one_file(builders, work, wheel, source / "dist")
    assert typed(ONE_FILE).startswith("dlq ")
    assert DONE in typed("python3 dist/dlq-pull.pyz demo")


@pytest.mark.usefixtures("by_pipx")
def test_a_shell_completes_commands(typed: Callable[..., str], home: Path) -> None:
    typed(COMPLETION)
    script = next((home / ".bash_completions").glob("dlq*"))
    words = "COMP_WORDS=(dlq replay rec) COMP_CWORD=2; _dlq_completion dlq; echo ${COMPREPLY[@]}"
    assert typed(f"source {script}; {words}").split() == ["reconcile"]


def test_manual_pages_are_written(typed: Callable[..., str], home: Path) -> None:
    typed(MANUAL)
    page = home / ".local/share/man/man1/dlq-replay-plan.1"
    assert page.read_text().startswith('.TH "DLQ-REPLAY-PLAN" 1')
