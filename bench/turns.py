"""An earlier commit and this working tree by turns, in one run on one broker: is the new one as fast, as small?

    python bench/turns.py REV [--broker memory] [--work pull plan apply] [--letters 50000] [--rounds 3]

A turn is a whole journey with an archive of its own: drain, analyze and ls (where they are asked for), plan,
apply. Every work is a whole command, its start included. Prints CPU microseconds a letter, letters a second and MiB
at the peak, each as its least, median and most, and the new one's median in relation to the old one's. Ends
with 1 where a median of the new one is more than 5 % worse.
"""

import argparse
import contextlib
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from places import PLACES, Place

ROOT = Path(__file__).resolve().parent.parent
WORK: Mapping[str, Sequence[str]] = {
    "pull": ("pull", "s", "--mode", "drain"),
    "analyze": ("analyze",),
    "ls": ("ls", "--limit", "50"),
    "plan": ("replay", "plan", "--any-advice", "--to"),
    "apply": ("replay", "apply"),
}
"""What is done, in this order."""
USUAL = ("pull", "plan", "apply")
TOLERATED = 1.05


class Spent(NamedTuple):
    """What a command took: CPU microseconds a letter, letters a second, MiB."""

    cpu: float
    rate: float
    peak: float


class Side:
    """One of the two: its name, and the folder where Python finds its code as `dlq`."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self._path = name, str(folder)
        found, _ = self._run("-c", "import dlq.cli; print(dlq.cli.__file__)")
        if not found.startswith(str(folder)):
            raise SystemExit(f"{name}: Python takes {found.strip()} instead of what is in {folder}")
        said, _ = self._run("-m", "dlq.cli", "pull", "--help")
        self._classifies = "--no-analyze" in said

    def turn(self, place: Place, letters: int, wanted: Sequence[str]) -> Iterator[tuple[str, Spent]]:
        """One journey in an archive of its own, and what each work of it took."""
        place.fill(letters)
        with tempfile.TemporaryDirectory(prefix="dlq-bench-") as name:
            (Path(name) / "dlq.toml").write_text(place.settings)
            more = {"pull": ["--no-analyze"] if self._classifies else [], "plan": [place.target]}
            needed = {*wanted, "pull", *(["plan"] if "apply" in wanted else [])}
            for work in (work for work in WORK if work in needed):
                said, spent = self._dlq(Path(name), place, letters, *WORK[work], *more.get(work, ()))
                check(f"{self.name} {work}", said, letters)
                if work == "plan":
                    more["apply"] = [json.loads(said)["plan"]]
                yield work, spent

    def _dlq(self, folder: Path, place: Place, letters: int, *words: str) -> tuple[str, Spent]:
        command = ("-m", "dlq.cli", "-q", "-o", "json", *words)
        said, (seconds, cpu, peak) = self._run(*command, folder=folder, enter=place.enter)
        return said, Spent(cpu / letters * 1e6, letters / seconds, peak)

    def _run(
        self, *words: str, folder: Path | None = None, enter: Sequence[str] = ()
    ) -> tuple[str, tuple[float, float, float]]:
        """What Python says to these words, seconds, seconds of CPU, and MiB."""
        started = time.perf_counter()
        command = [*enter, sys.executable, *words]
        environment = {**os.environ, "PYTHONPATH": self._path, "PYTHONDONTWRITEBYTECODE": ""}
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        said = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"{' '.join(words)} ended with {process.returncode}: {said}")
        seconds = time.perf_counter() - started
        return said, (seconds, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def check(what: str, said: str, letters: int) -> None:
    """End where a command dealt with other letters than all of them."""
    document = json.loads(said)
    if isinstance(document, dict):
        (source,) = document.get("sources") or [{}]
        found = document.get("sent", source.get("captured", letters) if isinstance(source, dict) else letters)
        if found != letters:
            raise SystemExit(f"{what}: {found} letters of {letters}")


@contextlib.contextmanager
def sides(revision: str) -> Iterator[tuple[Side, Side]]:
    """The commit, and this working tree."""
    with tempfile.TemporaryDirectory(prefix="dlq-turns-") as name:
        old, new = Path(name, "old"), Path(name, "new")
        for folder in (old, new):
            folder.mkdir()
        (new / "dlq").symlink_to(ROOT)
        packed = subprocess.run(["git", "-C", ROOT, "archive", revision], check=True, stdout=subprocess.PIPE)
        with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
            archive.extractall(old / "dlq", filter="data")
        subprocess.run([sys.executable, "-m", "compileall", "-q", old], check=False)
        yield Side("old", old), Side("new", new)


def compare(found: Mapping[tuple[str, str], Sequence[Spent]]) -> bool:
    """Print a row for each work and figure; whether the new side is worse in one."""
    worse = False
    print(f"{'':18}{'old: min, median, max':>32}{'new: min, median, max':>32}{'new/old':>9}")
    for work in dict.fromkeys(work for work, _ in found):
        for figure in Spent._fields:
            old, new = ([getattr(one, figure) for one in found[work, side]] for side in ("old", "new"))
            ratio = median(new) / median(old)
            is_worse = (1 / ratio if figure == "rate" else ratio) > TOLERATED
            worse |= is_worse
            texts = [f"{min(many):,.0f} {median(many):10,.0f} {max(many):10,.0f}" for many in (old, new)]
            print(f"{work:9}{figure:9}{texts[0]:>32}{texts[1]:>32}{ratio:9.2f}{' worse' * is_worse}")
    return worse


def main(words: Sequence[str] | None = None) -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("revision", metavar="REV")
    parser.add_argument("--broker", choices=PLACES, default="memory")
    parser.add_argument("--work", nargs="+", choices=WORK, default=USUAL)
    parser.add_argument("--letters", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args(words)
    found: dict[tuple[str, str], list[Spent]] = {}
    with sides(given.revision) as both, PLACES[given.broker]() as place:
        for number in range(given.rounds):
            for side in both[:: -1 if number % 2 else 1]:
                for work, spent in side.turn(place, given.letters, given.work):
                    if work in given.work:
                        found.setdefault((work, side.name), []).append(spent)
            print(f"# round {number + 1}, load {os.getloadavg()[0]:.1f}", file=sys.stderr, flush=True)
    print(f"{given.broker}: {given.letters:,} letters, {given.rounds} rounds, {given.revision} and this tree")
    return int(compare(found))


if __name__ == "__main__":
    sys.exit(main())
