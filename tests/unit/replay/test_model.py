"""Whatever a broker does with letters and with the evidence of them, a replay goes twice never.

The broker is a model; plan, ledger, marks, apply and reconcile are those that run, and so are the rules by
which the connectors of ActiveMQ, RabbitMQ, RocketMQ and Kafka conclude from what they find.
"""

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from shutil import copytree
from typing import Any, NamedTuple, TypeVar, cast

import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import settings as trying
from hypothesis import strategies as st
from support.replaying import QueueFile, Replaying, fill, settings

from dlq.archive.storage.store import LocalStore
from dlq.connectors.activemq.look.artemis import Management
from dlq.connectors.activemq.prove.evidence import read_counts, write_counts
from dlq.connectors.activemq.prove.markers import Marked, marker_bodies, marker_body, new_run, trail_of
from dlq.connectors.activemq.prove.routing import Routing, letters_by_target
from dlq.connectors.base import (
    Evidence,
    Outgoing,
    Proof,
    Search,
    Sent,
    Target,
    Writing,
    keep_no_mark,
)
from dlq.connectors.kafka.look.cluster import Cluster, Place, Topic
from dlq.connectors.kafka.look.cluster import Log as Offsets
from dlq.connectors.kafka.prove import search as kafka
from dlq.connectors.proving import decide, numbers_of
from dlq.connectors.rabbitmq.prove.witness import why_missing
from dlq.connectors.rocketmq.prove.evidence import QueueEnd, Store
from dlq.connectors.rocketmq.prove.start_offsets import is_same_store, why_queue_lost
from dlq.connectors.rocketmq.read.queue import MessageQueue
from dlq.connectors.rocketmq.read.snapshot import QueueOffsets
from dlq.core.errors import ConnectionLost
from dlq.core.headers.provenance import REPLAY_ID
from dlq.core.runtime import patience
from dlq.replay.ledger import open_ledger

T = TypeVar("T")
LETTERS = 4
FATES = ("confirmed", "returned", "answer lost", "letter lost", "late", "dropped", "answer lost, dropped")
"""What becomes of a letter that is sent. Four end the connection without an answer; what is dropped is
answered like what is kept, so only a broker that counts shows it."""
HARMS = ("expire", "purge", "consume", "take from the middle", "take the last", "cut the log")
CLOCKS = {"clock ahead": 3 * 3600, "clock back": -3 * 3600}
"""By how many seconds a host's clock is set."""
OURS, THEIRS = ({f"{whose} {what}": by for what, by in CLOCKS.items()} for whose in ("our", "their"))
STEPS = ("apply", "reconcile", "arrive", "index", "hide", "restart", *HARMS, *OURS, *THEIRS)


_KEPT = {"dropped": "confirmed", "answer lost, dropped": "answer lost"}


class Model(QueueFile):
    """A broker that keeps its word, and nothing else. What is `shown` may lack what arrived."""

    counts_what_it_keeps = False

    def __init__(self, path: Path, fates: Iterator[str]) -> None:
        super().__init__(path)
        self._fates = fates
        self.came: list[str] = []
        self.shown: set[str] = set()
        self.late: list[str] = []
        self.is_whole, self.is_readable = True, True

    def publish(self, outgoing: Iterator[Outgoing], writing: Writing = keep_no_mark) -> Iterator[Sent]:
        self.begin()
        for one in outgoing:
            writing([one.number])
            fate, replay = next(self._fates), one.provenance[REPLAY_ID]
            fate = fate if self.counts_what_it_keeps else _KEPT.get(fate, fate)
            self.send(replay)
            if fate in ("confirmed", "answer lost"):
                self.arrive(replay)
            if "dropped" in fate:
                self.drop(replay)
            if fate == "late":
                self.late.append(replay)
            if fate == "returned":
                yield Sent(one.number, "returned")
                continue
            if fate in ("confirmed", "dropped"):
                yield self.answer(one)
                continue
            yield Sent(one.number, "in_doubt", fate)
            raise ConnectionLost(fate)

    def begin(self) -> None:
        """What a run leaves before its first letter."""

    def send(self, replay: str) -> None:
        """What a run adds to a letter."""

    def arrive(self, *replays: str) -> None:
        self.came += replays
        self.shown |= {*replays}

    def drop(self, replay: str) -> None:
        """It is taken, and kept nowhere."""

    def answer(self, one: Outgoing) -> Sent:
        """What is concluded from the broker's answer."""
        return Sent(one.number, "confirmed")

    def happen(self, what: str) -> None:
        """What others do to the queue, and time."""
        if what == "arrive":
            late, self.late = self.late, []
            self.arrive(*late)
        elif what == "hide":
            self.is_readable = False
        elif what == "index":
            self.is_readable = True
        elif what in HARMS:
            self.harm(what)

    def harm(self, what: str) -> None:
        """All these take from what is shown, and leave a trace that it is not whole."""
        self.is_whole = False
        self.shown = set() if what in ("expire", "purge") else {*sorted(self.shown)[1:]}

    def find(self, search: Search) -> Proof:
        """The rule of every connector: only what is readable, and at rest, shows anything."""
        if not self.is_readable or self.late:
            return decide(search.letters, (), ["it cannot be read"])
        return decide(search.letters, numbers_of(search.letters, self.seen()), self.doubts())

    def seen(self) -> Collection[str]:
        """The replay ids that are shown."""
        return self.shown

    def doubts(self) -> Sequence[str]:
        """Absence counts where its place is whole."""
        return [] if self.is_whole else ["it is not whole"]


