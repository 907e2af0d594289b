"""What a look at a queue may do to its letters, and which pulls are refused without `--force`."""

from typing import Any

from support.rows import each_row

from dlq.connectors.base import Mode
from dlq.connectors.rabbitmq.look.doctor import may_release
from dlq.connectors.rabbitmq.look.effects import harm
from dlq.connectors.rabbitmq.look.topology import Topology, limit_in_force, version_of

QUORUM: dict[str, Any] = {"kind": "quorum", "policies_known": True}
CLASSIC: dict[str, Any] = {"kind": "classic", "policies_known": True}
FULL: dict[str, Any] = {"arguments": {"x-max-length": 100}, "counted": 90}


@each_row(("known", "mode", "why"), [
    (CLASSIC, "copy", None),
    (CLASSIC, "drain", None),
    ({**CLASSIC, "flags": {"auto_delete": True}}, "drain", "it is auto-delete"),
    ({**CLASSIC, "flags": {"auto_delete": True}}, "copy", "it is auto-delete"),
    ({**CLASSIC, **FULL}, "copy", "it is nearly full"),
    ({**CLASSIC, **FULL}, "drain", None),
    ({**CLASSIC, **FULL, "policy": {"overflow": "reject-publish-dlx"}}, "copy", None),
    ({**QUORUM, **FULL, "policy": {"overflow": "reject-publish-dlx"}}, "copy", "it is nearly full"),
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


@each_row(("topology", "version", "may"), [
    ({"queue_type": "quorum", "delivery_limit": 1}, (4, 3, 0), True),
    ({"queue_type": None}, (4, 3, 0), True),
    ({"queue_type": "classic"}, (4, 0, 5), True),
    ({"queue_type": "quorum", "delivery_limit": 20}, (4, 0, 5), True),
    ({"queue_type": "quorum", "delivery_limit": 9}, (4, 2, 9), False),
    ({"queue_type": "quorum", "delivery_limit": None}, (4, 0, 5), True),
    ({"queue_type": "quorum", "delivery_limit": None, "policies_known": False}, (4, 0, 5), False),
    ({"queue_type": None, "policies_known": False}, (4, 0, 5), False),
])  # fmt: skip
def test_letters_are_released_where_that_counts_not_or_the_limit_leaves_room(
    topology: dict[str, Any], version: tuple[int, ...], may: bool
) -> None:
    assert may_release({"policies_known": True, **topology}, version) is may


@each_row(("kind", "argument", "policy", "version", "limit"), [
    ("classic", 5, None, "4.3.6", None), ("quorum", None, None, "3.10.8", None),
    ("quorum", None, None, "4.0.5", 20), ("quorum", 5, 3, "3.10.8", 3), ("quorum", 5, 9, "4.3.6", 5),
    ("quorum", -1, None, "4.3.6", None), ("quorum", -1, 7, "4.3.6", 7), ("quorum", -1, None, "3.10.8", -1),
])  # fmt: skip
def test_the_delivery_limit_in_force(
    kind: str, argument: int | None, policy: int | None, version: str, limit: int | None
) -> None:
    arguments = {} if argument is None else {"x-delivery-limit": argument}
    policies = {} if policy is None else {"delivery-limit": policy}
    assert limit_in_force(kind, arguments, policies, version_of(version)) == limit


def test_the_smaller_of_an_argument_and_a_policy_is_in_force() -> None:
    both = Topology(arguments={"x-message-ttl": 500, "x-overflow": "drop-head"}, policy={"message-ttl": 90})
    assert [*map(both.setting, ("message-ttl", "overflow", "expires"))] == [90, "drop-head", None]
