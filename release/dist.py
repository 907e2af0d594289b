"""Builds all that a release consists of: `make dist`, or `python release/dist.py FOLDER`.

FOLDER holds afterwards the sdist, the wheel, `dlq-pull.pyz` (one file for hosts without Spark: everything but
`dlq analyze`), manual pages, shell completions, `sbom.json` (CycloneDX) and `SHA256SUMS`. Two runs of one
commit give the same bytes, as long as the package index offers the same versions.
"""

import gzip
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYTHON = Path("bin/python")
OF_THIS_MACHINE = re.compile(r"^\.\./\.\./bin/|/direct_url\.json,")
"""Lines in an installation's list of files: scripts, and where the wheel lay."""
COMPLETIONS = {"bash": "dlq", "zsh": "_dlq", "fish": "dlq.fish"}
"""The files' names as each shell looks for them."""


def run(*words: object, **environment: str) -> str:
    """What a program prints; raises CalledProcessError."""
    command = [str(word) for word in words]
    return subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environment}, check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def environment(folder: Path, *requirements: object) -> Path:
    """The Python of a new virtual environment with some packages."""
    venv.create(folder, with_pip=True)
    run(folder / PYTHON, "-m", "pip", "install", "--quiet", "--no-compile", *requirements)
    return folder / PYTHON


def committed(work: Path) -> Path:
    """A clean copy of the commit."""
    run("git", "archive", "--format=tar", f"--output={work / 'source.tar'}", "HEAD")
    with tarfile.open(work / "source.tar") as tar:
        tar.extractall(work / "source", filter="data")
    return work / "source"


def packages(tools: Path, source: Path, out: Path, moment: int) -> Path:
    """The sdist and the wheel of a clean copy, all files of one time. Returns the wheel."""
    # The tools lie in an environment of their own: a third one for setuptools alone brings nothing.
    run(tools, "-m", "build", "--no-isolation", "--outdir", out, source, SOURCE_DATE_EPOCH=str(moment))
    (sdist,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    sdist.write_bytes(with_fixed_times(sdist.read_bytes(), moment))
    run(tools, "-m", "twine", "check", "--strict", sdist, wheel)
    return wheel


def with_fixed_times(sdist: bytes, moment: int) -> bytes:
    """The same files in order, of nobody, at one time: setuptools writes when and as whom it ran."""
    packed = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(sdist)) as old,
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=moment) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as new,
    ):
        for member in sorted(old.getmembers(), key=lambda one: one.name):
            content = old.extractfile(member)
            member.mtime, member.uid, member.gid, member.uname, member.gname = moment, 0, 0, "", ""
            member.pax_headers = {}
            new.addfile(member, content)
    return packed.getvalue()


def one_file(tools: Path, work: Path, wheel: Path, out: Path) -> None:
    """`dlq` with what it needs, without Spark, as one file that Python runs."""
    site = work / "site"
    run(tools, "-m", "pip", "install", "--quiet", "--no-compile", "--target", site, f"{wheel}[lz4,s3]")
    shutil.rmtree(site / "bin", ignore_errors=True)
    for named in site.glob("*.dist-info/direct_url.json"):
        named.unlink()
    for record in site.glob("*.dist-info/RECORD"):
        lines = record.read_text().splitlines(keepends=True)
        record.write_text("".join(line for line in lines if not OF_THIS_MACHINE.search(line)))
    target = out / "dlq-pull.pyz"
    options = ("--reproducible", "--compressed", "--python", "/usr/bin/env python3")
    run(tools, "-m", "shiv", *options, "--site-packages", site, "-c", "dlq", "-o", target)


def texts(python: Path, out: Path) -> None:
    """Manual pages and completions, as the built `dlq` says them itself."""
    run(python, ROOT / "release/man.py", out / "man")
    (out / "completions").mkdir()
    for shell, name in COMPLETIONS.items():
        script = run(python.with_name("dlq"), _DLQ_COMPLETE=f"source_{shell}")
        (out / "completions" / name).write_text(script)


def bill_of_materials(tools: Path, python: Path, out: Path) -> None:
    """What `dlq[all]` installs, in CycloneDX."""
    options = ("--output-reproducible", "--of", "JSON", "--pyproject", ROOT / "pyproject.toml")
    (out / "sbom.json").write_text(run(tools.with_name("cyclonedx-py"), "environment", *options, python))


def checksums(out: Path) -> None:
    """SHA256SUMS, as `sha256sum --check` reads it."""
    found = sorted(path for path in out.rglob("*") if path.is_file())
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(out)}\n" for path in found]
    (out / "SHA256SUMS").write_text("".join(lines))


def main(folder: str) -> None:
    """Replaces what is in `folder`."""
    out = Path(folder).absolute()
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    os.environ["SOURCE_DATE_EPOCH"] = moment = run("git", "log", "-1", "--format=%ct").strip()
    with tempfile.TemporaryDirectory(prefix="dlq-dist-") as name:
        work = Path(name)
        tools = environment(work / "tools", "-r", ROOT / "release/tools.txt")
        wheel = packages(tools, committed(work), out, int(moment))
        installed = environment(work / "installed", f"{wheel}[all]")
        one_file(tools, work, wheel, out)
        texts(installed, out)
        bill_of_materials(tools, installed, out)
    checksums(out)


if __name__ == "__main__":
    main(sys.argv[1])
