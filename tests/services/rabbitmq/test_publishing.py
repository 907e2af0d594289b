"""The way into a real RabbitMQ: what the broker says of each letter."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count

import pytest
from pika.exceptions import NackError
from support.brokers.rabbitmq.fixtures import KINDS, Rabbit, on_private_nodes, on_rabbitmq_4, request
from support.brokers.rabbitmq.letters import (
    HEADERS,
    letter,
    new_plan,
    publish,
    record,
    replay_ids,
    settled_depth,
    to_queue,
)
from support.sending_contract import until_it_ends
from support.waiting import PATIENCE

from dlq.connectors.base import Limits, Outgoing, SendRequest, Target
from dlq.connectors.rabbitmq.amqp091.send import RabbitPublisher
from dlq.connectors.rabbitmq.plugin.connector import RabbitConnector
from dlq.connectors.rabbitmq.records.envelope import Way
from dlq.connectors.rabbitmq.send import Ways
from dlq.core.errors import ConnectionLost
from dlq.core.record import Record

pytestmark = pytest.mark.rabbitmq


@pytest.mark.parametrize("kind", KINDS)
def test_confirmed_returned_and_refused_are_told_apart_in_one_window(rabbit: Rabbit, kind: str) -> None:
    good = rabbit.queue(kind)
    full = rabbit.queue(kind, x_max_length=1, x_overflow="reject-publish")
    rabbit.publish(full, [b"first"] * (2 if kind == "quorum" else 1))
    targets = {0: to_queue(good), 1: to_queue("nowhere"), 2: to_queue(full)}
    answers = publish(rabbit, [letter(number, targets[number % 3]) for number in range(600)])
    outcomes = {rest: Counter(answers[n].outcome for n in range(rest, 600, 3)) for rest in targets}
    assert outcomes[0] == {"confirmed": 200}
    assert outcomes[1] == {"returned": 200}
    assert (
        outcomes[2]["refused"] >= 195
    )  # a quorum queue takes a few too many before it knows that it is full
    assert sorted(replay_ids(rabbit, good)) == sorted(f"id-{n}" for n in range(0, 600, 3))


def test_a_letter_arrives_byte_for_byte_but_for_what_is_stripped(rabbit: Rabbit) -> None:
    queue = rabbit.queue()
    body = bytes(range(256)) * 2000  # four frames
    what = record(body, user_id="another", expiration="1", priority=3, headers={**HEADERS, "raw": b"\xff"})
    assert publish(rabbit, [letter(1, to_queue(queue), what)])[1].outcome == "confirmed"
    method, properties, found = rabbit.take(queue, 1)[0]
    assert (method.exchange, method.routing_key, found) == ("", queue, body)
    provenance = {"dlq_replay_id": "id-1", "dlq_replay_lap": "1", "dlq_replay_of": "record-1"}
    assert properties.headers == {"tenant": 42, "raw": b"\xff", **provenance}
    assert (properties.delivery_mode, properties.priority, properties.message_id) == (2, 3, "m")
    assert (properties.user_id, properties.expiration) == (None, None)


def test_empty_bodies_are_sent_and_returned(rabbit: Rabbit) -> None:
    queue = rabbit.queue()
    letters = [letter(1, to_queue(queue), record(b"")), letter(2, to_queue("nowhere"), record(b""))]
    assert {n: a.outcome for n, a in publish(rabbit, letters).items()} == {1: "confirmed", 2: "returned"}


def test_large_returned_bodies_do_not_stop_both_sides_from_reading(rabbit: Rabbit) -> None:
    what = record(b"x" * 2_000_000)
    answers = publish(rabbit, [letter(number, to_queue("nowhere"), what) for number in range(60)])
    assert {answer.outcome for answer in answers.values()} == {"returned"}


def test_an_alternate_exchange_takes_what_no_queue_is_bound_for(rabbit: Rabbit) -> None:
    caught = rabbit.queue()
    rabbit.channel.exchange_declare("ae", "fanout")
    rabbit.channel.exchange_declare("shop", "direct", arguments={"alternate-exchange": "ae"})
    rabbit.channel.queue_bind(caught, "ae")
    target = Target("exchange", "shop", "no.such.key")
    assert publish(rabbit, [letter(1, target)])[1].outcome == "confirmed"
    rabbit.wait_for(caught, 1)


def test_a_letter_that_cannot_be_encoded_is_refused_alone(rabbit: Rabbit) -> None:
    queue = rabbit.queue()
    broken = record()._replace(raw_properties=b"\xff")
    answers = publish(
        rabbit, [letter(1, to_queue(queue)), letter(2, to_queue(queue), broken), letter(3, to_queue(queue))]
    )
    assert [answers[n].outcome for n in (1, 2, 3)] == ["confirmed", "refused", "confirmed"]


@on_rabbitmq_4
def test_a_body_that_is_too_large_is_refused_and_harms_no_other(rabbit: Rabbit) -> None:
    queue = rabbit.queue()
    large = record(b"x" * (16 * 2**20 + 1))
    letters = [letter(number, to_queue(queue), large if number % 3 == 0 else None) for number in range(9)]
    answers = publish(rabbit, letters)
    assert [answers[n].outcome for n in range(4)] == ["refused", "confirmed", "confirmed", "refused"]
    assert "larger than configured max size" in (answers[0].detail or "")
    rabbit.wait_for(queue, 6)


@on_private_nodes
def test_the_consumers_of_a_target_is_read_from_the_bindings(rabbit: Rabbit) -> None:
    channel = rabbit.channel
    first, second, third = (rabbit.queue() for _ in range(3))
    channel.exchange_declare("topics", "topic")
    channel.exchange_declare("inner", "fanout")
    channel.exchange_declare("ae", "fanout")
    channel.exchange_declare("plain", "direct", arguments={"alternate-exchange": "ae"})
    channel.exchange_declare("by-headers", "headers")
    channel.queue_bind(first, "topics", "order.#")
    channel.exchange_bind("inner", "topics", "*.created")
    channel.queue_bind(second, "inner")
    channel.queue_bind(third, "ae")
    expected = {
        to_queue(first): [first],
        to_queue("nowhere"): [],
        Target("exchange", "topics", "order.created"): sorted([first, second]),
        Target("exchange", "topics", "order"): [first],
        Target("exchange", "topics", "cart.created"): [second],
        Target("exchange", "topics", "cart"): [],
        Target("exchange", "plain", "x"): [third],
        Target("exchange", "none", "x"): [],
    }
    asked = [*expected, Target("exchange", "by-headers", "x")]
    assert RabbitConnector(rabbit.broker()).consumers(asked) == expected
    assert RabbitConnector(rabbit.broker(management_url=None)).consumers(asked) == {}


def test_an_argument_names_the_alternate_exchange_and_else_a_policy_does(rabbit: Rabbit) -> None:
    channel, (own, others) = rabbit.channel, [rabbit.queue() for _ in range(2)]
    for name, queue in (("own", own), ("others", others)):
        channel.exchange_declare(name, "fanout")
        channel.queue_bind(queue, name)
    policy = {"pattern": "^p-", "apply-to": "exchanges", "definition": {"alternate-exchange": "others"}}
    rabbit.node.api("PUT", "policies", rabbit.vhost, "all", **policy)
    channel.exchange_declare("p-both", "direct", arguments={"alternate-exchange": "own"})
    channel.exchange_declare("p-policy", "direct")
    for exchange in ("p-both", "p-policy"):
        channel.basic_publish(exchange, "x", exchange.encode())
    taken = {queue: rabbit.take(queue, 1)[0][2] for queue in (own, others)}
    assert taken == {own: b"p-both", others: b"p-policy"}
    asked = [Target("exchange", name, "x") for name in ("p-both", "p-policy")]
    found = RabbitConnector(rabbit.broker()).consumers(asked)
    assert [*found.values()] == [[own], [others]]


def test_a_policy_says_what_a_full_quorum_queue_does_with_more(rabbit: Rabbit) -> None:
    queue = rabbit.queue(x_queue_type="quorum", x_overflow="drop-head", x_max_length=1)
    policy = {"pattern": f"^{queue}$", "apply-to": "queues", "definition": {"overflow": "reject-publish"}}
    rabbit.node.api("PUT", "policies", rabbit.vhost, "full", **policy)
    channel = rabbit.channel.connection.channel()
    channel.confirm_delivery()
    deadline = time.monotonic() + PATIENCE
    with suppress(NackError):
        while time.monotonic() < deadline:
            channel.basic_publish("", queue, b"x")
    assert time.monotonic() < deadline, "it refuses more, and drops none"
    connector, target = RabbitConnector(rabbit.broker()), to_queue(queue)
    while connector.limits([target]).get(target, Limits()).letters is not None:  # statistics are late
        assert time.monotonic() < deadline


def no_exchange(rabbit: Rabbit) -> Target:
    del rabbit
    return Target("exchange", "no such 'exchange' in vhost '/'", "key")


def internal(rabbit: Rabbit) -> Target:
    rabbit.channel.exchange_declare("inner", "fanout", internal=True)
    return Target("exchange", "inner", "key")


def forbidden_topic(rabbit: Rabbit) -> Target:
    rabbit.channel.exchange_declare("topics", "topic")
    rights = {"exchange": "topics", "write": "^allowed", "read": ".*"}
    rabbit.node.api("PUT", "topic-permissions", rabbit.vhost, "guest", **rights)
    return Target("exchange", "topics", "forbidden.'key' in exchange 'x")


def forbidden(rabbit: Rabbit) -> Target:
    rabbit.channel.exchange_declare("secret", "fanout")
    rights = {"configure": ".*", "write": "^(?!secret)", "read": ".*"}
    rabbit.node.api("PUT", "permissions", rabbit.vhost, "guest", **rights)
    return Target("exchange", "secret", "key")


@on_private_nodes
@pytest.mark.parametrize("offend", [no_exchange, internal, forbidden, forbidden_topic])
def test_a_target_that_takes_nothing_is_left_out_and_named_and_the_rest_goes(
    rabbit: Rabbit, offend: Callable[[Rabbit], Target]
) -> None:
    """What was not sent for it may go later, and is in no doubt."""
    queue, offending = rabbit.queue(), offend(rabbit)
    letters = [letter(n, offending if n % 3 == 1 else to_queue(queue)) for n in range(60)]
    answers, error = until_it_ends(RabbitPublisher(rabbit.broker(), new_plan(), 100), iter(letters))
    assert error is None
    outcomes = {answer.number: answer.outcome for answer in answers}
    assert len(answers) == 60, "each is answered once"
    assert outcomes.pop(1) == "refused"
    assert {outcome for n, outcome in outcomes.items() if n % 3 == 1} == {"unsent"}
    assert {outcome for n, outcome in outcomes.items() if n % 3 != 1} == {"confirmed"}
    assert "exchange" in str(answers[1].detail)
    assert len(replay_ids(rabbit, queue)) == 40


@on_private_nodes
def test_an_exchange_that_is_deleted_meanwhile_leaves_in_doubt_only_what_was_in_flight_before(
    rabbit: Rabbit,
) -> None:
    """What came behind the letter over which it closed the channel the broker never read: it goes again."""
    queue, exchange = rabbit.queue(), Target("exchange", "secret", "key")
    rabbit.channel.exchange_declare("secret", "fanout")

    def letters() -> Iterator[Outgoing]:
        for number in range(60):
            if number == 20:
                rabbit.channel.exchange_delete("secret")
            yield letter(number, exchange if number in (0, 20) else to_queue(queue))

    answers, error = until_it_ends(RabbitPublisher(rabbit.broker(), new_plan(), 100), letters())
    assert error is None
    outcomes = {answer.number: answer.outcome for answer in answers}
    assert len(answers) == len(outcomes) == 60
    assert (outcomes[0], outcomes[20]) == ("returned", "refused")
    assert {outcomes[n] for n in range(1, 20)} <= {"confirmed", "in_doubt"}
    assert {outcomes[n] for n in range(21, 60)} == {"confirmed"}
    arrived = Counter(replay_ids(rabbit, queue))
    assert set(arrived.values()) == {1}, "nothing is sent twice"
    assert {f"id-{n}" for n, outcome in outcomes.items() if outcome == "confirmed"} <= set(arrived)


@on_private_nodes
def test_an_exclusive_queue_is_no_way_for_a_witness_and_leaves_nothing_in_doubt(rabbit: Rabbit) -> None:
    """405, before anything was written for it."""
    good, own = to_queue(rabbit.queue()), to_queue("own")
    rabbit.channel.queue_declare("own", exclusive=True)
    publisher = RabbitConnector(rabbit.broker()).publisher(SendRequest(new_plan(), 10, witness=True))
    letters = [letter(n, own if n == 5 else good) for n in range(8)]
    answers, error = until_it_ends(publisher, iter(letters))
    assert error is None
    outcomes = {answer.number: answer.outcome for answer in answers}
    assert outcomes.pop(5) == "refused"
    assert set(outcomes.values()) == {"confirmed"}
    assert len(outcomes) == 7, "the rest goes"


def test_a_letter_whose_way_cannot_be_made_at_the_moment_is_neither_written_nor_refused(
    rabbit: Rabbit,
) -> None:
    good, told = to_queue(rabbit.queue()), set[int]()

    class Bound(Ways):
        def prepare(self, letter: Outgoing, way: Way) -> None:
            if letter.target != good:
                raise ConnectionLost("the node that would bind it is gone")

    letters = [letter(n, to_queue("away") if n == 5 else good) for n in range(8)]
    publisher = RabbitPublisher(rabbit.broker(), new_plan(), 100, Bound(rabbit.broker(), new_plan()))
    answers: dict[int, str] = {}
    with pytest.raises(ConnectionLost, match="would bind it"):
        answers.update((sent.number, sent.outcome) for sent in publisher.publish(iter(letters), told.update))
    publisher.close()
    assert answers[5] == "in_doubt"
    assert set(answers) == set(range(6)), "the others were not begun"
    assert 5 not in told


@on_private_nodes
@pytest.mark.parametrize("count", [10, 60])
def test_an_exclusive_queue_with_a_long_name_is_known_from_the_management_api(
    rabbit: Rabbit, count: int
) -> None:
    """4.3.6 closes the connection (541) over a refusal of more than 255 bytes with a name beyond ASCII, which
    the virtual host has here."""
    target = to_queue("own " + "x" * count)
    rabbit.channel.queue_declare(target.name, exclusive=True)
    rabbit.wait_for_statistics(target.name)
    assert RabbitConnector(rabbit.broker()).limits([target])[target].temporary


@on_rabbitmq_4
@pytest.mark.parametrize("ask", ["inspect", "read"])
def test_a_question_over_which_the_broker_fails_is_no_poison(rabbit: Rabbit, ask: str) -> None:
    queue = "ü" * 120
    rabbit.channel.queue_declare(queue, exclusive=True)
    connector = RabbitConnector(rabbit.broker())
    with pytest.raises(ConnectionLost, match=r"541.*the queue is exclusive or not there"):
        connector.inspect(request(queue).source) if ask == "inspect" else connector.read(request(queue))


def test_an_exclusive_queue_is_known_to_end_with_its_connection(rabbit: Rabbit) -> None:
    queue = rabbit.channel.queue_declare("of one connection", exclusive=True).method.queue
    target = Target("queue", queue)
    found = RabbitConnector(rabbit.broker(management_url=None)).limits([target])
    assert found[target].temporary == f"queue {queue} is exclusive: it ends with its consumers"


def came_by_topic(number: int) -> Record:
    """A letter that came with keys of its own, the last of them by CC."""
    death = {"reason": "rejected", "queue": "q", "exchange": "orders", "count": 1}
    keys = {"routing-keys": [f"order.{number}", "copy"]}
    return record(headers={"region": "north", "x-death": [{**death, **keys}]})


def test_letters_for_two_queues_keep_their_keys_each_by_an_exchange_that_leads_to_one(rabbit: Rabbit) -> None:
    """No policy makes another exchange take what they cannot route, and CC leads nowhere else."""
    channel = rabbit.channel
    targets, copied, caught = [to_queue(rabbit.queue()) for _ in range(2)], "copy", rabbit.queue()
    gone = to_queue("gone")
    channel.queue_declare(copied)
    channel.exchange_declare("taker", "fanout")
    channel.queue_bind(caught, "taker")
    everything = {"pattern": ".*", "apply-to": "exchanges", "definition": {"alternate-exchange": "taker"}}
    rabbit.node.api("PUT", "policies", rabbit.vhost, "all", **everything)
    given = [letter(n, [*targets, gone][n % 3], came_by_topic(n)) for n in range(30)]
    connector, plan = RabbitConnector(rabbit.broker()), new_plan()
    request = SendRequest(plan, 100, private=[*targets, gone])
    publisher = connector.publisher(request)
    answers = {one.number: one.outcome for one in publisher.publish(iter(given))}
    publisher.close()
    assert Counter(answers.values()) == {"confirmed": 20, "returned": 10}
    assert all((answers[n] == "returned") == (n % 3 == 2) for n in answers)
    for place, target in enumerate(targets):
        found = [(m.routing_key, p.headers["CC"]) for m, p, _ in rabbit.take(target.name, 10)]
        assert found == [(f"order.{n}", ["copy"]) for n in range(place, 30, 3)]
    assert [rabbit.depth(name) for name in (copied, caught)] == [0, 0]
    listed = rabbit.node.api("GET", "exchanges", rabbit.vhost)
    assert plan not in str(listed)


@pytest.mark.parametrize("headers_exchange", [True, False], ids=["by headers", "retry by a waiting queue"])
def test_the_next_death_is_looked_up_through_queues_in_which_letters_wait(
    rabbit: Rabbit, headers_exchange: bool
) -> None:
    """A queue's name as the key gets letters into the waiting queue, and from there nowhere."""
    channel = rabbit.channel
    work = rabbit.queue(x_dead_letter_exchange="retry")
    wait = rabbit.queue(x_dead_letter_exchange="orders", x_message_ttl=50)
    channel.exchange_declare("orders", "topic")
    channel.exchange_declare("retry", "headers" if headers_exchange else "fanout")
    channel.queue_bind(wait, "retry", "", {"x-match": "all", "region": "north"})
    channel.queue_bind(work, "orders", "order.*")
    connector, target = RabbitConnector(rabbit.broker()), to_queue(work)
    kept = connector.preview(letter(1, target, came_by_topic(1)))
    assert (kept.private, dict(kept.unless_named), "CC" in kept.stripped) == (True, {}, False)
    lost = connector.preview(letter(1, target, record(headers={"region": "north"})))
    if headers_exchange:
        assert not lost.unless_named
        assert "not known: retry goes by more than the key" in str(lost.warnings)
    else:
        assert "the dead-letter exchange orders takes the key" in lost.unless_named["target"]
    blind = RabbitConnector(rabbit.broker(management_url=None)).preview(letter(1, target, record()))
    assert "is not known: management_url would tell" in str(blind.warnings)


