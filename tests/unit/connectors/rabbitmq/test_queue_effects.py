"""Which pulls of a queue are refused without `--force`, by what is known of it."""

from typing import Any

import pytest

from dlq.connectors.base import Mode
from dlq.connectors.rabbitmq.look.effects import harm
from dlq.connectors.rabbitmq.look.topology import Topology

QUORUM: dict[str, Any] = {"kind": "quorum", "policies_known": True}
CLASSIC: dict[str, Any] = {"kind": "classic", "policies_known": True}
FULL: dict[str, Any] = {"arguments": {"x-max-length": 100}, "counted": 90}


@pytest.mark.parametrize(("known", "mode", "why"), [
    (CLASSIC, "copy", None),
    (CLASSIC, "drain", None),
    ({**CLASSIC, "flags": {"auto_delete": True}}, "drain", "it is auto-delete"),
    ({**CLASSIC, "flags": {"auto_delete": True}}, "copy", "it is auto-delete"),
    ({**CLASSIC, **FULL}, "copy", "it is nearly full"),
    ({**CLASSIC, **FULL}, "drain", None),
    ({**QUORUM, "delivery_limit": 20}, "copy", "removes a message after 20"),
    ({**QUORUM, "delivery_limit": 20}, "drain", None),
    ({**QUORUM, "delivery_limit": 2}, "drain", None),
    ({**QUORUM, "delivery_limit": 1}, "drain", "its delivery limit of 1 leaves no room"),
    ({**QUORUM, "delivery_limit": 0}, "drain", "its delivery limit of 0 leaves no room"),
    (QUORUM, "copy", None),
    ({"kind": "quorum"}, "copy", "may have a delivery limit by policy"),
    ({}, "copy", "the queue's type is not known"),
    ({}, "drain", "whether it is auto-delete is not known"),
])  # fmt: skip
def test_a_pull_that_would_harm_is_refused_and_says_why(
    known: dict[str, Any], mode: Mode, why: str | None
) -> None:
    said = harm(Topology(**known), 90, mode)
    assert said is None if why is None else said is not None and why in said
