"""An archive, a configuration and a queue to replay into."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.planning import Planning
from support.replaying import QueueFile, Replaying, settings

from dlq.archive.storage.store import LocalStore
from dlq.core.settings import Settings
from dlq.replay.ledger import opened
from dlq.replay.ledger.contract import Ledger


@pytest.fixture
def config(tmp_path: Path) -> Settings:
    return settings(tmp_path / "archive", replay={"window": 40})


@pytest.fixture
def queue(tmp_path: Path) -> QueueFile:
    return QueueFile(tmp_path / "orders.queue")


@pytest.fixture
def ledger(config: Settings, store: LocalStore) -> Iterator[Ledger]:
    store.put("here", b"")
    with opened(config.ledger, store) as book:
        yield book


@pytest.fixture
def replay(store: LocalStore, config: Settings, queue: QueueFile, ledger: Ledger) -> Replaying:
    return Replaying(store, config, queue, ledger)


@pytest.fixture
def plan(store: LocalStore, config: Settings, queue: QueueFile) -> Planning:
    return Planning(store, config, queue)
