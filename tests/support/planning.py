"""`plan(...)` with a test's archive, and what is in the plan's file."""

import json

from support.replaying import QueueFile, brokers

from dlq.archive.storage.store import LocalStore
from dlq.core.settings import Settings
from dlq.replay.plans import planfile
from dlq.replay.plans.plan import make
from dlq.replay.plans.planfile import Header
from dlq.replay.plans.wanted import Wanted


class Planning:
    """`plan(...)` with this test's archive."""

    def __init__(self, store: LocalStore, config: Settings, queue: QueueFile) -> None:
        self.store, self.config, self.queue = store, config, queue

    def __call__(self, wanted: Wanted | None = None) -> Header:
        with brokers(self.config, self.queue) as opened:
            return make(self.store, self.config, wanted or Wanted(), opened)


def lines(plan: Planning, header: Header) -> list[dict[str, object]]:
    return [json.loads(line) for line in plan.store.get(planfile.name_of(header.plan)).splitlines()]


def ids(plan: Planning, header: Header) -> list[str]:
    return [one.record_id for one in planfile.letters(plan.store, header.plan)]
