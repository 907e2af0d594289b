"""Which tests run one after the other in one worker: those that share a server, so that it starts once."""

import pytest

_SHARED = ("rabbit_node", "stomp_broker", "rocket_cluster", "ledger_server", "s3_server", "spark")
"""Fixtures that live as long as the session, and take seconds to start."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The others go by file."""
    for item in items:
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        used = next((name for name in _SHARED if name in getattr(item, "fixturenames", ())), None)
        group = f"{used} {parameters.get(used, '')}" if used else item.location[0]
        item.add_marker(pytest.mark.xdist_group(group.strip().replace("/", ".")))
