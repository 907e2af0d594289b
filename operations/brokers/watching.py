"""How full the sources are, what comes and goes, and what replays do, again and again."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from types import TracebackType
from typing import Any

from dlq.archive import losses
from dlq.archive.losses import Loss, in_words
from dlq.connectors.base import Connector, Gauge
from dlq.core.clock import iso, now
from dlq.core.errors import DlqError, Unreachable
from dlq.core.runtime import patience
from dlq.core.settings import Source
from dlq.operations.brokers.connecting import connect
from dlq.operations.concurrency import Stop, do_at_once
from dlq.operations.outcome import ExitCode, code_of
from dlq.operations.replays.plans import count_sent
from dlq.operations.workspace import Workspace
from dlq.replay import came_back

_AT_ONCE = 8
_SPAN = 30.0
"""Seconds over which a rate is taken: brokers count now and then."""
_COUNTED_LATE = 10.0
"""Seconds before a rate is told of acknowledgements, which brokers count up to 5 s late."""


class Watching:
    """Sources that are looked at again and again, and the replays that go on meanwhile. A context manager:
    leaving it closes the connections."""

    def __init__(self, workspace: Workspace, sources: Sequence[str] = ()) -> None:
        """Watch these sources; none means all. Raises UsageError for an unknown one."""
        self._workspace = workspace
        self._watched = [_Watched(source) for source in workspace.sources(sources)]
        self._replays = _Replays(workspace)

    def look(self) -> dict[str, Any]:
        """Return one look, as `dlq watch` prints it. A broker that does not answer is no error here."""
        _look(self._workspace, self._watched)
        lost = losses.open_by_source(self._workspace.store)
        return {
            "at": iso(now()),
            "sources": [_describe(one, lost) for one in self._watched],
            "replays": self._replays.list_moving(),
        }

    @property
    def code(self) -> ExitCode:
        """Of the last look."""
        errors = [one.error for one in self._watched if one.error is not None]
        if not errors:
            return ExitCode.DONE
        return code_of(errors[0]) if len(errors) == len(self._watched) else ExitCode.PARTLY

    def __enter__(self) -> "Watching":
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        for one in self._watched:
            if one.connector is not None:
                one.connector.close()


@dataclass
class _Watched:
    """A source, and what was seen of it in the last seconds."""

    source: Source
    connector: Connector | None = None
    seen: deque[tuple[float, Gauge]] = field(default_factory=deque)
    error: DlqError | None = None

    def look(self, workspace: Workspace) -> tuple[Connector, Gauge]:
        """Ask the broker, on the connection of before or a new one; raises BrokerError. Changes nothing here:
        a thread that hangs, and was left behind, may end at any time."""
        connector = self.connector or connect(workspace, workspace.settings.brokers[self.source.broker])
        try:
            return connector, connector.gauge(self.source)
        except DlqError:
            connector.close()
            raise

    def learn(self, connector: Connector, gauge: Gauge) -> None:
        """Remember it for as long as rates need it."""
        self.connector, self.error = connector, None
        self.seen.append((monotonic(), gauge))
        while self.seen[-1][0] - self.seen[0][0] > _SPAN and len(self.seen) > 2:
            self.seen.popleft()

    def fail(self, error: DlqError) -> None:
        """Note a failure: what was seen is old now, and its connection gone."""
        self.connector, self.error = None, error
        self.seen.clear()


def _look(workspace: Workspace, watched: Sequence[_Watched]) -> None:
    """Ask for all at once. Who hangs is left behind, and asked on a new connection the next time."""

    def look(one: _Watched, _stop: Stop) -> tuple[Connector, Gauge]:
        return one.look(workspace)

    for one, future in do_at_once(look, watched, _AT_ONCE, seconds=patience.SHORTLY):
        if future.cancelled() or not future.done():
            one.fail(Unreachable(f"{one.source.broker}: no answer within {patience.SHORTLY:g} s"))
            continue
        try:
            one.learn(*future.result())
        except DlqError as error:
            one.fail(error)


def measure_rates(seen: Sequence[tuple[float, Gauge]]) -> tuple[float | None, float | None]:
    """Return letters a second that came and that left, from the first to the last of what was seen.

    None where nothing is known: one look is no rate, and a counter may begin anew.
    """
    if len(seen) < 2:
        return None, None
    (began, first), (ended, last) = seen[0], seen[-1]
    if first.depth is None or last.depth is None or ended <= began:
        return None, None
    more = last.depth - first.depth
    if first.acknowledged is None or last.acknowledged is None:
        left = max(0, -more)
    elif last.acknowledged < first.acknowledged or ended - began < _COUNTED_LATE:
        return None, None
    else:
        left = last.acknowledged - first.acknowledged
    return max(0, more + left) / (ended - began), left / (ended - began)


def _describe(one: _Watched, lost: Mapping[str, Sequence[Loss]]) -> dict[str, Any]:
    """Return what is told of a source in a tick; `lost`: what is known to be lost, by source."""
    notes = [one.seen[-1][1].note] if one.seen else []
    notes += [in_words(found)] if (found := lost.get(one.source.name)) else []
    gauge = one.seen[-1][1] if one.seen else None
    came, left = measure_rates(one.seen)
    return {
        "source": one.source.name,
        "depth": gauge.depth if gauge else None,
        "consumers": gauge.consumers if gauge else None,
        "in_per_second": None if came is None else round(came, 2),
        "out_per_second": None if left is None else round(left, 2),
        "oldest_at": iso(gauge.oldest) if gauge and gauge.oldest else None,
        "note": "; ".join(filter(None, notes)) or None,
        "error": str(one.error) if one.error else None,
    }


class _Replays:
    """The plans whose letters change their state while one looks."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._letters: dict[str, int] = {}
        self._before: dict[str, Mapping[str, int]] = {}
        self._moving: dict[str, None] = {}
        self._back: dict[str, int] = {}
        self._segments = -1

    def list_moving(self) -> list[dict[str, Any]]:
        """Return those that are being sent, or were since the first look: how far they are, and what came
        back."""
        found = dict(count_sent(self._workspace, self._letters))
        for plan, states in found.items():
            if states["sending"] or states != self._before.get(plan, states):
                self._moving[plan] = None
        self._before = found
        return [
            {"plan": plan, "states": found[plan], "came_back": back}
            for plan, back in self._count_returned().items()
        ]

    def _count_returned(self) -> Mapping[str, int]:
        """Count anew when a pull has added to the archive: before that nothing came back."""
        store, settings = self._workspace.store, self._workspace.settings
        segments = len(store.list("manifests/")) if self._moving else 0
        if self._moving.keys() != self._back.keys() or segments != self._segments:
            self._segments = segments
            self._back = {plan: came_back.count(store, settings, plan).total() for plan in self._moving}
        return self._back