_TAKEN = {
    "consume": slice(0, 1), "take from the middle": slice(1, 2), "take the last": slice(-1, None),
    "cut the log": slice(-1, None),
}  # fmt: skip


def left(harm: str, kept: list[T]) -> list[T]:
    """What is left in a queue: some go from its head, from behind that, from its end, or all."""
    gone = kept[_TAKEN.get(harm, slice(0, None))]
    return [one for one in kept if one not in gone]


class Markers(Model):
    """ActiveMQ: each run leaves an anchor, and each letter's transaction a marker that names the one before,
    with a link.

    A log that is cut lacks whole transactions, letters and all, and who takes the last marker of a run and
    its link, and nothing before them, is not noticed; so neither is tried.
    """

    def __init__(self, path: Path, fates: Iterator[str]) -> None:
        super().__init__(path, fates)
        self._anchors: list[str] = []
        self._queue: list[Marked] = []
        self._made: dict[str, list[Marked]] = {}
        self._before = ""
        self._taken = False

    def begin(self) -> None:
        self._before = new_run()
        self._anchors.append(self._before)
        self._queue.append(Marked(marker_body(self._before), False, b""))

    def send(self, replay: str) -> None:
        run, _, number = self._before.rpartition("/")
        name = f"{run}/{int(number) + 1}"
        bodies = marker_bodies(name, self._before, [replay])
        self._made[replay] = [Marked(body, False, b"") for body in bodies]
        self._before = name

    def arrive(self, *replays: str) -> None:
        super().arrive(*replays)
        self._queue += [marked for replay in replays for marked in self._made[replay]]

    def harm(self, what: str) -> None:
        is_one_alone = what.startswith("take")
        if what != "cut the log" and not (is_one_alone and self._taken):
            self._queue = left(what, self._queue)
            self._taken = self._taken or is_one_alone

    def seen(self) -> Collection[str]:
        return trail_of(self._queue).sent

    def doubts(self) -> Sequence[str]:
        why = trail_of(self._queue).why_unproven(self._anchors, "the queue")
        return [why] if why else []


