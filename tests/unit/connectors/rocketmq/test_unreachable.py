"""An address that nobody reaches is told with who named it."""

import pytest

from dlq.connectors.rocketmq.link.connection import Access, Link
from dlq.core.errors import Unreachable


def test_an_address_that_a_name_server_named_is_told_with_the_remedy() -> None:
    with pytest.raises(Unreachable, match=r"a name server \(ns1:9876\) names that address.*\(brokerIP1\)"):
        Link("127.0.0.1:1", Access(timeout=2), named_by="a name server (ns1:9876)")


def test_an_address_of_the_configuration_is_told_alone() -> None:
    with pytest.raises(Unreachable, match=r"at 127\.0\.0\.1:1: Connection refused$"):
        Link("127.0.0.1:1", Access(timeout=2), named_by="brokers.pay.url")
