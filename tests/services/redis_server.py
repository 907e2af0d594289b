"""A private Redis server for tests, with an append-only file that each write reaches: nothing is lost."""

from collections.abc import Iterator, Sequence

import pytest
import redis
from services.ledger_servers import Server, why_missing

__all__ = ["Redis", "redis_url", "why_missing"]


class Redis(Server):
    """Redis from Debian's package. `options` are added to its command line."""

    kind, user = "redis", "redis"

    def __init__(self, *options: str) -> None:
        self.options = options or ("--appendonly", "yes", "--appendfsync", "always")
        super().__init__()

    def command(self) -> Sequence[str]:
        places = ["--dir", str(self.folder), "--bind", "127.0.0.1", "--port", str(self.port)]
        return ["redis-server", *places, "--save", "", *self.options]

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def _answers(self) -> bool:
        try:
            with redis.Redis.from_url(self.url) as client:
                return bool(client.ping())
        except redis.RedisError:
            return False


@pytest.fixture(scope="session", params=["redis"])
def redis_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a server that all tests of a run share: use keys, or databases, of your own."""
    server = Redis()
    server.start()
    yield server.url
    server.stop()
