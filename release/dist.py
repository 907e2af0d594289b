"""Builds all that a release consists of: `make dist`, or `python release/dist.py FOLDER`.

FOLDER holds afterwards the sdist, the wheel, `dlq-pull.pyz` (one file for hosts without Spark: everything but
`dlq analyze`), manual pages, shell completions, `sbom.json` (CycloneDX) and `SHA256SUMS`. Two runs of one
commit give the same bytes: what is installed for it is locked (`requirements/`). Where DLQ_SIGNING_KEY names
a key of GnuPG, `SHA256SUMS.asc` is its signature. DLQ_PAGES_URL is where the repository's files can be read,
and where links of the README lead to in a package index.
"""

import hashlib
import json
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
LOCKED = ROOT / "requirements"
PYTHON = Path("bin/python")
OF_THIS_MACHINE = re.compile(r"^(\.\./)*bin/|/(direct_url|uv_cache)\.json,")
"""Lines in an installation's list of files: scripts, and where the wheel lay."""
COMPLETIONS = {"bash": "dlq", "zsh": "_dlq", "fish": "dlq.fish"}
"""The files' names as each shell looks for them."""
_PICTURE = re.compile(r"^!\[([^]]*)\]\((?!\w+:)([^)]+)\)\n+", re.MULTILINE)
_RELATIVE = re.compile(r"(?<!!)\[([^]]+)\]\((?!\w+:|#)([^)]+)\)")
VENDORED = {
    "reports/chart.umd.min.js": ("chart.js", re.compile(r"Chart\.js v([\d.]+)"), "MIT"),
    "web/static/htmx.min.js": ("htmx.org", re.compile(r'version:"([\d.]+)"'), "0BSD"),
}
"""Scripts of others that the wheel holds -> name in npm, where the version stands, licence."""


def run(*words: object, **environment: str) -> str:
    """What a program prints; raises CalledProcessError."""
    command = [str(word) for word in words]
    return subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environment}, check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def tools_in(folder: Path) -> Path:
    """The Python of a new virtual environment with what builds a release."""
    venv.create(folder, with_pip=True)
    locked = ("--require-hashes", "--no-deps", "--requirement", LOCKED / "release.txt")
    run(folder / PYTHON, "-m", "pip", "install", "--quiet", "--no-compile", *locked)
    return folder / PYTHON


def install(tools: Path, *words: object) -> None:
    """Install a wheel with its libraries, each in the version and with a hash that are locked."""
    constraints = ("--constraints", LOCKED / "dev.txt", "--build-constraints", LOCKED / "build.txt")
    run(tools, "-m", "uv", "pip", "install", "--quiet", *constraints, *words)


def installed(tools: Path, folder: Path, wheel: Path) -> Path:
    """The Python of a new virtual environment with all that `dlq` can use."""
    run(tools, "-m", "uv", "venv", "--quiet", "--no-project", folder)
    install(tools, "--python", folder / PYTHON, f"{wheel}[all]")
    return folder / PYTHON


def committed(work: Path) -> Path:
    """A clean copy of the commit, with a README that reads well where the repository's files are not."""
    run("git", "archive", "--format=tar", f"--output={work / 'source.tar'}", "HEAD")
    with tarfile.open(work / "source.tar") as tar:
        tar.extractall(work / "source", filter="data")
    readme = work / "source" / "README.md"
    readme.write_text(described(readme.read_text(encoding="utf-8"), os.environ.get("DLQ_PAGES_URL", "")))
    return work / "source"


def described(readme: str, pages: str = "") -> str:
    """Return a README for a package index: links lead below `pages`, or become names of files without it."""
    alone = _PICTURE.sub(lambda found: f"![{found[1]}]({pages}{found[2]})\n" if pages else "", readme)
    return _RELATIVE.sub(
        lambda found: f"[{found[1]}]({pages}{found[2]})" if pages else f"{found[1]} (`{found[2]}`)", alone
    )


def packages(tools: Path, source: Path, out: Path, moment: int) -> Path:
    """The sdist and the wheel of a clean copy, all files of one time. Returns the wheel."""
    # The tools lie in an environment of their own: a third one for hatchling alone brings nothing.
    run(tools, "-m", "build", "--no-isolation", "--outdir", out, source, SOURCE_DATE_EPOCH=str(moment))
    (sdist,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    run(tools, "-m", "twine", "check", "--strict", sdist, wheel)
    return wheel


def one_file(tools: Path, work: Path, wheel: Path, out: Path) -> None:
    """`dlq` with what it needs, without Spark, as one file that Python runs."""
    site = work / "site"
    install(tools, "--target", site, f"{wheel}[lz4,s3]")
    shutil.rmtree(site / "bin", ignore_errors=True)
    for name in ("direct_url", "uv_cache"):
        for path in site.glob(f"*.dist-info/{name}.json"):
            path.unlink()
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
    """What `dlq[all]` installs and the scripts that the wheel holds, in CycloneDX."""
    options = ("--output-reproducible", "--of", "JSON", "--pyproject", ROOT / "pyproject.toml")
    bill = json.loads(run(tools.with_name("cyclonedx-py"), "environment", *options, python))
    bill["components"] += map(vendored, VENDORED)
    (out / "sbom.json").write_text(json.dumps(bill, indent=2) + "\n")


def vendored(path: str) -> dict[str, object]:
    """The component of a bill of materials that a script of others is."""
    name, pattern, licence = VENDORED[path]
    content = (ROOT / path).read_bytes()
    found = pattern.search(content.decode())
    assert found is not None, f"{path} does not say its version"
    return {
        "type": "library",
        "bom-ref": path,
        "name": name,
        "version": found[1],
        "purl": f"pkg:npm/{name}@{found[1]}",
        "licenses": [{"license": {"id": licence}}],
        "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(content).hexdigest()}],
    }


def checksums(out: Path) -> None:
    """SHA256SUMS, as `sha256sum --check` reads it."""
    found = sorted(path for path in out.rglob("*") if path.is_file())
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(out)}\n" for path in found]
    (out / "SHA256SUMS").write_text("".join(lines))
    if key := os.environ.get("DLQ_SIGNING_KEY"):
        run("gpg", "--batch", "--yes", "--local-user", key, "--armor", "--detach-sign", out / "SHA256SUMS")


def main(folder: str) -> None:
    """Replaces what is in `folder`."""
    out = Path(folder).absolute()
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    os.environ["SOURCE_DATE_EPOCH"] = moment = run("git", "log", "-1", "--format=%ct").strip()
    with tempfile.TemporaryDirectory(prefix="dlq-dist-") as name:
        work = Path(name)
        tools = tools_in(work / "tools")
        wheel = packages(tools, committed(work), out, int(moment))
        python = installed(tools, work / "installed", wheel)
        one_file(tools, work, wheel, out)
        texts(python, out)
        bill_of_materials(tools, python, out)
    checksums(out)


if __name__ == "__main__":
    main(sys.argv[1])
