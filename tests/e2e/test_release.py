"""What is given away: the same bytes each time, with all that a user needs and nothing of this machine."""

import importlib.util
import subprocess
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
MOMENT = 1_700_000_000


def script(name: str) -> ModuleType:
    """A module of the folder `release`, which is no package."""
    spec = importlib.util.spec_from_file_location(f"release_{name}", ROOT / "release" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


DIST, MAN = script("dist"), script("man")


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return DIST.environment(tmp_path_factory.mktemp("tools"), "build", "twine")


@pytest.fixture(scope="module")
def wheels(tools: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two, with their sdists beside them, built one after the other in other places."""
    places = [tmp_path_factory.mktemp("built") for _ in range(2)]
    return [DIST.packages(tools, DIST.committed(place), place / "dist", MOMENT) for place in places]


def test_two_builds_have_the_same_bytes(wheels: list[Path]) -> None:
    first, second = ({p.name: p.read_bytes() for p in wheel.parent.iterdir()} for wheel in wheels)
    assert len(first) == 2
    assert first == second


def test_the_wheel_holds_every_module_and_what_they_read(wheels: list[Path]) -> None:
    folders = [path.name for path in ROOT.iterdir() if (path / "__init__.py").exists()]
    listed = subprocess.run(
        ["git", "ls-tree", "-r", "--name-only", "HEAD", "--", *folders],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    with zipfile.ZipFile(wheels[0]) as wheel:
        assert {f"dlq/{name}" for name in listed} <= set(wheel.namelist())


@pytest.mark.spark
def test_the_wheel_alone_runs_the_demo(wheels: list[Path], tmp_path: Path) -> None:
    python = DIST.environment(tmp_path / "venv", f"{wheels[0]}[spark]")
    words = [python.with_name("dlq"), "demo", "--folder", "tour"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "0 sent, 24 known before" in done.stdout


def test_every_command_has_a_manual_page_without_stray_requests() -> None:
    pages = dict(MAN.pages())
    assert {"dlq.1", "dlq-pull.1", "dlq-replay-plan.1"} <= set(pages)
    known = (".TH ", ".SH ", ".TP", ".PP")
    for name, page in pages.items():
        stray = [line for line in page.splitlines() if line.startswith((".", "'"))]
        assert [line for line in stray if not line.startswith(known)] == [], name
        assert "\n.SH SYNOPSIS\n" in page


def test_a_line_of_help_is_no_request_of_troff() -> None:
    assert MAN.roff(".SH \\x\n'a-b") == "\\&.SH \\ex\n\\&'a\\-b"
