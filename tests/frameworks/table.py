"""The table of frameworks and their failures: what `table.toml` holds, read."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
LETTERS = ("plain", "hiccup")
"""Each failure makes two letters: on the second the mended consumer fails once more before it takes it."""


class Failure(NamedTuple):
    """One way to die, and what is known of a letter that died so; None where nothing tells it."""

    name: str
    when: str
    """What the program does, in words."""
    dead: str
    """The queue or topic in which the letter lies then."""
    cause: str
    target: str | None
    proof: str | None = None
    attempts: int | None = None
    exception: str | None = None
    message: str | None = None
    origin: str | None = None

    @property
    def letters(self) -> Sequence[str]:
        """The names of the letters that die so."""
        return [f"{self.name}.{letter}" for letter in LETTERS]


class Framework(NamedTuple):
    """A client or framework with its program, and how its letters die and go back."""

    key: str
    name: str
    package: str
    """Its name in the registry, and in the file of `clients/` that pins its version."""
    broker: str
    """rabbitmq, artemis, classic, rocketmq or kafka."""
    program: str
    """A file of `programs/`; its ending says by what it is run."""
    failures: Sequence[Failure]
    stripped: Sequence[str]
    """What the plan takes away of these letters, in its words."""
    quick: bool = False
    """Whether `make test` makes the trip, too."""
    note: str = ""
    """What a user of it should know, for the page."""
    arguments: Sequence[str] = ()
    """More words for the program, where several frameworks share one."""
    prefix: str = "lab-"
    """What the names of its topics begin with: dead letters of share groups go to some alone."""
    plan: Sequence[str] = ()
    """More words for `dlq replay plan`, where these letters need them."""

    @property
    def version(self) -> str:
        """That is pinned. Raises LookupError."""
        package = rf"(?:^\W*|<artifactId>){re.escape(self.package)}"
        pinned = re.compile(
            rf'{package}(?:\[[\w,]+\])?(?:==|": "| v|</artifactId><version>)([\w.]+)', re.MULTILINE
        )
        files = [*sorted(HERE.glob("clients/*")), HERE.parents[1] / "requirements" / "frameworks.in"]
        found = (pinned.search(path.read_text()) for path in files)
        version = next((match[1] for match in found if match), None)
        if version is None:
            raise LookupError(f"no file of clients/, nor requirements/frameworks.in, pins {self.package}")
        return version

    @property
    def letters(self) -> Sequence[str]:
        """The names of all its letters."""
        return [letter for failure in self.failures for letter in failure.letters]


def read(path: Path = HERE / "table.toml") -> Sequence[Framework]:
    """All frameworks, in the order of the file. What a framework says of `dead`, `origin` and `target` holds
    for each of its failures that does not say otherwise."""
    return [_framework(key, told) for key, told in tomllib.loads(path.read_text()).items()]


def _framework(key: str, told: Mapping[str, Any]) -> Framework:
    own = {name: value for name, value in told.items() if not isinstance(value, dict)}
    shared = {name: own.pop(name) for name in ("dead", "origin", "target") if name in own}
    failures = [
        Failure(name, **{"target": None, **shared, **value})
        for name, value in told.items()
        if isinstance(value, dict)
    ]
    return Framework(key, failures=failures, **own)
