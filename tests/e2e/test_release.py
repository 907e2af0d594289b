"""What is given away: the same bytes each time, with all that a user needs and nothing of this machine."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_bytes
from pathlib import Path

import pyspark
import pytest
from support.environments import environment, release_script

ROOT = Path(__file__).parents[2]
MOMENT = 1_700_000_000
DIST, MAN = release_script("dist"), release_script("man")


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    locked = ROOT / "requirements" / "release.txt"
    names = ("build", "hatchling", "twine")
    return environment(tmp_path_factory.mktemp("tools") / "venv", *names, locked=locked)


@pytest.fixture(scope="module")
def wheels(tools: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two, with their sdists beside them, built one after the other in other places."""
    places = [tmp_path_factory.mktemp("built") for _ in range(2)]
    return [DIST.packages(tools, DIST.committed(place), place / "dist", MOMENT) for place in places]


def test_two_builds_have_the_same_bytes(wheels: list[Path]) -> None:
    first, second = ({p.name: p.read_bytes() for p in wheel.parent.iterdir()} for wheel in wheels)
    assert len(first) == 2
    assert first == second


def committed(*places: str) -> set[str]:
    """The files of the commit below some folders."""
    command = ["git", "ls-tree", "-r", "--name-only", "HEAD", "--", *places]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return set(listed.splitlines())


FOLDERS = [path.name for path in ROOT.iterdir() if (path / "__init__.py").exists()]


def unpacked(wheel: Path) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """What a wheel installs, and what it says of itself."""
    with zipfile.ZipFile(wheel) as archive:
        held = {name: archive.read(name) for name in archive.namelist()}
    said = {Path(name).name: data for name, data in held.items() if ".dist-info/" in name}
    return {name: data for name, data in held.items() if ".dist-info/" not in name}, said


def test_the_wheel_holds_every_module_and_what_they_read_and_nothing_else(wheels: list[Path]) -> None:
    assert set(unpacked(wheels[0])[0]) == {f"dlq/{name}" for name in committed(*FOLDERS)}


RELATIVE = re.compile(r"\]\((?!\w+:)[^)]*\)")


def test_the_wheel_says_what_it_is_and_no_link_of_it_leads_nowhere(wheels: list[Path]) -> None:
    _, said = unpacked(wheels[0])
    metadata = message_from_bytes(said["METADATA"])
    assert metadata["Version"] in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert metadata["License-Expression"] == "Apache-2.0"
    assert said["LICENSE"] == (ROOT / "LICENSE").read_bytes()
    assert b"dlq = dlq.cli.app:main" in said["entry_points.txt"]
    description = str(metadata.get_payload())
    assert description.startswith("# dlq")
    assert RELATIVE.findall(description) == []
    assert "the tutorial (`docs/tutorial.md`)" in description


def test_links_of_the_long_description_lead_to_the_pages_where_their_place_is_known() -> None:
    shown = DIST.described((ROOT / "README.md").read_text(encoding="utf-8"), "https://dlq.example/main/")
    assert RELATIVE.findall(shown) == []
    assert "[the tutorial](https://dlq.example/main/docs/tutorial.md)" in shown
    assert "![The report as an HTML page](https://dlq.example/main/docs/report.png)" in shown


def test_the_sdist_holds_the_source_and_its_pages(wheels: list[Path]) -> None:
    (sdist,) = wheels[0].parent.glob("*.tar.gz")
    with tarfile.open(sdist) as tar:
        names = {name.partition("/")[2] for name in tar.getnames()}
    pages = {name for name in committed("docs") if name.endswith(".md")}
    assert {*committed(*FOLDERS), *pages, "README.md", "LICENSE", "CHANGELOG.md", "pyproject.toml"} <= names
    assert {name for name in names if name.startswith((".", "tests"))} == {".gitignore"}


def runs(program: Path) -> bool:
    """pyenv has programs that only say which version is missing."""
    return subprocess.run([program, "-c", "import venv"], capture_output=True, check=False).returncode == 0


def other_pythons() -> list[Path]:
    """Of the versions that are supported, those that are on this machine, beside the one that runs this."""
    found = []
    for minor in sorted({11, 12, 13} - {sys.version_info.minor}):
        name = f"python3.{minor}"
        places = [shutil.which(name) or "", *Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/{name}")]
        found += [Path(place) for place in places if place and runs(Path(place))][:1]
    return found


@pytest.mark.parametrize("program", other_pythons(), ids=lambda program: program.name)
def test_the_wheel_is_installed_and_works_on_each_python(
    program: Path, wheels: list[Path], tmp_path: Path
) -> None:
    python = environment(tmp_path / "venv", wheels[0], python=program)
    (tmp_path / "letters.jsonl").write_text('{"broker_kind": "rabbitmq", "queue": "q", "body_text": "a"}\n')
    for words in (["import", "letters.jsonl"], ["ls"], ["report"]):
        done = subprocess.run(
            [python.with_name("dlq"), *words], cwd=tmp_path, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr


@pytest.mark.spark
def test_the_wheel_alone_runs_the_demo(wheels: list[Path], tmp_path: Path) -> None:
    python = environment(tmp_path / "venv", wheels[0], "py4j")
    # PySpark comes as 450 MB of source, which each environment would build anew: it gets that of the tests.
    (site,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    (site / "pyspark").symlink_to(Path(pyspark.__file__).parent)
    words = [python.with_name("dlq"), "demo", "--folder", "tour"]
    home = {"SPARK_HOME": str(Path(pyspark.__file__).parent)}  # whose class data is there already
    done = subprocess.run(
        words, cwd=tmp_path, env=os.environ | home, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "0 sent, 24 already in the ledger" in done.stdout


def test_the_bill_of_materials_names_the_scripts_of_others_that_the_wheel_holds() -> None:
    scripts = {path for path in committed(*FOLDERS) if path.endswith(".min.js")}
    assert set(DIST.VENDORED) == scripts
    for path in scripts:
        component = DIST.vendored(path)
        assert component["purl"] == f"pkg:npm/{component['name']}@{component['version']}"


def test_the_checksums_are_signed_where_a_key_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "keys"
    home.mkdir(mode=0o700)
    monkeypatch.setenv("GNUPGHOME", str(home))
    gpg = ["gpg", "--batch", "--quiet", "--passphrase", ""]
    subprocess.run([*gpg, "--quick-generate-key", "dlq <dlq@example>", "ed25519", "sign"], check=True)
    monkeypatch.setenv("DLQ_SIGNING_KEY", "dlq@example")
    out = tmp_path / "dist"
    out.mkdir()
    (out / "wheel").write_bytes(b"a wheel")
    DIST.checksums(out)
    verify = ["gpg", "--batch", "--verify", str(out / "SHA256SUMS.asc"), str(out / "SHA256SUMS")]
    assert subprocess.run(verify, check=False, capture_output=True).returncode == 0
    (out / "SHA256SUMS").write_text("0000  wheel\n")
    assert subprocess.run(verify, check=False, capture_output=True).returncode == 1


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
