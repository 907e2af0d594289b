"""Pulls and replays of one archive, and something that happens while all of them are in the middle."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from dlq.archive import manifests
from dlq.archive.storage.store import LocalStore
from dlq.capture.pull import PullOptions, PullResult, pull
from dlq.connectors import open_connector
from dlq.core.configuration import parse
from dlq.core.errors import BrokerError
from dlq.replay.ledger import opened
from dlq.replay.plans import planfile
from dlq.replay.plans.plan import make
from dlq.replay.plans.wanted import Wanted
from dlq.replay.reconcile import Decision, Resolved, reconcile
from dlq.replay.runs.apply import Run, apply
from dlq.replay.runs.brokers import Brokers
from dlq.replay.status import counts

LIMIT = 240
"""Seconds: far more than any fault takes on a busy machine."""
When = Callable[[int], None]
"""Told how many letters are done."""
Mends = Callable[[threading.Event], Any]


def never(_done: int) -> None:
    """Nothing happens in the middle."""


class Fault:
    """Happens once, when each of `parties` has done some letters; what mends it begins at once. It may wait
    for `over`: then the parties have ended."""

    def __init__(self, parties: int, breaks: Callable[[], Any], mends: Mends) -> None:
        self.over = threading.Event()
        self._barrier = threading.Barrier(parties, action=self._happen)
        self._breaks, self._mending = breaks, threading.Thread(target=mends, args=(self.over,))

    def _happen(self) -> None:
        self._breaks()
        self._mending.start()

    def after(self, letters: int) -> When:
        """For one party: it waits for the others when it has done so many."""
        waits = iter((self._barrier.wait,))

        def when(done: int) -> None:
            if done >= letters and (wait := next(waits, None)) is not None:
                wait(LIMIT)

        return when

    def wait_for_the_end(self) -> None:
        """All parties have ended; until all is well again."""
        self.over.set()
        self._mending.join(LIMIT)
        assert not self._mending.is_alive()


def through(
    archive: "Archive", plan: str, letters: int, before: int, breaks: Callable[[], Any], mends: Mends
) -> tuple[PullResult, Run]:
    """The source `new` is pulled and a plan applied, both at once, and something breaks when so many letters
    of the plan were sent; returns what became of that. Afterwards the next pulls end with all letters."""
    fault = Fault(2, breaks, mends)
    with ThreadPoolExecutor() as threads:
        pulled = threads.submit(archive.pull, "new", fault.after(1))
        run = threads.submit(archive.apply, plan, fault.after(before))
    fault.wait_for_the_end()
    archive.pull_to_the_end("new", letters)
    states, lost = archive.states(plan), run.result().lost
    assert bool(lost) == (states["confirmed"] < letters), (states, lost)
    return pulled.result(), run.result()


class Archive:
    """What `dlq` does with one broker, in this process, each with connections of its own."""

    def __init__(
        self, folder: Path, broker: Mapping[str, Any], sources: Mapping[str, Mapping[str, Any]]
    ) -> None:
        """`broker` and each of `sources` as their tables in the configuration."""
        self.store = LocalStore(str(folder / "archive"))
        self.settings = parse(
            {
                "archive": self.store.location,
                "brokers": {"b": {"timeout": "5s", **broker}},
                "sources": {name: {"broker": "b", **table} for name, table in sources.items()},
            }
        )

    def pull(self, source: str, when: When = never) -> PullResult:
        """One drain. Raises BrokerError where it could not even begin."""
        connector = open_connector(self.settings.brokers["b"])
        try:
            place = self.settings.sources[source]
            told = lambda tally, _total: when(tally.delivered)  # noqa: E731
            return pull(self.store, connector, place, PullOptions("drain"), told)
        finally:
            connector.close()

    def pull_to_the_end(self, source: str, letters: int) -> None:
        """Run after run, as cron does, until the archive has so many of the source."""
        deadline = time.monotonic() + LIMIT
        while True:
            try:
                result = self.pull(source)
                if result.error is None and not result.partial and self.rows(source) >= letters:
                    return
                said: object = result
            except BrokerError as error:
                said = error
            assert time.monotonic() < deadline, said
            time.sleep(0.5)

    def rows(self, source: str) -> int:
        """Letters in the archive."""
        return sum(manifest.rows for manifest in manifests.list_committed(self.store, source))

    def bodies(self, source: str) -> Counter[bytes]:
        """How often each body is in the archive."""
        found: Counter[bytes] = Counter()
        for manifest in filter(lambda one: one.rows, manifests.list_committed(self.store, source)):
            table = pq.read_table(self.store.url(manifest.segment), columns=["body"], partitioning=None)
            found.update(table["body"].to_pylist())
        return found

    def plan(self, **wanted: Any) -> str:
        """Of all letters that are in the archive."""
        with Brokers(self.settings) as brokers:
            return make(self.store, self.settings, Wanted(any_advice=True, **wanted), brokers).plan

    def replay_ids(self, plan: str) -> Counter[str]:
        """That of each letter of a plan, once."""
        return Counter(letter.key for letter in planfile.letters(self.store, plan))

    def apply(self, plan: str, when: When = never) -> Run:
        """What is left of a plan. Raises BrokerError where it could not even begin."""
        with Brokers(self.settings) as brokers, opened(self.settings.ledger, self.store) as ledger:
            return apply(
                self.store, self.settings, plan, brokers, ledger, progress=lambda run: when(run.sent)
            )

    def states(self, plan: str) -> dict[str, int]:
        """State -> letters, where there are some."""
        with opened(self.settings.ledger, self.store) as ledger:
            found = counts(self.store, ledger, planfile.load(self.store, plan))
        return {state: number for state, number in found.items() if number}

    def reconcile(self, plan: str, arrived: Collection[str] | None = None) -> Resolved:
        """What the broker shows; with `arrived` an operator who has looked decides the rest: these replay ids
        were sent, no others."""
        with Brokers(self.settings) as brokers, opened(self.settings.ledger, self.store) as ledger:
            doubtful = ledger.entries(plan, "in_doubt")
            sent = () if arrived is None else tuple(e.record_id for e in doubtful if e.key in arrived)
            decision = Decision(sent=sent, rest=None if arrived is None else "planned")
            return reconcile(self.store, plan, brokers, ledger, decision)