class Counts(Markers):
    """Artemis: a marker proves a commit, and what it counts, whether a queue got the letter. A restart sets
    the counts back."""

    counts_what_it_keeps = True
    silences, trouble = 0, None

    def __init__(self, path: Path, fates: Iterator[str]) -> None:
        super().__init__(path, fates)
        self._routing = Routing(cast(Management, self))
        self._routed = self._added = self._started = 0

    def queues(self) -> list[str]:
        return ["orders"]

    def address_settings(self, _address: str) -> Mapping[str, Any]:
        return {}

    def attributes(self, wanted: Iterable[tuple[str, str]]) -> list[object]:
        return [self.attribute(*one) for one in wanted]

    def attribute(self, _resource: str, name: str) -> object:
        if name == "uptimeMillis":
            return time.monotonic_ns() // 10**6 + 10**9 - self._started
        counted = {
            "unRoutedMessageCount": 0, "routedMessageCount": self._routed, "messagesAdded": self._added,
        }  # fmt: skip
        return {"routingType": "ANYCAST", "address": "orders", "queueNames": ["orders"], **counted}.get(name)

    def publish(self, outgoing: Iterator[Outgoing], writing: Writing = keep_no_mark) -> Iterator[Sent]:
        self._routing = Routing(cast(Management, self))

        def begun() -> Iterator[Outgoing]:
            for one in outgoing:
                self._routing.begin(one.target)
                yield one

        return super().publish(begun(), writing)

    def arrive(self, *replays: str) -> None:
        super().arrive(*replays)
        self._routed += len(replays)
        self._added += len(replays)

    def happen(self, what: str) -> None:
        """What others send after a restart is counted, too."""
        if what == "restart":
            self._routed = self._added = LETTERS
            self._started = time.monotonic_ns() // 10**6 + 10**8
        super().happen(what)

    def drop(self, replay: str) -> None:
        """Its marker is kept."""
        self._routed += 1
        self._queue += self._made[replay]

    def answer(self, one: Outgoing) -> Sent:
        [sent] = self._routing.answers([(one.number, one.target)])
        return sent

    def bounds(self, targets: Iterable[Target]) -> Evidence:
        return write_counts(self._routing.counts(targets))

    def find(self, search: Search) -> Proof:
        shown = super().find(search).shown
        committed = letters_by_target(one for one in search.letters if shown[one.number] == "sent")
        known = None if self.doubts() else len(self.seen())
        lost = self._routing.unproven(committed, read_counts(search.before), known)
        doubted = {o.number for o in search.letters if o.target in lost and shown[o.number] == "sent"}
        return Proof({**shown, **dict.fromkeys(doubted, "unknown")})


class Witness(Model):
    """RabbitMQ: an anchor before the first letter, a copy of each, and a count of what came. A node that
    restarts loses its anchor."""

    def __init__(self, path: Path, fates: Iterator[str]) -> None:
        super().__init__(path, fates)
        self._queue: list[str] = ["anchor"]
        self._count, self._restarted = 1, False

    def arrive(self, *replays: str) -> None:
        super().arrive(*replays)
        self._queue += replays
        self._count += len(replays)

    def harm(self, what: str) -> None:
        self._queue = left(what, self._queue)
        if what == "cut the log":
            self._queue, self._restarted = left("consume", self._queue), True

    def seen(self) -> Collection[str]:
        return () if self._restarted else self._queue

    def doubts(self) -> Sequence[str]:
        is_anchored = self._queue[:1] == ["anchor"]
        return ["restarted"] if self._restarted else why_missing(is_anchored, len(self._queue), self._count)


class Letter(NamedTuple):
    """A message of RocketMQ, and when it was stored, in milliseconds of the broker's clock."""

    replay: str
    stored: int


class Log(Model):
    """RocketMQ: nothing is left there beside the letters. Where a queue ended is known by its offset and its
    last letter, the store by the first of all. What leaves it leaves from the head; a disk that is lost takes
    all, and others' letters come to the new one first."""

    place = MessageQueue("orders", "broker-a", 0)

    def __init__(self, path: Path, fates: Iterator[str]) -> None:
        super().__init__(path, fates)
        self._ticks, self._set = 10**12, 0
        self._kept: list[Letter] = []
        self._lowest = 0
        self._begin()

    def _begin(self) -> None:
        self._booted, self._first = self._clock(), self._clock()

    def _clock(self) -> int:
        self._ticks += 1
        return self._ticks + self._set * 1000

    def happen(self, what: str) -> None:
        self._set += THEIRS.get(what, 0)
        if what == "restart":
            self._booted = self._clock()
        super().happen(what)

    def arrive(self, *replays: str) -> None:
        super().arrive(*replays)
        self._kept += [Letter(replay, self._clock()) for replay in replays]

    def harm(self, what: str) -> None:
        if what == "cut the log":
            self._kept, self._lowest = [], 0
            self._begin()
        elif not what.startswith("take"):
            there = len(self._kept)
            self._kept = left(what, self._kept)
            self._lowest += there - len(self._kept)

    def _highest(self) -> int:
        return self._lowest + len(self._kept)

    def _stored_before(self, end: int) -> int | None:
        return next((one.stored for at, one in enumerate(self._kept, self._lowest) if at == end - 1), None)

    def _store(self) -> Store:
        return Store(self._booted, self._clock(), 0, self._first)

    def bounds(self, targets: Iterable[Target]) -> Evidence:
        end = QueueEnd(self._highest(), self._stored_before(self._highest()))
        return {**end.write(self.place), **self._store().write(self.place.node)}

    def find(self, search: Search) -> Proof:
        offsets, before = QueueOffsets(self.place, self._lowest, self._highest()), search.before
        end, store = QueueEnd.read(before, self.place), Store.read(before, self.place.node)
        assert end
        assert end.offset is not None
        assert store
        lost = why_queue_lost(offsets, end, self._stored_before(end.offset))
        self.is_whole = not lost and is_same_store(store, self._store())
        self.shown = {one.replay for one in self._kept}
        return super().find(search)


