"""Brokers of a test's own."""

from collections.abc import Iterator

import pytest
from support.brokers.activemq.broker import CLASSIC, ActiveMq


@pytest.fixture(params=CLASSIC)
def own_broker(request: pytest.FixtureRequest) -> Iterator[ActiveMq]:
    """A broker that the test may kill."""
    with ActiveMq(request.param) as broker:
        yield broker
