"""Which servers tests share, and which tests run one after the other in one worker: it starts once there."""

import gc
import re
from typing import Any

import pytest

pytest_plugins = ["support.real_servers"]

_SERVICES, _UNIT, _SPARK = "tests/services/", "tests/unit/", "tests/unit/analyzers/spark/"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """The groups that workers get. `--dist loadgroup` of xdist 3.8 has no effect with pytest 9.2, whose nodes
    keep their ids elsewhere."""
    from xdist.scheduler import LoadScopeScheduling

    class ByServer(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    return ByServer(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests of one RabbitMQ or RocketMQ take one worker the longest: they come first, and those of the
    one Spark session before what needs no server."""
    from support.brokers.rabbitmq.fixtures import VERSIONS as RABBITMQ
    from support.brokers.rocketmq.install import VERSIONS as ROCKETMQ

    def rank(item: pytest.Item) -> int:
        group = group_of(item.nodeid)
        if group in (*RABBITMQ, *ROCKETMQ):
            return 0
        if item.nodeid.startswith(_SERVICES):
            return 1
        return 2 if group == _SPARK else 3

    items.sort(key=rank)


def pytest_collection_finish() -> None:
    """Thousands of tests live to the end: nobody need look through them for what may go."""
    gc.freeze()


def group_of(nodeid: str) -> str:
    """The broker's version for a test of one, all that use the one Spark session, else the file."""
    from support.brokers.activemq.broker import VERSIONS as ACTIVEMQ
    from support.brokers.kafka.install import VERSIONS as KAFKA
    from support.brokers.rabbitmq.fixtures import VERSIONS as RABBITMQ
    from support.brokers.rocketmq.install import VERSIONS as ROCKETMQ

    file, _, test = nodeid.partition("::")
    if file.startswith(_UNIT):
        return _SPARK if file.startswith(_SPARK) else file
    words = re.split(r"[\[\]-]", test)
    version = next((v for v in (*RABBITMQ, *ACTIVEMQ, *ROCKETMQ, *KAFKA) if v in words[1:]), None)
    return version or file