@on_private_nodes
def test_an_alarm_with_a_window_in_flight_leaves_only_that_window_in_doubt(rabbit: Rabbit) -> None:
    queue = rabbit.queue()
    publisher = RabbitPublisher(rabbit.broker(), new_plan(), 100, blocked_seconds=1.0)

    def letters() -> Iterator[Outgoing]:
        for number in count():
            if number == 500:
                rabbit.node.limit_memory("0.00001")
            yield letter(number, to_queue(queue))

    try:
        sent, error = until_it_ends(publisher, letters())
    finally:
        rabbit.node.limit_memory()
    assert "alarm" in str(error)
    outcomes = Counter(answer.outcome for answer in sent)
    assert outcomes["confirmed"] >= 400
    assert outcomes["in_doubt"] <= 100
    depth = settled_depth(rabbit, queue)
    assert outcomes["confirmed"] <= depth <= outcomes["confirmed"] + outcomes["in_doubt"]


@on_private_nodes
def test_an_alarm_that_ends_in_time_costs_nothing(rabbit: Rabbit) -> None:
    queue = rabbit.queue()
    publisher = RabbitPublisher(rabbit.broker(), new_plan(), 100, blocked_seconds=300.0)

    def free_memory() -> None:
        time.sleep(1.5)
        rabbit.node.limit_memory()

    def letters() -> Iterator[Outgoing]:
        for number in range(2000):
            if number == 500:
                rabbit.node.limit_memory("0.00001")
                threading.Thread(target=free_memory).start()
            yield letter(number, to_queue(queue))

    sent, error = until_it_ends(publisher, letters())
    assert (Counter(answer.outcome for answer in sent), error) == ({"confirmed": 2000}, None)
    rabbit.wait_for(queue, 2000)


@on_private_nodes
def test_letters_large_and_small_go_through_tls_in_both_directions(rabbit: Rabbit) -> None:
    queue, large = rabbit.queue(), record(b"x" * 1_000_000)
    publisher = RabbitPublisher(rabbit.by_tls(), new_plan(), 50)
    letters = [
        letter(n, to_queue("nowhere" if n % 2 else queue), large if n % 7 == 0 else None) for n in range(200)
    ]
    sent, error = until_it_ends(publisher, iter(letters))
    assert error is None
    assert Counter((answer.number % 2, answer.outcome) for answer in sent) == {
        (0, "confirmed"): 100, (1, "returned"): 100,
    }  # fmt: skip
    rabbit.wait_for(queue, 100)