class Stored(NamedTuple):
    """A record of Kafka. Of an aborted transaction it is there, and no reader of committed ones gets it."""

    offset: int
    replay: str = ""
    is_aborted: bool = False


class Partition(Model):
    """Kafka: nothing is left there beside the letters, and no clock is asked. What leaves the log leaves from
    its head, by compaction, or with its end, after which others write in another epoch until it is as long.
    A topic may be made anew."""

    id = name = "cluster"
    place = Place("orders", 0)

    def __init__(self, path: Path, fates: Iterator[str]) -> None:
        super().__init__(path, fates)
        self._topic, self._is_unclean = 0, False
        self._begin()

    def _begin(self) -> None:
        self._kept: list[Stored] = []
        self._first = self._end = 0
        self._open: int | None = None
        self._epochs = [(0, 0)]
        self._store(*[""] * 3)

    def _store(self, *replays: str, aborted: bool = False) -> None:
        for replay in replays:
            self._kept.append(Stored(self._end, replay, aborted))
            self._end += 1

    def _cut_at(self, end: int) -> None:
        before, self._end = self._end, max(end, self._first)
        self._kept = [one for one in self._kept if one.offset < self._end]
        if self._open is not None and self._open >= self._end:
            self._open = None
        self._epochs = [known for known in self._epochs if known[1] < self._end]
        self._epochs.append((self._epochs[-1][0] + 1 if self._epochs else 99, self._end))
        self._store(*[""] * (before - self._end))

    def arrive(self, *replays: str) -> None:
        super().arrive(*replays)
        self._store(*replays)

    def happen(self, what: str) -> None:
        """A leader that restarts begins an epoch; a transaction of others begins then, or ends."""
        if what == "restart":
            self._epochs.append((self._epochs[-1][0] + 1, self._end))
            self._open = self._end if self._open is None else None
            self._store("")
        super().happen(what)

    def harm(self, what: str) -> None:
        if what == "expire":
            self._first = min(self._first + 4, self._end)
            self._kept = [one for one in self._kept if one.offset >= self._first]
        elif what == "purge":
            self._topic += 1
            self._begin()
            self._store(*[""] * LETTERS)
        elif what == "consume":  # and copied back in a transaction that was aborted
            self._store(*self.came, aborted=True)
        elif what == "take from the middle":
            self._kept = self._kept[:3] + self._kept[4:]
        elif what == "take the last":
            self._is_unclean = True
            self._cut_at(self._end - 1)
        else:
            self._cut_at(2)

    def topic(self, name: str) -> Topic:
        return Topic(name, f"id-{self._topic}", 1)

    def topics(self, names: Iterable[str]) -> dict[str, Topic]:
        return {name: self.topic(name) for name in names}

    def logs(self, _topics: Iterable[Topic]) -> list[Offsets]:
        stable = self._end if self._open is None else self._open
        return [Offsets(self.place, self._first, max(stable, self._first), self._end, self._epochs[-1][0])]

    def configuration(self, _topic: str) -> Mapping[str, str]:
        """Compaction was turned off again."""
        unclean = str(self._is_unclean).lower()
        return {"cleanup.policy": "delete", "unclean.leader.election.enable": unclean}

    def offsets_since(self, places: Iterable[Place], _since: int) -> dict[Place, int]:
        return dict.fromkeys(places, self._first)

    def end_of_epoch(self, _place: Place, epoch: int) -> int:
        return next((start for known, start in self._epochs if known > epoch), self._end)

    def stored_end(self, _place: Place) -> int:
        return self._end

    def is_compacted_between(self, _place: Place, first: int, end: int) -> bool:
        return not {*range(first, end)} <= {one.offset for one in self._kept}

    def among(
        self, spans: Mapping[Place, tuple[int, int]], sought: Collection[bytes], committed: bool
    ) -> set[bytes]:
        first, end = spans[self.place]
        read = [one for one in self._kept if first <= one.offset < end and not (committed and one.is_aborted)]
        return {one.replay.encode() for one in read} & {*sought}

    def bounds(self, targets: Iterable[Target]) -> Evidence:
        return kafka.bounds(cast(Cluster, self), [target.name for target in targets])

    def find(self, search: Search) -> Proof:
        is_shown = self.is_readable and not self.late
        return kafka.find(cast(Cluster, self), search) if is_shown else super().find(search)


