"""Where deaths lead by the definitions of a virtual host; real brokers say the same (`services/coverage`)."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from support.rows import each_row

from dlq.connectors.base import Fate
from dlq.connectors.rabbitmq.look.coverage.deaths import PUBLISHER, predict
from dlq.connectors.rabbitmq.look.definitions import Definitions

Values = Mapping[str, Any]
TO_DLQ = {"dead-letter-exchange": "", "dead-letter-routing-key": "dlq"}
DAY = 86_400_000


def queue(name: str, policy: Values | None = None, **more: Any) -> Values:
    return {"name": name, "type": "classic", "effective_policy_definition": policy or {}, **more}


def exchange(name: str, kind: str, alternate: str | None = None) -> Values:
    return {"name": name, "type": kind, "arguments": {"alternate-exchange": alternate} if alternate else {}}


def bound(source: str, to: str, key: str = "", kind: str = "queue") -> Values:
    return {"source": source, "destination": to, "destination_type": kind, "routing_key": key}


def fates(
    queues: Sequence[Values],
    exchanges: Sequence[Values] = (),
    bindings: Sequence[Values] = (),
    version: tuple[int, ...] = (4, 3, 6),
    policies: Mapping[str, Values] | None = None,
) -> list[Fate]:
    by_name = [{str(one["name"]): one for one in listed} for listed in (queues, exchanges)]
    return predict(Definitions("shop", version, *by_name, bindings, policies))


def fate_of(name: str, death: str, *definitions: Any, **more: Any) -> Fate:
    return next(one for one in fates(*definitions, **more) if (one.name, one.death) == (name, death))


KEPT: Mapping[str, tuple[str, tuple[Any, ...]]] = {
    "reject: its dead-letter queue": ("dlq", ([queue("q", TO_DLQ), queue("dlq")],)),
    "reject: an argument wins over a policy": (
        "own",
        ([queue("q", TO_DLQ, arguments={"x-dead-letter-routing-key": "own"}), queue("dlq"), queue("own")],),
    ),
    "reject: through a retry queue, back to where it died": (
        "q",
        ([queue("q", TO_DLQ), queue("dlq", {**TO_DLQ, "dead-letter-routing-key": "q", "message-ttl": 9})],),
    ),
    "reject: a queue that keeps it over a night": (
        "dlq",
        ([queue("q", TO_DLQ), queue("dlq", {"message-ttl": DAY})],),
    ),
    "reject: somebody consumes it, before it ends": (
        "dlq",
        ([queue("q", TO_DLQ), queue("dlq", {"message-ttl": 9}, consumers=1)],),
    ),
    "reject: at least once, it waits for its target": (
        "q",
        (
            [
                queue(
                    "q",
                    {**TO_DLQ, "dead-letter-strategy": "at-least-once", "overflow": "reject-publish"},
                    type="quorum",
                )
            ],
        ),
    ),
    "overflow: refused, its publisher hears of it": (
        PUBLISHER,
        ([queue("q", {"max-length": 1, "overflow": "reject-publish"})],),
    ),
    "overflow: of a quorum queue by its policy": (
        PUBLISHER,
        (
            [
                queue(
                    "q",
                    {"max-length": 1, "overflow": "reject-publish"},
                    type="quorum",
                    arguments={"x-overflow": "drop-head"},
                )
            ],
        ),
    ),
    "reject: back to a full queue, in which it left room": (
        "q",
        ([queue("q", {**TO_DLQ, "dead-letter-routing-key": "q", "max-length": 1}, messages_ready=1)],),
    ),
    "delivery limit: of RabbitMQ 4, unless told": (
        "dlq",
        ([queue("q", TO_DLQ, type="quorum"), queue("dlq")],),
    ),
    "unroutable: through an alternate exchange": (
        "dlq",
        ([queue("dlq")], [exchange("q", "direct", "ae"), exchange("ae", "fanout")], [bound("ae", "dlq")]),
    ),
}
BY_X = {"dead-letter-exchange": "x"}
LOST: Mapping[str, tuple[str, tuple[Any, ...]]] = {
    "reject: no dead-letter exchange": ("it has no dead-letter exchange", ([queue("q")],)),
    "reject: no such queue": ("there is no queue dlq", ([queue("q", TO_DLQ)],)),
    "reject: no such exchange": ("there is no exchange x", ([queue("q", BY_X)],)),
    "reject: not bound": (
        "the exchange x takes the key q to no queue",
        ([queue("q", BY_X), queue("dlq")], [exchange("x", "direct")], [bound("x", "dlq", "other")]),
    ),
    "reject: a full target refuses": (
        "dlq is full, and refuses more",
        (
            [
                queue("q", TO_DLQ),
                queue("dlq", {"max-length": 1, "overflow": "reject-publish"}, messages_ready=1),
            ],
        ),
    ),
    "reject: a full target drops its oldest": (
        "each one more removes its oldest",
        ([queue("q", TO_DLQ), queue("dlq", {"max-length-bytes": 9}, message_bytes_ready=9)],),
    ),
    "reject: shorter than a night": (
        "dlq keeps it for 1h",
        ([queue("q", TO_DLQ), queue("dlq", {"message-ttl": 3_600_000})],),
    ),
    "reject: the queue for it goes": (
        "dlq keeps it for 1h",
        ([queue("q", TO_DLQ), queue("dlq", {"expires": 3_600_000})],),
    ),
    "expiry: a circle": (
        "in a circle",
        ([queue("q", {**TO_DLQ, "dead-letter-routing-key": "q", "message-ttl": 9})],),
    ),
    "discard: the queue goes": (
        "after 9.0s without use".replace("9.0", "9"),
        ([queue("q", {"expires": 9000})],),
    ),
    "unroutable: no alternate exchange": ("no binding takes it", ([], [exchange("q", "topic")])),
}
UNKNOWN: Mapping[str, tuple[str, tuple[Any, ...]]] = {
    "reject: policies are not shown": (
        "the policies of q are not shown",
        ([{"name": "q", "type": "classic"}],),
    ),
    "reject: more than the key": (
        "x routes by more than the key",
        ([queue("q", BY_X), queue("dlq")], [exchange("x", "headers")], [bound("x", "dlq")]),
    ),
    "reject: a key that may or may not be bound": (
        "its key decides",
        (
            [queue("q", BY_X), queue("dlq")],
            [exchange("x", "direct"), exchange("in", "topic")],
            [bound("in", "q", "order.*"), bound("x", "dlq", "order.new")],
        ),
    ),
    "reject: patterns that have keys in common": (
        "its key decides",
        (
            [queue("q", BY_X), queue("dlq")],
            [exchange("x", "topic"), exchange("in", "topic")],
            [bound("in", "q", "order.*"), bound("x", "dlq", "*.new")],
        ),
    ),
    "unroutable: a policy that is not shown": (
        "the user may not see policies",
        ([], [{**exchange("q", "direct"), "policy": "p"}]),
    ),
}


@each_row("what, where, definitions", [(what, *row) for what, row in KEPT.items()])
def test_it_is_kept(what: str, where: str, definitions: tuple[Any, ...]) -> None:
    found = fate_of("q", what.partition(":")[0], *definitions)
    assert (found.verdict, found.leads_to) == ("kept", (where,))


@each_row("verdict, what, why, definitions", [
    (verdict, what, *row)
    for verdict, rows in {"lost": LOST, "unknown": UNKNOWN}.items() for what, row in rows.items()
])  # fmt: skip
def test_it_is_lost_or_unknown_and_why(
    verdict: str, what: str, why: str, definitions: tuple[Any, ...]
) -> None:
    found = fate_of("q", what.partition(":")[0], *definitions)
    assert found.verdict == verdict
    assert why in found.why


def test_the_fix_is_a_command_of_the_shell_whatever_a_queue_is_called() -> None:
    found = fate_of("it's; $(rm)", "reject", [queue("it's; $(rm)"), queue("orders.dlq")])
    assert found.fix.startswith("rabbitmqctl set_policy -p shop --priority 1 --apply-to queues 'coverage it'")
    assert '"dead-letter-routing-key": "orders.dlq"' in found.fix
    assert "'\"'\"'s; $(rm)'" in found.fix


def test_what_an_operator_has_set_no_policy_takes_away() -> None:
    to_small = queue("q", {"dead-letter-exchange": "", "dead-letter-routing-key": "small"})
    refuses = {"overflow": "reject-publish"}
    small = {**queue("small", {**refuses, "max-length": 0}), "policy": "p"}
    for own, told in ((refuses, False), ({**refuses, "max-length": 0}, True)):
        found = fate_of("q", "reject", [to_small, small], policies={"p": {"definition": own}})
        assert (found.verdict, "set_policy" in found.fix) == ("lost", told)


def test_a_binding_is_told_once_its_queue_is_there() -> None:
    by_x = [queue("q", {"dead-letter-exchange": "x"})]
    admin = "rabbitmqadmin --vhost shop declare"
    for queues, step in (
        (by_x, "queue --name q.dlq --durable true"),
        (
            [*by_x, queue("q.dlq")],
            "binding --source x --destination-type queue --destination q.dlq --routing-key q",
        ),
    ):
        assert fate_of("q", "reject", queues, [exchange("x", "direct")]).fix == f"{admin} {step}"


def test_chains_and_copies_without_end_are_unknown_in_a_moment() -> None:
    """Each of 60 queues passes what ends in it on to all others."""
    queues = [queue(f"q{n}", {"dead-letter-exchange": "x", "message-ttl": 1}) for n in range(60)]
    began = time.process_time()
    found = fate_of(
        "q0", "reject", queues, [exchange("x", "fanout")], [bound("x", f"q{n}") for n in range(60)]
    )
    assert found.verdict == "unknown"
    assert time.process_time() - began < 5


def test_three_thousand_queues_take_less_than_five_seconds() -> None:
    queues = [queue(f"q{n}", BY_X) for n in range(3000)] + [queue(f"d{n}") for n in range(3000)]
    bindings = [
        one for n in range(3000) for one in (bound("in", f"q{n}", f"k{n}.*"), bound("x", f"d{n}", f"k{n}.#"))
    ]
    began = time.process_time()
    found = fates(queues, [exchange("x", "topic"), exchange("in", "topic")], bindings)
    assert sum(one.verdict == "kept" for one in found) == 6000
    assert time.process_time() - began < 5
