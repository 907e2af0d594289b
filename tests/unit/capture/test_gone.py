"""A letter is gone only where nobody can hold it."""

import pytest

from dlq.capture.pull import proven_depth
from dlq.connectors.base import Gauge


@pytest.mark.parametrize(("gauge", "depth"), [
    (Gauge(7, consumers=0), 7),
    (Gauge(0, consumers=0), 0),
    (Gauge(0, consumers=1), None),  # it may hold them all
    (Gauge(0), None),
    (Gauge(None, consumers=0), None),
])  # fmt: skip
def test_a_depth_says_what_is_there_only_where_nobody_consumes(gauge: Gauge, depth: int | None) -> None:
    assert proven_depth(gauge) == depth
