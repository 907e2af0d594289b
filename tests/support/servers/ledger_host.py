"""Another host that applies a plan: a process with a host name of its own, which sees no lock of others.

python tests/support/servers/ledger_host.py HOST ARCHIVE LEDGER_URL LEASE PLAN QUEUE [PLACE LETTERS SIGNAL]

It sends itself a signal when so many letters are at a place (see `Strike`).
"""

import socket
import sys
from contextlib import AbstractContextManager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from support.replaying import QueueFile, Strike, brokers, settings

from dlq.archive.storage.store import LocalStore
from dlq.core.settings import Settings
from dlq.replay.ledger import opened
from dlq.replay.runs.apply import apply


def configured(archive: Path, url: str, lease: float) -> Settings:
    """What all hosts have in their configuration."""
    return settings(archive, ledger={"url": url, "lease": f"{lease:g}s"}, replay={"window": 40})


class OfAnotherHost(LocalStore):
    """The archive as another host sees it: a lock of one host does not keep the other out, nor does it look
    like that of another plan."""

    def lock(self, name: str) -> AbstractContextManager[None]:
        return super().lock(f"{socket.gethostname()}-{name}")


def main(host: str, archive: str, url: str, lease: str, plan: str, queue_path: str, *strike: str) -> None:
    """Says that it is ready, waits for a line, applies the plan, and says how many letters were sent."""
    socket.gethostname = lambda: host
    config = configured(Path(archive), url, float(lease))
    store = OfAnotherHost(archive)
    queue = QueueFile(Path(queue_path))
    queue.pause = 0.002
    if strike:
        queue.strike = Strike(strike[0], *map(int, strike[1:]))
    with opened(config.ledger, store) as book, brokers(config, queue) as some:
        print("ready", flush=True)
        sys.stdin.readline()
        print(apply(store, config, plan, some, book).sent)


if __name__ == "__main__":
    main(*sys.argv[1:])
