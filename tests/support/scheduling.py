"""Which tests run one after the other in one worker, so that their server starts once: a plugin of pytest."""

import re
from typing import Any

import pytest
from support.brokers.activemq.broker import VERSIONS as ACTIVEMQ
from support.brokers.kafka.install import VERSIONS as KAFKA
from support.brokers.rabbitmq.fixtures import VERSIONS as RABBITMQ
from support.brokers.rocketmq.install import VERSIONS as ROCKETMQ
from support.tiers import is_slow
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

_SERVICES, _UNIT, _SPARK = "tests/services/", "tests/unit/", "tests/unit/analyzers/spark/"
_BROKERS = (*ACTIVEMQ, *ROCKETMQ, *KAFKA, *RABBITMQ)  # a `4` beside another's version counts something
_LONG = ("tests/services/rabbitmq/test_witness.py", "tests/services/rabbitmq/", "tests/services/coverage/")
"""RabbitMQ's tests wait four times as long as those of any other broker, mostly for its statistics: they are
four groups (these three, and what lies elsewhere), and each may get a node of its own."""


def group_of(nodeid: str) -> str:
    """The broker's version for a test of one, all that use the one Spark session, else the file."""
    file, _, test = nodeid.partition("::")
    if file.startswith(_UNIT):
        return _SPARK if file.startswith(_SPARK) else file
    words = re.split(r"[\[\]-]", test)
    version = next((v for v in _BROKERS if v in words[1:]), None)
    if version in RABBITMQ:
        return f"{version} {next((part for part in _LONG if file.startswith(part)), '')}"
    return version or file


def rank_of(nodeid: str) -> int:
    """Those of the one Spark session come first, which compute while the others wait: of one broker each in a
    worker of its own. What takes no worker long comes last, so that all of them end together."""
    group = group_of(nodeid)
    if group == _SPARK:
        return 0
    if group.partition(" ")[0] in _BROKERS:
        return 1
    if nodeid.startswith(_SERVICES):
        return 2
    return 3 if is_slow(nodeid) else 4


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes the longest comes first."""
    items.sort(key=lambda item: rank_of(item.nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """The groups that workers get. `--dist loadgroup` of xdist 3.8 has no effect with pytest 9.2, whose nodes
    keep their ids elsewhere."""
    return ByGroup(config, log)


class ByGroup(LoadScopeScheduling):
    """Each group goes to one worker, and a worker that dies costs the run one test.

    xdist 3.8 hands out again what a dead worker had finished, and waits for ever for a test of it; and a
    worker runs no test before it was given the next one.
    """

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)

    def remove_node(self, node: WorkerController) -> str | None:
        """The test that a worker died of; what it had not begun goes to others."""
        groups = self.assigned_work.pop(node)
        left = [(group, test) for group, tests in groups.items() for test, done in tests.items() if not done]
        if not left:
            return None
        group, died_of = left[0]
        groups[group][died_of] = True
        self.workqueue.update({group: groups[group] for group, _ in left[1:]})
        for other in self.assigned_work:
            self._reschedule(other)
        return died_of

    def _reschedule(self, node: WorkerController) -> None:
        while not node.shutting_down and self._pending_of(self.assigned_work[node]) <= 2:
            super()._reschedule(node)
