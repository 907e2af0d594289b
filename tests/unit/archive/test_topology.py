"""What a pull learned of its broker is kept as far as it can be read again: a broker may tell anything."""

from typing import Any

import pytest

from dlq.archive import topology
from dlq.core import bounded_json

KNOWN: dict[str, Any] = {
    "format": 1,
    "source": "s",
    "broker": "b",
    "reads": {"queue": "q"},
    "delivery_limits": {"q": 3},
    "arguments": {"x-queue-type": "quorum"},
}
DEEP: list[Any] = []
for _ in range(40):
    DEEP = [DEEP]
ODD = [2**64, -(2**64), "\ud800", [["x", 1]], {"a": {"b": []}}, DEEP, float("inf"), True]


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: repr(odd)[:20])
@pytest.mark.parametrize("field", sorted(topology._KNOWN.keys() - {"source", "broker", "reads"}))
def test_what_a_broker_tells_can_always_be_read_again(field: str, odd: Any) -> None:
    for told in (odd, {"q": odd}, {"q": {"a": odd}}, {odd if isinstance(odd, str) else "q": 1}, [odd]):
        data = topology.encode({**KNOWN, field: told, "unread": told})
        found = topology.read("topology/p.json", data)
        assert found["source"] == "s"
        assert found["arguments"] == KNOWN["arguments"]


def test_more_than_can_be_read_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_json, "LARGEST", 900)
    data = topology.encode({**KNOWN, **{f"a{n}": "x" * 100 for n in range(20)}})
    assert topology.read("topology/p.json", data)["reads"] == {"queue": "q"}
