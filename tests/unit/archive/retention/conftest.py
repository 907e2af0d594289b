"""A shop of the test's own."""

from pathlib import Path

import pytest
from support.retaining import Shop


@pytest.fixture
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Shop:
    return Shop(request.node.nodeid, tmp_path)