ASKED = {
    "end_of_epoch": Partition.end_of_epoch,
    "is_compacted_between": Partition.is_compacted_between,
    "find_between": Partition.among,
    "stored_end": Partition.stored_end,
}
"""What Kafka's rules ask its brokers for."""


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of an archive, and a plan of all its letters; each example begins with a copy."""
    folder = tmp_path_factory.mktemp("planned")
    store, config = LocalStore(str(folder / "archive")), settings(folder / "archive")
    fill(store, LETTERS)
    with closing(open_ledger(config.ledger, store)) as ledger:
        return folder, Replaying(store, config, QueueFile(folder / "queue"), ledger).plan()


@pytest.mark.parametrize("model", [Model, Markers, Counts, Witness, Log, Partition])
@trying(
    max_examples=trying.default.max_examples // 5,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    st.lists(st.sampled_from(FATES), min_size=30, max_size=30), st.lists(st.sampled_from(STEPS), max_size=12)
)
@example(["answer lost"] * 30, ["hide", "apply", "take from the middle", "index", "reconcile"])
@example(["answer lost"] * 30, ["hide", "apply", "purge", "apply", "index", "reconcile"])
@example(["answer lost"] * 30, ["hide", "apply", "expire", "index", "reconcile"])
@example(["answer lost"] * 30, ["restart", "hide", "apply", "consume", "expire", "index", "reconcile"])
@example(["answer lost"] * 30, ["hide", "apply", "cut the log", "restart", "index", "reconcile", "apply"])
@example(["dropped"] * 30, ["apply", "reconcile", "apply"])
@example(["answer lost, dropped"] * 30, ["apply", "reconcile", "apply"])
@example(["answer lost, dropped"] * 30, ["apply", "restart", "reconcile", "apply"])
@example(["late", "answer lost", "confirmed", "dropped"] + ["confirmed"] * 26, ["apply", "expire"])
@example(["answer lost"] * 30, ["hide", "apply", "take the last", "index", "reconcile"])
@example(["answer lost"] * 30, ["hide", "apply", "cut the log", "index", "reconcile"])
@example(
    ["answer lost"] * 30, ["hide", "apply", "their clock back", "cut the log", "index", "reconcile", "apply"]
)
@example(["answer lost"] * 30, ["hide", "our clock ahead", "apply", "our clock back", "index", "reconcile"])
@example(["late"] * 30, ["our clock back", "apply", "our clock ahead", "reconcile", "apply"])
def test_every_letter_ends_once_or_in_doubt(
    tmp_path_factory: pytest.TempPathFactory,
    planned: tuple[Path, str],
    monkeypatch: pytest.MonkeyPatch,
    model: type[Model],
    fates: list[str],
    steps: list[str],
) -> None:
    template, plan = planned
    folder, ours = copytree(template, tmp_path_factory.mktemp("model") / "here"), [0]
    for row in ("COUNTED", "SETTLED"):
        monkeypatch.setattr(patience, row, 0.0)
    for name, answer in ASKED.items():
        monkeypatch.setattr(kafka, name, answer)
    monkeypatch.setattr(time, "time_ns", lambda: time.clock_gettime_ns(time.CLOCK_REALTIME) + ours[0] * 10**9)
    store, config = LocalStore(str(folder / "archive")), settings(folder / "archive", replay={"window": 4})
    with closing(open_ledger(config.ledger, store)) as ledger:
        queue = model(folder / "queue", iter(fates + ["confirmed"] * 100))
        replay = Replaying(store, config, queue, ledger)
        for step in (*steps, "arrive", "reconcile", "apply", "reconcile"):
            if step == "apply":
                replay.apply(plan)
            elif step == "reconcile":
                replay.reconcile(plan)
            else:
                ours[0] += OURS.get(step, 0)
                queue.happen(step)
            known = ledger.states(replay.keys(plan))
            there = {*queue.came, *queue.late}
            assert len(queue.came) == len({*queue.came}), "a letter arrived twice"
            assert {key for key, state in known.items() if state == "confirmed"} <= {*queue.came}
            assert not {key for key, state in known.items() if state in ("planned", "returned")} & there
            assert there <= {key for key, state in known.items() if state in ("confirmed", "in_doubt")}
