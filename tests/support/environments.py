"""Virtual environments of tests' own, and the programs of `release/`, which is no package."""

import subprocess
import sys
from pathlib import Path
from types import ModuleType

from support.builders import load_script

ROOT = Path(__file__).parents[2]
_UV = Path(sys.executable).with_name("uv")
LOCKED = ROOT / "requirements" / "dev.txt"
"""Which versions, by their hashes."""


def environment(
    folder: Path, *requirements: object, python: object = sys.executable, locked: Path | None = LOCKED
) -> Path:
    """The Python of a new one with some packages, by uv, which takes a tenth of pip's processor time."""
    subprocess.run(
        [_UV, "venv", "--quiet", "--clear", "--no-project", "--python", str(python), folder], check=True
    )
    found = folder / "bin" / "python"
    if requirements:
        install(found, *requirements, locked=locked)
    return found


def install(python: Path, *requirements: object, locked: Path | None = LOCKED) -> None:
    """Packages, into the environment of a Python, each as it is locked."""
    command: list[object] = [_UV, "pip", "install", "--quiet", "--python", python]
    if locked:
        command += ["--constraints", locked, "--build-constraints", ROOT / "requirements" / "build.txt"]
    subprocess.run([*command, *map(str, requirements)], check=True)


def release_script(name: str) -> ModuleType:
    """`release/NAME.py` as a module."""
    return load_script(ROOT / "release" / f"{name}.py")
