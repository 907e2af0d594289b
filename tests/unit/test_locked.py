"""What is fetched is locked: each library in one version, known by its hashes."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
WITHOUT_SPARK = ("redis", "postgres", "mysql", "s3", "kafka", "lz4", "otlp", "mcp", "serve")
_ENTRY = re.compile(r"^([\w.-]+)==(\S+)(.*(?:\n    .*)*)", re.M)


def locked(name: str) -> dict[str, str]:
    """Library -> its version. A line without a hash is an error."""
    entries = _ENTRY.findall((ROOT / "requirements" / f"{name}.txt").read_text())
    assert [library for library, _, rest in entries if "--hash=sha256:" not in rest] == []
    return {library: version for library, version, _ in entries}


def asked(*extras: str) -> list[Requirement]:
    """What the project names itself, with what these extras add."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = list(map(Requirement, project["dependencies"]))
    for extra in extras:
        for one in map(Requirement, project["optional-dependencies"][extra]):
            found += asked(*one.extras)[len(project["dependencies"]) :] if one.name == "dlq" else [one]
    return found


def written(name: str) -> list[Requirement]:
    return list(map(Requirement, (ROOT / "requirements" / f"{name}.in").read_text().split("\n")[:-1]))


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("demo", asked()), ("dev", asked("dev")), ("lowest", asked(*WITHOUT_SPARK)),
        ("image", asked(*WITHOUT_SPARK)), ("image-spark", asked("spark", *WITHOUT_SPARK)),
        ("build", written("build")), ("release", written("release")), ("frameworks", written("frameworks")),
    ],
)  # fmt: skip
def test_a_list_holds_what_is_asked_for_with_its_hashes(name: str, wanted: list[Requirement]) -> None:
    versions = locked(name)
    names = {one: one.name.lower().replace(".", "-").replace("_", "-") for one in wanted}
    fits = {str(o) for o, key in names.items() if key in versions and o.specifier.contains(versions[key])}
    assert {str(one) for one in wanted} - fits == set(), "make lock"
