"""There and back: a framework's letters die, are pulled, classified, replayed, and taken by its mended
consumer.

A program of `programs/` is called with one word, and told by variables where (LAB_URL, LAB_PREFIX) and which
letters (LAB_LETTERS, by blanks: `declined.plain declined.hiccup`):

    fail     sends each letter, and lets it die in the way that it is named for, until it is ended
    mended   takes what comes, but fails the first time on a letter that is named hiccup

It prints a line of JSON each time a letter is in the hands of its consumer: `event` (failed, hiccup,
handled), `letter`, `body`, `headers`.
"""

import json
import os
import queue
import re
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from frameworks.clients import start
from frameworks.places import Place
from frameworks.table import Failure, Framework
from support import preloaded
from support.waiting import PATIENCE, SOON, STARTUP

from dlq.archive import views
from dlq.archive.storage.store import LocalStore

_TO_ACKNOWLEDGE = 0.3
"""Seconds from the last letter's line until its acknowledgement has left the program, which is ended then."""
_COLUMNS = (
    "cause, proof, attempts, exception_class, exception_message, origin, record_id, body, headers, properties"
)
Event = Mapping[str, Any]


class Classified(NamedTuple):
    """What is known of one letter, as the table tells it."""

    cause: str
    proof: str | None
    attempts: int | None
    exception: str | None
    message: str | None
    origin: str | None

    @classmethod
    def expected(cls, failure: Failure) -> "Classified":
        """What the table says of it."""
        return cls(*(getattr(failure, name) for name in cls._fields))


class Trip:
    """One framework at one place."""

    def __init__(self, framework: Framework, place: Place, folder: Path) -> None:
        self.framework, self.place, self._folder = framework, place, folder
        self._store = LocalStore(str(folder / "archive"))
        self._ids: Sequence[str] = ()
        dead = dict.fromkeys(failure.dead for failure in framework.failures)
        sources = (
            f'[sources.s{number}]\nbroker = "shop"\n{place.source(place.prefix + name)}\n'
            for number, name in enumerate(dead)
        )
        (folder / "dlq.toml").write_text(
            f'archive = "archive"\n[brokers.shop]\n{place.settings}{"".join(sources)}'
        )

    def let_die(self) -> Sequence[Event]:
        """Every letter has died; what its consumer saw of each."""
        expected = Counter(failure.dead for failure in self.framework.failures for _ in failure.letters)
        with self._running("fail") as events:
            self._wait(lambda: self._are_dead(expected), expected)
            self._wait_for_acknowledgements({*expected})
        return [*_taken(events)]

    def _are_dead(self, expected: Mapping[str, int]) -> bool:
        return all(self.place.depth(self.place.prefix + name) >= n for name, n in expected.items())

    def _wait_for_acknowledgements(self, dead: Set[str]) -> None:
        """Until nothing lies elsewhere than among the dead, as far as the broker tells: who is ended sooner
        may leave a letter behind that has died already."""
        places = {self.place.prefix + name for name in dead}
        deadline = time.monotonic() + SOON
        while self.place.left().keys() - places and time.monotonic() < deadline:
            time.sleep(0.1)

    def judge(self) -> Mapping[str, Classified]:
        """All letters pulled, and analyzed: letter -> verdict. Names are told without the place's prefix."""
        self._dlq("pull", "--mode", "drain")
        with views.connect(self._store) as connection:
            rows = connection.execute(f"SELECT {_COLUMNS} FROM letters").fetchall()
        self._ids = [str(row[6]) for row in rows]
        assert len(rows) == len(self.framework.letters)
        return {self._letter(*row[7:]): Classified(*map(self._bare, row[:6])) for row in rows}

    def replay(self) -> tuple[Mapping[str, int], Sequence[str]]:
        """All letters sent back to where they died: where that was, and what was taken away of them."""
        plan = self._dlq("replay", "plan", "--any-advice", "--where", "true", *self.framework.plan)
        assert plan["left_out"] == {}, plan
        done = self._dlq("replay", "apply", plan["plan"])
        assert done["states"]["confirmed"] == len(self.framework.letters), done
        return {self._bare(name): number for name, number in plan["targets"].items()}, sorted(
            plan["stripped"]
        )

    def take(self) -> Sequence[Event]:
        """What the mended consumer saw, until it had handled each letter, and nothing was left for it."""
        wanted, seen = len(self.framework.letters), list[Event]()
        with self._running("mended") as events:

            def all_handled() -> bool:
                seen.extend(_taken(events))
                return sum(event["event"] == "handled" for event in seen) >= wanted

            self._wait(all_handled, seen)
            self._wait(lambda: not self.place.left(), "its queues to be empty")
            time.sleep(_TO_ACKNOWLEDGE)
        return [*seen, *_taken(events)]

    def _letter(self, body: bytes, *named: Mapping[str, str] | None) -> str:
        names = "|".join(map(re.escape, self.framework.letters))
        text = body.decode("latin-1") + json.dumps([*map(dict, filter(None, named))])
        found = re.search(names, text)
        assert found, f"which letter is this? {text[:500]}"
        return found[0]

    def _bare(self, value: Any) -> Any:
        return value.replace(self.place.prefix, "") if isinstance(value, str) else value

    def _dlq(self, *words: str) -> Any:
        environment = {**os.environ, **self.place.variables, "XDG_CONFIG_HOME": str(self._folder)}
        done = preloaded.run(["-o", "json", *words], self._folder, environment)
        assert done.returncode == 0, f"{words}: {done.returncode} {done.stdout} {done.stderr}"
        return json.loads(done.stdout)

    def _wait(self, reached: Callable[[], bool], what: object) -> None:
        deadline = time.monotonic() + STARTUP
        while not reached():
            assert self._is_running(), f"the program ended by itself:\n{self._log()}"
            assert time.monotonic() < deadline, f"it did not come so far: {what}\n{self._log()}"
            time.sleep(0.05)

    def _log(self) -> str:
        return (self._folder / "program.log").read_text(errors="replace")[-3000:]

    @contextmanager
    def _running(self, mode: str) -> Iterator["queue.SimpleQueue[Event]"]:
        """What the program prints, while it runs and after; it is told to end, so that it acknowledges what
        it has handled, and killed where that takes long."""
        program = start(
            self.framework.program,
            mode,
            *self.framework.arguments,
            log=self._folder / "program.log",
            LAB_URL=self.place.url,
            LAB_PREFIX=self.place.prefix,
            LAB_LETTERS=" ".join(self.framework.letters),
        )
        events = queue.SimpleQueue[Event]()
        self._is_running = lambda: program.poll() is None
        reader = threading.Thread(target=_read, args=(program, events), daemon=True)
        reader.start()
        try:
            yield events
        finally:
            program.terminate()
            try:
                program.wait(self.place.to_end)
            except subprocess.TimeoutExpired:
                program.kill()
                program.wait()
            reader.join(PATIENCE)


def _read(program: "subprocess.Popen[str]", events: "queue.SimpleQueue[Event]") -> None:
    assert program.stdout
    with program.stdout as lines:
        for line in lines:
            if line.startswith('{"event"'):  # frameworks print banners
                events.put(json.loads(line))


def _taken(events: "queue.SimpleQueue[Event]") -> Iterator[Event]:
    while not events.empty():
        yield events.get()


def changes(before: Event, after: Event) -> set[str]:
    """What of a letter its consumer sees otherwise than before: `body`, and names of headers."""
    old, new = before["headers"], after["headers"]
    differing = {name for name in {*old, *new} if old.get(name) != new.get(name)}
    return differing | ({"body"} if before["body"] != after["body"] else set())
