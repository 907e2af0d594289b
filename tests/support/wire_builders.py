"""What tests on brokers make alike: a configuration of one source, what a command says of it, and a drain in
which something happens."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support import preloaded
from support.brokers.rabbitmq.fixtures import PASSWORD_VARIABLE, Rabbit

from dlq.archive.storage.store import LocalStore
from dlq.capture.attempt import Tally
from dlq.capture.pull import PullOptions, PullResult, proven_depth, pull
from dlq.connectors.base import Connector
from dlq.core.settings import Source


def configure(folder: Path, broker: str, source: str) -> None:
    """A configuration of a broker `b` and a source `s`, by the lines of their tables."""
    text = f'[brokers.b]\n{broker}\n[sources.s]\nbroker = "b"\n{source}\n'
    (folder / "dlq.toml").write_text(text)


def configure_rabbitmq(
    folder: Path, rabbit: Rabbit, queue: str, more: str = "", managed: bool = True
) -> None:
    """A broker `shop` and its source `orders`, which is drained; with `more` behind that."""
    broker = rabbit.broker()
    management = f'management_url = "{broker.management_url}"\n' if managed and broker.management_url else ""
    (folder / "dlq.toml").write_text(
        f'[brokers.shop]\nkind = "rabbitmq"\nurl = "{broker.url}"\n'
        f'password_env = "{PASSWORD_VARIABLE}"\n{management}'
        f'[sources.orders]\nbroker = "shop"\nqueue = "{queue}"\nmode = "drain"\n{more}'
    )


def dlq(folder: Path, *words: str, code: int = 0) -> Any:
    """What a command prints."""
    return dlq_aloud(folder, *words, code=code)[0]


def dlq_aloud(folder: Path, *words: str, code: int = 0) -> tuple[Any, str]:
    """What a command prints, and what it says beside that."""
    done = preloaded.run(["-o", "json", *words], folder)
    assert done.returncode == code, (done.stdout, done.stderr[-2000:])
    return json.loads(done.stdout), done.stderr


def drain_and_end(
    connector: Connector, source: Source, folder: Path, end: Callable[[], object]
) -> PullResult:
    """A drain, in which `end` is called once some letters are durable."""
    ended: list[bool] = []

    def end_once(tally: Tally, _total: int | None) -> None:
        if tally.captured and not ended:
            ended.append(True)
            end()

    depth = lambda: proven_depth(connector.gauge(source))  # noqa: E731
    done = pull(LocalStore(str(folder)), connector, source, PullOptions("drain"), end_once, depth=depth)
    assert ended
    return done
