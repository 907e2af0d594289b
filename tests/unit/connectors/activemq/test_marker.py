"""Markers as a trail: what is missing is noticed, or nothing is concluded."""

from collections.abc import Sequence

import pytest
from support.rows import each_row

from dlq.connectors.activemq.prove import markers
from dlq.connectors.activemq.prove.markers import (
    PROBES,
    Marked,
    Scanning,
    Trail,
    marker_body,
    scan_markers,
    trail_of,
)
from dlq.core.errors import ConnectionLost
from dlq.core.runtime import patience

ANCHOR, QUEUE = "run/0", "dlq.replay.plan"


class Queue:
    """A marker queue of which another consumer takes some places, counted from 0."""

    def __init__(self, *bodies: bytes, takes: Sequence[int] = ()) -> None:
        self.bodies, self.takes, self.acknowledged = [*bodies], takes, list[bytes]()

    def scanning(self) -> Scanning:
        keep = lambda one: self.acknowledged.append(one.body)  # noqa: E731
        return Scanning(self.bodies.extend, self.receive, keep, lambda: None, 0.1, "mq")

    def receive(self) -> list[Marked]:
        shown = [Marked(body, False, b"") for n, body in enumerate(self.bodies) if n not in self.takes]
        self.bodies, self.takes = [], ()
        return shown


def test_what_is_between_an_anchor_and_the_probes_is_everything() -> None:
    queue = Queue(marker_body(ANCHOR), marker_body("run/1", ANCHOR, ["a", "b"]))
    trail, kept = scan_markers(queue.scanning(), QUEUE)
    assert (trail.sent, len(kept), trail.why_unproven([ANCHOR], QUEUE)) == ({"a", "b"}, 2, None)
    assert len(queue.acknowledged) == PROBES


def test_the_anchor_of_a_queue_that_somebody_else_reads_is_taken_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(patience, "CAUGHT_UP", 0.1)
    queue = Queue(marker_body(ANCHOR), marker_body("run/1", ANCHOR, ["a"]), takes=(1, 3))
    trail, _ = scan_markers(queue.scanning(), QUEUE)
    assert "another consumer" in (trail.why_unproven([ANCHOR], QUEUE) or "")
    assert marker_body(ANCHOR) in queue.acknowledged


def test_a_queue_that_shows_no_probe_ends_in_an_error_and_without_its_anchor() -> None:
    queue = Queue(marker_body(ANCHOR), takes=range(1, PROBES + 1))
    with pytest.raises(ConnectionLost, match="were not shown to their end"):
        scan_markers(queue.scanning(), QUEUE)
    assert marker_body(ANCHOR) in queue.acknowledged


class EndlessQueue(Queue):
    """It shows one message more each time that it is asked, and never a probe."""

    def __init__(self, body: bytes) -> None:
        super().__init__()
        self.body, self.shown = body, 0

    def receive(self) -> list[Marked]:
        self.shown += 1
        return [Marked(self.body, False, b"")]


@pytest.mark.parametrize("limit", ["MOST_BYTES", "LOOK"])
def test_a_queue_without_an_end_is_left(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience if limit == "LOOK" else markers, limit, 0.2)
    queue = EndlessQueue(marker_body("run/1", ANCHOR, ["a"]))
    with pytest.raises(ConnectionLost, match="do not come to an end"):
        scan_markers(queue.scanning()._replace(patience=60.0), QUEUE)
    assert (queue.shown == 1) == (limit == "MOST_BYTES")


@each_row(("lasting", "mortal", "named", "probes_die", "why"), [
    ({ANCHOR}, set(), set(), False, None),
    (set(), {ANCHOR, "run/1"}, {ANCHOR}, True, None),
    (set(), set(), set(), False, "is not there any more"),
    ({"run/1"}, set(), {ANCHOR}, False, "is not there any more"),
    ({ANCHOR, "run/3"}, set(), {"run/2"}, False, "from the middle"),
    ({ANCHOR}, set(), set(), True, "a time to live"),
    ({ANCHOR}, {"run/1"}, {ANCHOR}, False, "a time to live"),
])  # fmt: skip
def test_an_absence_is_proven_or_the_reason_is_said(
    lasting: set[str], mortal: set[str], named: set[str], probes_die: bool, why: str | None
) -> None:
    trail = Trail(frozenset(), frozenset(lasting), frozenset(mortal), frozenset(named), probes_die)
    said = trail.why_unproven([ANCHOR], QUEUE)
    assert said is None if why is None else why in (said or "")


def test_a_plan_without_anchors_and_markers_of_before_prove_no_absence() -> None:
    trail = trail_of([Marked(b"key-1\nkey-2", False, b"")])
    assert (trail.sent, trail.why_unproven([], QUEUE) is None) == ({"key-1", "key-2"}, False)
