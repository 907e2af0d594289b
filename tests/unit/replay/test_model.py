"""Whatever a broker does with letters and with the evidence of them, a replay goes twice never.

The broker is a model; plan, ledger, marks, apply and reconcile are those that run.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as trying
from hypothesis import strategies as st
from support.replaying import QueueFile, Replaying, fill, settings

from dlq.archive.store import LocalStore
from dlq.connectors.base import NO_CHECKPOINT, Checkpoint, Outgoing, Presence, Sent, Writing, unmarked
from dlq.core.errors import ConnectionLost
from dlq.core.provenance import REPLAY_ID
from dlq.replay.ledger import open_ledger

LETTERS = 4
FATES = ("confirmed", "returned", "answer lost", "letter lost", "late")
"""What becomes of a letter that is sent; the last three end the connection without an answer."""
STEPS = ("apply", "reconcile", "arrive", "index", "expire", "purge", "consume", "cut the log", "hide")


class Model(QueueFile):
    """A broker that keeps its word, and nothing else. What is `shown` may lack what arrived."""

    def __init__(self, path: Path, fates: Iterator[str]) -> None:
        super().__init__(path)
        self._fates = fates
        self.came: list[str] = []
        self.shown: set[str] = set()
        self.late: list[str] = []
        self.is_whole, self.is_readable = True, True

    def publish(self, outgoing: Iterator[Outgoing], writing: Writing = unmarked) -> Iterator[Sent]:
        for one in outgoing:
            writing([one.number])
            fate, replay = next(self._fates), one.provenance[REPLAY_ID]
            if fate in ("confirmed", "answer lost"):
                self.arrive(replay)
            if fate == "late":
                self.late.append(replay)
            if fate in ("confirmed", "returned"):
                yield Sent(one.number, "confirmed" if fate == "confirmed" else "returned")
                continue
            yield Sent(one.number, "in_doubt", fate)
            raise ConnectionLost(fate)

    def arrive(self, *replays: str) -> None:
        self.came += replays
        self.shown |= {*replays}

    def happen(self, what: str) -> None:
        """What others do to the queue, and time."""
        if what == "arrive":
            late, self.late = self.late, []
            self.arrive(*late)
        elif what == "hide":
            self.is_readable = False
        elif what == "index":
            self.is_readable = True
        else:  # all these take from what is shown, and leave a trace that it is not whole
            self.is_whole = False
            self.shown = set() if what in ("expire", "purge") else {*sorted(self.shown)[1:]}

    def find(
        self,
        plan: str,
        outgoing: Sequence[Outgoing],
        since: int,
        last: int | None = None,
        before: Checkpoint = NO_CHECKPOINT,
    ) -> Mapping[int, Presence]:
        """The rule of every connector: absence counts where its place is whole, readable, and at rest."""
        proves = self.is_whole and self.is_readable and not self.late
        absent: Presence = "not_sent" if proves else "unknown"
        shown = self.shown if self.is_readable else set()
        return {one.number: "sent" if one.provenance[REPLAY_ID] in shown else absent for one in outgoing}


@trying(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.sampled_from(FATES), min_size=30, max_size=30), st.lists(st.sampled_from(STEPS), max_size=12)
)
def test_every_letter_ends_once_or_in_doubt(
    tmp_path_factory: pytest.TempPathFactory, fates: list[str], steps: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("model")
    store, config = LocalStore(str(folder / "archive")), settings(folder / "archive", replay={"window": 4})
    fill(store, LETTERS)
    with closing(open_ledger(config.ledger, store)) as ledger:
        queue = Model(folder / "queue", iter(fates + ["confirmed"] * 100))
        replay = Replaying(store, config, queue, ledger)
        plan = replay.plan()
        for step in (*steps, "arrive", "reconcile", "apply", "reconcile"):
            if step == "apply":
                replay.apply(plan)
            elif step == "reconcile":
                replay.reconcile(plan)
            else:
                queue.happen(step)
            known = ledger.states(replay.keys(plan))
            there = {*queue.came, *queue.late}
            assert len(queue.came) == len({*queue.came}), "a letter arrived twice"
            assert {key for key, state in known.items() if state == "confirmed"} <= {*queue.came}
            assert not {key for key, state in known.items() if state in ("planned", "returned")} & there
            assert there <= {key for key, state in known.items() if state in ("confirmed", "in_doubt")}
