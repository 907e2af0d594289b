"""Which queues of a virtual host hold dead letters, by what leads there and by their names."""

from collections.abc import Mapping, Sequence
from typing import Any

from support.rows import each_row

from dlq.connectors.rabbitmq.look.consumers import count_acknowledged
from dlq.connectors.rabbitmq.look.discovery import places
from dlq.connectors.rabbitmq.read.wildcards import matches

Values = Mapping[str, Any]


def queue(name: str, **values: Any) -> Values:
    return {"name": name, "type": "classic", "messages": 1, "consumers": 0, **values}


def dying(name: str, exchange: str, key: str | None = None, ttl: int | None = None, **more: Any) -> Values:
    """A queue with a dead-letter exchange; without a key its letters keep their own."""
    arguments = {"x-dead-letter-exchange": exchange, "x-dead-letter-routing-key": key, "x-message-ttl": ttl}
    return queue(name, arguments={n: v for n, v in arguments.items() if v is not None}, **more)


def bound(source: str, destination: str, key: str = "", kind: str = "queue") -> Values:
    return {"source": source, "destination": destination, "destination_type": kind, "routing_key": key}


LOOP = [dying("orders", "", "orders.wait"), dying("orders.wait", "", "orders", ttl=1000)]
CASES: Mapping[str, tuple[Sequence[Values], Sequence[Values], Mapping[str, str]]] = {
    "a loop": (LOOP, [], {}),
    "a loop, whose letters may end beside it": (
        [dying("orders", "x"), dying("orders.wait", "", "orders", ttl=1), queue("spare")],
        [bound("x", "orders.wait"), bound("x", "spare")], {"spare": "orders"},
    ),
    "a loop by exchanges, without names that tell": ([dying("a", "x"), dying("b", "y", ttl=1)],
     [bound("x", "b"), bound("y", "z", kind="exchange"), bound("z", "a")], {}),
    "the levels of delay of NServiceBus": (
        [
            dying("nsb.v2.delay-level-01", "nsb.v2.delay-level-00", ttl=2000),
            dying("nsb.v2.delay-level-00", "nsb.v2.delay-delivery", ttl=1000), queue("billing"),
        ],
        [
            bound("nsb.v2.delay-level-01", "nsb.v2.delay-level-01", "1.#"),
            bound("nsb.v2.delay-level-01", "nsb.v2.delay-level-00", "0.#", "exchange"),
            bound("nsb.v2.delay-level-00", "nsb.v2.delay-level-00", "1.#"),
            bound("nsb.v2.delay-level-00", "nsb.v2.delay-delivery", "0.#", "exchange"),
            bound("nsb.v2.delay-delivery", "billing", "#.billing"),
        ],
        {},
    ),
    "a wait queue by its name": ([dying("retry.5s", "", "work", ttl=5000), queue("work")], [], {}),
    "a wait queue before one that is consumed": (
        [dying("q1", "", "work", ttl=5000), queue("work", consumers=1)], [], {},
    ),
    "a wait queue before one whose letters die": (
        [dying("q1", "", "work", ttl=5000), dying("work", "", "collected"), queue("collected")], [],
        {"collected": "work"},
    ),
    "a TTL while consumers are away": ([dying("work", "", "collected", ttl=5000), queue("collected")], [],
     {"collected": "work"}),
    "dead letters that go on after a while": (
        [dying("work", "", "held", consumers=1), dying("held", "", "kept", ttl=9), queue("kept")], [],
        {"held": "work", "kept": "held"},
    ),
    "the way that they came": ([dying("work", "shop"), queue("other")],
     [bound("shop", "work", "a"), bound("shop", "other", "b")], {}),
    "a key of their own in an exchange for all": (
        [dying("work", "shop", "dead"), queue("other"), queue("kept")],
        [bound("shop", "work", "a"), bound("shop", "other", "b"), bound("shop", "kept", "dead")],
        {"kept": "work"},
    ),
    "a stream": ([dying("work", "", "kept"), queue("kept", type="stream")], [], {"kept": "work"}),
}  # fmt: skip


@each_row("case", CASES)
def test_of_what_a_dead_letter_exchange_feeds_that_is_dead_where_letters_stay(case: str) -> None:
    queues, bindings, found = CASES[case]
    there = places(queues, bindings, {}, [{"name": "shop", "type": "topic"}])
    assert {one.name: one.because for one in there} == {
        name: f"dead letters of {feeder} go there" for name, feeder in found.items()
    }


def test_what_goes_in_circles_is_found_by_its_name_alone() -> None:
    queues = [dying("orders", "", "orders.dlq"), dying("orders.dlq", "", "orders", ttl=1000)]
    assert [(one.name, one.because) for one in places(queues, [])] == [("orders.dlq", "its name says so")]


@each_row("name", ["*.dlq", "?.dlq", "a[*].dlq", "[a].dlq"])
def test_a_name_like_a_pattern_is_written_so_that_it_means_itself_alone(name: str) -> None:
    (place,) = places([queue(name)], [])
    written = str(place.source["queue"])
    assert [one for one in (name, "x.dlq", "orders.dlq", "a*.dlq") if matches(one, written)] == [name]


ODD = [None, "x", [1], {"a": 1}, -1, 1e300, True, "\x1b[2J"]


@each_row("odd", ODD, ids=repr)
def test_what_is_no_count_counts_nothing(odd: Any) -> None:
    assert count_acknowledged({"messages": 1, "message_stats": {"ack": odd, "get_no_ack": 2}}) == 2
    counts = dict.fromkeys(("messages", "consumers", "head_message_timestamp"), odd)
    [found] = places([{"name": "orders.dlq", **counts}], [])
    assert (found.depth, found.consumers, found.oldest) == (None, None, None)
