"""A private Redis server that all tests of a run share."""

from collections.abc import Iterator

import pytest
from support.servers.ledgers import Redis

__all__ = ["Redis", "redis_url"]


@pytest.fixture(scope="session", params=["redis"])
def redis_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a server that all tests of a run share: use keys, or databases, of your own."""
    server = Redis()
    server.start()
    yield server.url
    server.stop()
