"""A pull, an apply, or a move of the ledger, as a process that is killed at its n-th durable step."""

import os
import signal
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from support import preloaded
from support.replaying import QueueFile, Replaying, settings

from dlq.archive.storage.store import LocalStore
from dlq.capture import attempt
from dlq.capture.pull import PullOptions, pull
from dlq.connectors import memory
from dlq.connectors.memory import MemoryConnector, MemoryReading
from dlq.core.settings import Broker, Settings, Source
from dlq.replay import ledger
from dlq.replay.ledger import sql
from dlq.replay.ledger.database import File

SEAMS: list[tuple[Any, str]] = [
    (os, "fsync"), (os, "link"), (os, "rename"), (os, "replace"), (os, "unlink"),
    (File, "run"), (QueueFile, "_is_at"), (MemoryReading, "acknowledge"), (MemoryReading, "settled_position"),
]  # fmt: skip
"""What makes something durable, at the archive, the ledger and the broker."""
SOURCE = Source("orders", "shop", queue="orders.dlq")


def of(folder: Path, url: str = "sqlite") -> Settings:
    """The configuration of the archive in a folder, with the ledger at `url`."""
    return settings(folder / "archive", replay={"window": 3}, ledger={"url": url})


def take(folder: Path) -> None:
    """Drain the queue."""
    connector: Any = MemoryConnector(Broker("shop", "memory", f"memory://{folder}/broker.db"))
    result = pull(LocalStore(f"{folder}/archive"), connector, SOURCE, PullOptions("drain"))
    assert result.error is None


def send(folder: Path) -> None:
    """Apply the one plan."""
    store, config = LocalStore(f"{folder}/archive"), of(folder)
    [plan] = {name.partition("/")[2][:22] for name in store.list("plans/")}
    with ledger.opened(config.ledger, store) as book:
        Replaying(store, config, QueueFile(folder / "orders.queue"), book).apply(plan)


def move(folder: Path) -> None:
    """Move the ledger out of the archive."""
    ledger.move(of(folder, f"sqlite:///{folder}/new.db").ledger, LocalStore(f"{folder}/archive"))


def at_step(number: int) -> None:
    """Kill -9 before the step of this number, from 1 on."""
    so_far = count(1)

    def dying(step: Callable[..., Any]) -> Callable[..., Any]:
        def stepping(*words: Any, **more: Any) -> Any:
            if next(so_far) == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return step(*words, **more)

        return stepping

    for owner, name in SEAMS:
        setattr(owner, name, dying(getattr(owner, name)))


def is_killed(work: Callable[[Path], None], folder: Path, number: int) -> bool:
    """Do it in a process that is killed at this step; False where it had fewer."""
    words = [work.__name__, f"{folder}", f"{number}"]
    running = preloaded.start(words, folder, module="support.killed")
    out, err = running.communicate()
    assert running.returncode in (0, -signal.SIGKILL), (out, err)
    return running.returncode != 0


def main() -> int:
    """That process, which does all in small pieces."""
    attempt.SEGMENT_ROWS = memory.MOST_ROWS = sql.CHUNK_OF_ROWS = 2
    work, folder, number = sys.argv[1:]
    at_step(int(number))
    {"take": take, "send": send, "move": move}[work](Path(folder))
    return 0
