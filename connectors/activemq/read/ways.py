"""How letters of Artemis got where they lie, asked while they are read.

What an address does with its dead, and that a queue has killed none, decide what some traces prove. A broker
may have more of both than one asks of before a pull; of these, those count that letters name.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from dlq.connectors.activemq.look.artemis import MOST_ASKED
from dlq.connectors.base import Batch, Mode
from dlq.connectors.chain import ChainReading, Kept, Scan, WhyIncomplete
from dlq.core.errors import DlqError
from dlq.core.record import Record

_MOST_NAMED = 20 * MOST_ASKED
_NEVER = 2**63 - 1
"""Since when a queue has killed none of which nobody says that it has not; in microseconds."""
_ADDRESS = ("_AMQ_ORIG_ADDRESS", "x-opt-ORIG-ADDRESS", "JMS_AMQP_MA_x-opt-ORIG-ADDRESS")
_QUEUE = ("_AMQ_ORIG_QUEUE", "x-opt-ORIG-QUEUE", "JMS_AMQP_MA_x-opt-ORIG-QUEUE", "_HQ_ORIG_QUEUE")
"""How the protocols call where a letter died."""


class _Ways(Protocol):
    """What `artemis.Management` tells of some addresses and queues."""

    def settings_of(self, addresses: Iterable[str]) -> Mapping[str, Mapping[str, Any]]:
        """Return names of facts -> address -> what holds there."""

    def killed_none(self, queues: Iterable[str]) -> Mapping[str, int]:
        """Return those that have killed nothing -> since when."""


class WaysReading(ChainReading):
    """A chain whose topology grows by what its letters' addresses do with their dead, and in the end by which
    of their queues have killed none: asked earlier, a queue might kill one that is still to be read."""

    def __init__(
        self,
        ways: _Ways,
        scans: Sequence[Scan],
        mode: Mode,
        limit: int | None,
        shared: Mapping[str, Any],
        why_incomplete: WhyIncomplete | None = None,
        kept: Kept | None = None,
        unread: Mapping[str, DlqError] | None = None,
    ) -> None:
        """`ways` is asked, where it has told what is `shared`."""
        super().__init__(scans, mode, limit, shared, why_incomplete, kept, unread)
        self._ways, self._most = ways, MOST_ASKED if shared else 0

    def batches(self) -> Iterator[Batch]:
        """Yield the batches of the chain."""
        addresses, queues = set[str](), list[str]()
        for batch in super().batches():
            known = addresses | self.topology.get("places_of_the_dead", {}).keys()
            new = [*_new_names(batch.records, _ADDRESS, known, self._most - len(addresses))]
            addresses.update(new)
            self._learn(self._ways.settings_of(new) if new else {})
            named = [*_new_names(batch.records, _QUEUE, queues, _MOST_NAMED - len(queues))]
            if named:  # what an earlier pull learned says nothing of these letters
                self._learn({"killed_none": dict.fromkeys(named, _NEVER)})
            queues += named
            yield batch
        if queues and self._most:
            self._learn({"killed_none": self._ways.killed_none(sorted(queues[: self._most]))})

    def _learn(self, told: Mapping[str, Mapping[str, Any]]) -> None:
        grown = {name: {**self.topology.get(name, {}), **facts} for name, facts in told.items()}
        self.topology = {**self.topology, **grown}


def _new_names(
    records: Iterable[Record], headers: Sequence[str], known: Iterable[str], most: int
) -> Iterable[str]:
    """Return what letters name in one of these headers and is not known yet."""
    named = {record.headers.get(header) or "" for record in records for header in headers}
    return sorted(named - {""} - set(known))[:most]
