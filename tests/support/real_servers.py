"""The brokers, databases and stores that all tests of a run share, as a plugin of pytest.

As a plugin, because a fixture that a module or a folder imports is one more fixture there, and starts its
server once more. A server that is missing is said aloud; on CI it is an error.
"""

import os
from typing import Any

import pytest
from support.brokers.activemq import fixtures as activemq_fixtures
from support.brokers.activemq.fixtures import sender, stomp, stomp_broker
from support.brokers.kafka import install as kafka_install
from support.brokers.kafka.fixtures import kafka, kafka_node, nothing_on_its_way
from support.brokers.rabbitmq.fixtures import rabbit, rabbit_node, why_missing
from support.brokers.rocketmq import fixtures as rocketmq_fixtures
from support.brokers.rocketmq.fixtures import rocket, rocket_cluster, rocket_server
from support.servers import ledgers as ledger_servers
from support.servers import s3_fixtures, worker_python
from support.servers.redis_server import redis_url
from support.servers.s3_fixtures import s3_location, s3_server

__all__ = [
    "kafka", "kafka_node", "nothing_on_its_way", "rabbit", "rabbit_node", "redis_url", "rocket",
    "rocket_cluster", "rocket_server", "s3_location", "s3_server", "sender", "stomp",
    "stomp_broker",
]  # fmt: skip

# Fixture that starts a broker -> why that version of it cannot be started here (None: it can).
_WHY_MISSING: dict[str, Any] = {
    "rabbit_node": why_missing,
    "rabbit_cluster": why_missing,
    "stomp_broker": activemq_fixtures.why_missing,
    "activemq_pair": activemq_fixtures.why_missing,
    "rocket_server": rocketmq_fixtures.why_missing,
    "rocket_pair": rocketmq_fixtures.why_missing,
    "rocket_version": rocketmq_fixtures.why_missing,
    "kafka_node": kafka_install.why_missing,
    "ledger_server": ledger_servers.why_missing,
    "redis_url": ledger_servers.why_missing,
    "s3_server": s3_fixtures.why_missing,
    "worker_program": worker_python.why_missing,
}
_missing: dict[str, int] = {}
_BROKERS = ("rabbit_node", "stomp_broker", "rocket_server", "kafka_node")


@pytest.fixture(scope="session", params=["venv"])
def worker_program() -> str:
    """What the workers of a cluster run: a Python with pyarrow and nothing else."""
    return worker_python.PYTHON


def _reason(item: pytest.Item) -> str | None:
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    for fixture, why in _WHY_MISSING.items():
        reason = why(parameters[fixture]) if fixture in parameters else None
        if reason:
            return f"{fixture} {parameters[fixture]}: {reason}"
    return None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of the tests to run take out those whose broker is missing; on CI refuse to run without it."""
    reasons = [(item, _reason(item)) for item in items]
    left_out = [item for item, reason in reasons if reason]
    for reason in filter(None, (reason for _, reason in reasons)):
        _missing[reason] = _missing.get(reason, 0) + 1
    if left_out and os.environ.get("CI") == "true":
        raise pytest.UsageError(f"brokers are missing: {'; '.join(_missing)}")
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item, reason in reasons if not reason]


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: Any, nextitem: Any) -> None:
    """End the broker that a worker's next test does not need: all tests of a version come one after the other
    there, and while it waits for the end of the run a RocketMQ takes 3 to 6 % of a processor."""
    if not hasattr(item.config, "workerinput"):
        return
    needed = getattr(getattr(nextitem, "callspec", None), "params", {}).values()
    for name in _BROKERS:
        for fixture in item.session._fixturemanager.getfixturedefs(name, item) or ():
            if fixture.cached_result is not None and fixture.cached_result[1] not in needed:
                fixture.finish(item._request)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker tells the process that reports."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["missing"] = _missing


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Every worker has collected all tests."""
    _missing.update(getattr(node, "workeroutput", {}).get("missing", {}))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say which tests did not run."""
    for reason, number in _missing.items():
        terminalreporter.write_line(f"WARNING: {number} tests DID NOT RUN: {reason}", red=True, bold=True)
