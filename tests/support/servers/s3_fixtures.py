"""A real S3 server for the tests of a run, and what its user has in the environment."""

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from botocore.loaders import JSONFileLoader
from support.servers.s3_server import BUCKET, S3Server, why_missing

__all__ = ["s3_location", "s3_server", "why_missing"]

_read = JSONFileLoader.load_file


@cache
def _description(path: str) -> Any:
    return _read(JSONFileLoader(), path)


# Each command makes a session of its own, and for each botocore would read megabytes of JSON once more.
JSONFileLoader.load_file = lambda _self, path: _description(path)


@pytest.fixture(scope="session", params=["versitygw"])
def s3_server() -> Iterator[S3Server]:
    """The server that all tests of a run share."""
    server = S3Server()
    server.start()
    yield server
    server.stop()


@pytest.fixture
def s3_location(s3_server: S3Server, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """An archive of the test's own, and the environment to reach it."""
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    return f"s3://{BUCKET}/{abs(hash(request.node.nodeid)):x}"
