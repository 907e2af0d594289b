"""Where deaths lead by the definitions of a virtual host; real brokers say the same (`services/coverage`)."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from support.rows import each_row

from dlq.connectors.base import Fate
from dlq.connectors.rabbitmq.look.coverage.deaths import PUBLISHER, predict
from dlq.connectors.rabbitmq.look.definitions import Definitions
from dlq.connectors.rabbitmq.look.routes import topic_matches

Values = Mapping[str, Any]
TO_DLQ = {"dead-letter-exchange": "", "dead-letter-routing-key": "dlq"}
DAY, HOUR = 86_400_000, 3_600_000


COUNTS = {"messages_ready": 0, "message_bytes_ready": 0, "consumers": 0}


def queue(name: str, policy: Values | None = None, **more: Any) -> Values:
    return {"name": name, "type": "classic", "effective_policy_definition": policy or {}, **COUNTS, **more}


def uncounted(name: str, policy: Values | None = None) -> Values:
    """As 4.3 shows one without statistics."""
    return queue(name, policy, **dict.fromkeys(COUNTS))


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


TO_Q = {**TO_DLQ, "dead-letter-routing-key": "q"}
BY_X = {"dead-letter-exchange": "x"}
REFUSES = {"max-length": 1, "overflow": "reject-publish"}
AT_LEAST_ONCE = {**TO_DLQ, "dead-letter-strategy": "at-least-once", "overflow": "reject-publish"}


def dying(*, dlq: Values | None = None, **counts: int) -> list[Values]:
    """A queue whose dead letters go to another one, of which there is something to say."""
    return [queue("q", TO_DLQ), queue("dlq", dlq, **counts)]


OPEN = [queue("q", BY_X), queue("dlq")]
IN = [exchange("x", "topic"), exchange("in", "topic")]
FATES: list[tuple[str, str, str, tuple[Sequence[Values], ...]]] = [
    ("kept", "reject: its dead-letter queue", "dlq", (dying(),)),
    ("kept", "reject: an argument wins over a policy", "own",
     ([queue("q", TO_DLQ, arguments={"x-dead-letter-routing-key": "own"}), queue("dlq"), queue("own")],)),
    ("kept", "reject: through a retry queue, back to where it died", "q",
     (dying(dlq={**TO_Q, "message-ttl": 9}),)),
    ("kept", "reject: out of a retry queue before that goes", "q",
     (dying(dlq={**TO_Q, "expires": HOUR, "message-ttl": 9}),)),
    ("kept", "reject: a queue that keeps it over a night", "dlq", (dying(dlq={"message-ttl": DAY}),)),
    ("kept", "reject: over a night, whoever consumes", "dlq",
     ([queue("q", TO_DLQ), uncounted("dlq", {"message-ttl": DAY})],)),
    ("kept", "reject: somebody consumes it, before it ends", "dlq",
     (dying(dlq={"message-ttl": 9}, consumers=1),)),
    ("kept", "reject: at least once, it waits for its target", "q",
     ([queue("q", AT_LEAST_ONCE, type="quorum")],)),
    ("kept", "overflow: refused, its publisher hears of it", PUBLISHER, ([queue("q", REFUSES)],)),
    ("kept", "overflow: of a quorum queue by its policy", PUBLISHER,
     ([queue("q", REFUSES, type="quorum", arguments={"x-overflow": "drop-head"})],)),
    ("kept", "reject: back to a full queue, in which it left room", "q",
     ([queue("q", {**TO_Q, "max-length": 1}, messages_ready=1)],)),
    ("kept", "delivery limit: of RabbitMQ 4, unless told", "dlq",
     ([queue("q", TO_DLQ, type="quorum"), queue("dlq")],)),
    ("kept", "unroutable: through an alternate exchange", "dlq",
     ([queue("dlq")], [exchange("q", "direct", "ae"), exchange("ae", "fanout")], [bound("ae", "dlq")])),
    ("lost", "reject: no dead-letter exchange", "it has no dead-letter exchange", ([queue("q")],)),
    ("lost", "reject: no such queue", "there is no queue dlq", ([queue("q", TO_DLQ)],)),
    ("lost", "reject: no such exchange", "there is no exchange x", ([queue("q", BY_X)],)),
    ("lost", "reject: not bound", "the exchange x takes the key q to no queue",
     (OPEN, [exchange("x", "direct")], [bound("x", "dlq", "other")])),
    ("lost", "reject: a full target refuses", "dlq is full, and refuses more",
     (dying(dlq=REFUSES, messages_ready=1),)),
    ("lost", "reject: a full target drops its oldest", "each one more removes its oldest",
     (dying(dlq={"max-length-bytes": 9}, message_bytes_ready=9),)),
    ("lost", "reject: shorter than a night", "dlq keeps it for 1h", (dying(dlq={"message-ttl": HOUR}),)),
    ("lost", "reject: the queue for it goes", "dlq keeps it for 1h", (dying(dlq={"expires": HOUR}),)),
    ("lost", "reject: the queue for it goes before they die again", "dlq keeps it for 1h",
     (dying(dlq={**TO_Q, "expires": HOUR, "message-ttl": DAY}),)),
    ("lost", "expiry: a circle", "in a circle", ([queue("q", {**TO_Q, "message-ttl": 9})],)),
    ("lost", "discard: the queue goes", "after 9s without use", ([queue("q", {"expires": 9000})],)),
    ("lost", "unroutable: no alternate exchange", "no binding takes it", ([], [exchange("q", "topic")])),
    ("unknown", "reject: policies are not shown", "the policies of q are not shown",
     ([{"name": "q", "type": "classic"}],)),
    ("unknown", "reject: how many lie in a bounded queue is not shown", "the letters of dlq are not shown",
     ([queue("q", TO_DLQ), uncounted("dlq", REFUSES)],)),
    ("unknown", "reject: nor how many bytes", "the letters of dlq are not shown",
     ([queue("q", TO_DLQ), uncounted("dlq", {"max-length-bytes": 9})],)),
    ("unknown", "reject: who consumes before it ends is not shown", "the consumers of dlq are not shown",
     ([queue("q", TO_DLQ), uncounted("dlq", {"message-ttl": HOUR})],)),
    ("unknown", "reject: nor before it dies again", "the consumers of dlq are not shown",
     ([queue("q", TO_DLQ), uncounted("dlq", {**TO_Q, "message-ttl": HOUR})],)),
    ("unknown", "reject: more than the key", "x routes by more than the key",
     (OPEN, [exchange("x", "headers")], [bound("x", "dlq")])),
    ("unknown", "reject: a key that may or may not be bound", "its key decides",
     (OPEN, [exchange("x", "direct"), IN[1]], [bound("in", "q", "order.*"), bound("x", "dlq", "order.new")])),
    ("unknown", "reject: patterns that have keys in common", "its key decides",
     (OPEN, IN, [bound("in", "q", "order.*"), bound("x", "dlq", "*.new")])),
    ("unknown", "unroutable: a policy that is not shown", "the user may not see policies",
     ([], [{**exchange("q", "direct"), "policy": "p"}])),
]  # fmt: skip


@each_row("verdict, what, told, definitions", FATES)
def test_it_is_kept_somewhere_or_why_it_is_lost_or_unknown(
    verdict: str, what: str, told: str, definitions: tuple[Any, ...]
) -> None:
    found = fate_of("q", what.partition(":")[0], *definitions)
    assert found.verdict == verdict
    assert found.leads_to == (told,) if verdict == "kept" else told in found.why


def test_the_fix_is_a_command_of_the_shell_whatever_a_queue_is_called() -> None:
    found = fate_of("it's; $(rm)", "reject", [queue("it's; $(rm)"), queue("orders.dlq")])
    assert found.fix.startswith("rabbitmqctl set_policy -p shop --priority 1 --apply-to queues 'coverage it'")
    assert '"dead-letter-routing-key": "orders.dlq"' in found.fix
    assert "'\"'\"'s; $(rm)'" in found.fix


BACK = {"dead-letter-exchange": "", "dead-letter-routing-key": "orders"}


@each_row("name, keeper, others", [
    ("orders", "a.dlq", [queue("a.dlq")]), ("orders", "orders.dlq", [queue("a.dlq", BACK)]),
    ("orders", "orders.dlq", [queue("a.dlq"), queue("b.dlq")]),
    ("a.dlq", "a.dlq.dlq", [queue("a.dlq")]), ("a.dlq", "a.dlq.dlq", [queue("a.dlq"), queue("b.dlq")]),
])  # fmt: skip
def test_no_fix_makes_a_circle_of_queues_or_takes_that_of_another(
    name: str, keeper: str, others: list[Values]
) -> None:
    found = fate_of(name, "reject", [queue("orders"), *others])
    assert f'"dead-letter-routing-key": "{keeper}"' in found.fix


@each_row("name, told", [("orders", True), ("unroutable", False)])
def test_no_exchange_is_to_be_its_own_alternate(name: str, told: bool) -> None:
    found = fate_of(name, "unroutable", [], [exchange(name, "topic")])
    assert (found.verdict, "alternate-exchange" in found.fix) == ("lost", told)


def test_what_an_operator_has_set_no_policy_takes_away() -> None:
    to_small = queue("q", {"dead-letter-exchange": "", "dead-letter-routing-key": "small"})
    refuses = {"overflow": "reject-publish"}
    small = {**queue("small", {**refuses, "max-length": 0}), "policy": "p"}
    for own, told in ((refuses, False), ({**refuses, "max-length": 0}, True)):
        found = fate_of("q", "reject", [to_small, small], policies={"p": {"definition": own}})
        assert (found.verdict, "set_policy" in found.fix) == ("lost", told)


def test_a_binding_is_told_once_its_queue_is_there() -> None:
    then = "binding --source x --destination-type queue --destination q.dlq --routing-key q"
    for there, step in (([], "queue --name q.dlq --durable true"), ([queue("q.dlq")], then)):
        found = fate_of("q", "reject", [queue("q", BY_X), *there], [exchange("x", "direct")])
        assert found.fix == f"rabbitmqadmin --vhost shop declare {step}"


def test_chains_and_copies_without_end_are_unknown_in_a_moment() -> None:
    """Each of 60 queues passes what ends in it on to all others."""
    queues = [queue(f"q{n}", {"dead-letter-exchange": "x", "message-ttl": 1}) for n in range(60)]
    began = time.process_time()
    bindings = [bound("x", f"q{n}") for n in range(60)]
    found = fate_of("q0", "reject", queues, [exchange("x", "fanout")], bindings)
    assert found.verdict == "unknown"
    assert time.process_time() - began < 5


@each_row(("keys", "exchanges", "verdict"), [(40, 1, "kept"), (400, 1, "unknown"), (1, 300, "unknown")])
def test_what_is_too_much_to_look_at_is_unknown(keys: int, exchanges: int, verdict: str) -> None:
    taken = [exchange(f"x{n}", "fanout") for n in range(exchanges)]
    into = [bound("x", one["name"], "#", "exchange") for one in taken] + [bound("x0", "dlq")]
    into += [bound("in", "q", "#")] + [bound("x", "dlq", f"k{n}") for n in range(keys)]
    assert fate_of("q", "reject", OPEN, [*IN, *taken], into).verdict == verdict


def test_three_thousand_queues_take_less_than_five_seconds() -> None:
    queues = [queue(f"q{n}", BY_X) for n in range(3000)] + [queue(f"d{n}") for n in range(3000)]
    bindings = [bound("in", f"q{n}", f"k{n}.*") for n in range(3000)]
    bindings += [bound("x", f"d{n}", f"k{n}.#") for n in range(3000)]
    began = time.process_time()
    found = fates(queues, IN, bindings)
    assert sum(one.verdict == "kept" for one in found) == 6000
    assert time.process_time() - began < 5


MATCHES = [
    ("", "", True), ("", "a", False), ("a", "", False), ("#", "", True), ("#.#", "a.b", True),
    ("#.#.b", "a.b", True), ("*", "a", True), ("*", "a.b", False), ("a.#", "a", True),
    ("#.b.#", "a.b.c", True), ("#.b.#.b", "a.b.c", False), ("*.#.*", "a", False), ("*.#.*", "a.b", True),
]  # fmt: skip


@each_row(("pattern", "key", "does"), MATCHES)
def test_words_stars_and_hashes(pattern: str, key: str, does: bool) -> None:
    assert topic_matches(pattern, key) is does


@each_row("piece", ["#.", "#.*.", "*.", "#.x.", "."])
def test_a_pattern_costs_what_its_length_allows(piece: str) -> None:
    began = time.process_time()
    topic_matches(piece * 10**6, "a." * 120 + "a")
    assert time.process_time() - began < 1.5
