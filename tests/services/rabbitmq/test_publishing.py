"""The way into a real RabbitMQ: what the broker says of each letter."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count

import pytest
from pika.exceptions import NackError
from support.brokers.rabbitmq.fixtures import KINDS, Rabbit, on_private_nodes, on_rabbitmq_4, request
from support.brokers.rabbitmq.letters import (
    HEADERS,
    leaves_out,
    letter,
    new_plan,
    outcomes,
    publish,
    record,
    replay_ids,
    sent,
    settled_depth,
    to_queue,
)
from support.sending_contract import until_it_ends
from support.waiting import eventually

from dlq.connectors.base import Limits, Outgoing, Target
from dlq.connectors.rabbitmq.amqp091.send import RabbitPublisher
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
    targets = [to_queue(good), to_queue("nowhere"), to_queue(full)]
    answers = publish(rabbit.broker(), [letter(n, targets[n % 3]) for n in range(600)], window=1000)
    told = Counter((number % 3, answer.outcome) for number, answer in answers.items())
    assert (told[0, "confirmed"], told[1, "returned"]) == (200, 200)
    assert told[2, "refused"] >= 195  # a quorum queue takes some before it knows that it is full
    assert sorted(replay_ids(rabbit, good)) == sorted(f"id-{n}" for n in range(0, 600, 3))


def test_a_letter_arrives_byte_for_byte_but_for_what_is_stripped(rabbit: Rabbit) -> None:
    queue = rabbit.queue()
    body = bytes(range(256)) * 2000  # four frames
    what = record(body, user_id="another", expiration="1", priority=3, headers={**HEADERS, "raw": b"\xff"})
    assert publish(rabbit.broker(), [letter(1, to_queue(queue), what)])[1].outcome == "confirmed"
    method, properties, found = rabbit.take(queue, 1)[0]
    assert (method.exchange, method.routing_key, found) == ("", queue, body)
    provenance = {"dlq_replay_id": "id-1", "dlq_replay_lap": "1", "dlq_replay_of": "record-1"}
    assert properties.headers == {"tenant": 42, "raw": b"\xff", **provenance}
    assert (properties.delivery_mode, properties.priority, properties.message_id) == (2, 3, "m")
    assert (properties.user_id, properties.expiration) == (None, None)


def test_bodies_that_are_empty_or_large_and_letters_that_cannot_be_encoded_harm_no_other(
    rabbit: Rabbit,
) -> None:
    """Large ones that are returned do not stop both sides from reading."""
    queue, nowhere = to_queue(rabbit.queue()), to_queue("nowhere")
    empty, large, broken = record(b""), record(b"x" * 2_000_000), record()._replace(raw_properties=b"\xff")
    returned = [letter(number, nowhere, large) for number in range(10, 70)]
    letters = [
        letter(1, queue, empty), letter(2, nowhere, empty), *returned, letter(3, queue, broken),
        letter(4, queue),
    ]  # fmt: skip
    expected = {1: "confirmed", 3: "refused", 4: "confirmed"}
    assert outcomes(publish(rabbit.broker(), letters)) == {
        one.number: expected.get(one.number, "returned") for one in letters
    }


@on_private_nodes
def test_headers_that_fit_no_frame_of_this_broker_are_refused_and_harm_no_other(rabbit: Rabbit) -> None:
    """The broker cuts a connection over them (501), and everything in flight would be in doubt."""
    queue, long = to_queue(rabbit.queue()), record(headers={"trace": "x" * 9000})
    letters = [letter(number, queue, long if number == 50 else None) for number in range(60)]
    rabbit.node.evaluate("application:set_env(rabbit, frame_max, 8192)")
    try:
        answers = publish(rabbit.broker(), letters)
    finally:
        rabbit.node.evaluate("application:set_env(rabbit, frame_max, 131072)")
    assert outcomes(answers) == {**dict.fromkeys(range(60), "confirmed"), 50: "refused"}
    assert "more than fits a frame of 8192" in (answers[50].detail or "")


@on_rabbitmq_4
def test_a_body_that_is_too_large_is_refused_and_harms_no_other(rabbit: Rabbit) -> None:
    queue = rabbit.queue()
    large = record(b"x" * (16 * 2**20 + 1))
    letters = [letter(number, to_queue(queue), large if number % 3 == 0 else None) for number in range(9)]
    answers = publish(rabbit.broker(), letters)
    assert [answers[n].outcome for n in range(4)] == ["refused", "confirmed", "confirmed", "refused"]
    assert "larger than configured max size" in (answers[0].detail or "")
    rabbit.wait_for(queue, 6)


@on_private_nodes
def test_the_consumers_of_a_target_is_read_from_the_bindings(rabbit: Rabbit) -> None:
    channel = rabbit.channel
    first, second, third = (rabbit.queue() for _ in range(3))
    channel.exchange_declare("plain", "direct", arguments={"alternate-exchange": "ae"})
    for name, kind in (("topics", "topic"), ("inner", "fanout"), ("ae", "fanout"), ("by-headers", "headers")):
        channel.exchange_declare(name, kind)
    for queue, exchange, key in ((first, "topics", "order.#"), (second, "inner", ""), (third, "ae", "")):
        channel.queue_bind(queue, exchange, key)
    channel.exchange_bind("inner", "topics", "*.created")
    by_topic = {
        "order.created": sorted([first, second]),
        "order": [first],
        "cart.created": [second],
        "cart": [],
    }
    expected = {
        to_queue(first): [first], to_queue("nowhere"): [], Target("exchange", "plain", "x"): [third],
        Target("exchange", "none", "x"): [],
        **{Target("exchange", "topics", key): queues for key, queues in by_topic.items()},
    }  # fmt: skip
    asked = [*expected, Target("exchange", "by-headers", "x")]
    assert rabbit.connector().consumers(asked) == expected
    assert rabbit.connector(management_url=None).consumers(asked) == {}


def test_an_argument_names_the_alternate_exchange_and_else_a_policy_does(rabbit: Rabbit) -> None:
    channel, (own, others) = rabbit.channel, [rabbit.queue() for _ in range(2)]
    for name, queue in (("own", own), ("others", others)):
        channel.exchange_declare(name, "fanout")
        channel.queue_bind(queue, name)
    rabbit.set_policy("^p-", {"alternate-exchange": "others"}, "exchanges")
    channel.exchange_declare("p-both", "direct", arguments={"alternate-exchange": "own"})
    channel.exchange_declare("p-policy", "direct")
    for exchange in ("p-both", "p-policy"):
        channel.basic_publish(exchange, "x", exchange.encode())
    taken = {queue: rabbit.take(queue, 1)[0][2] for queue in (own, others)}
    assert taken == {own: b"p-both", others: b"p-policy"}
    asked = [Target("exchange", name, "x") for name in ("p-both", "p-policy")]
    found = rabbit.connector().consumers(asked)
    assert [*found.values()] == [[own], [others]]


def test_a_policy_says_what_a_full_quorum_queue_does_with_more(rabbit: Rabbit) -> None:
    queue = rabbit.queue(x_queue_type="quorum", x_overflow="drop-head", x_max_length=1)
    rabbit.set_policy(f"^{queue}$", {"overflow": "reject-publish"})
    channel = rabbit.channel.connection.channel()
    channel.confirm_delivery()
    with pytest.raises(NackError):  # it refuses more, and drops none
        eventually(lambda: channel.basic_publish("", queue, b"x"))
    connector, target = rabbit.connector(), to_queue(queue)
    eventually(lambda: connector.limits([target]).get(target, Limits()).letters is None)


def test_a_quorum_queue_that_is_told_to_refuse_into_its_dead_letters_drops_its_oldest(rabbit: Rabbit) -> None:
    queue = rabbit.queue("quorum", x_overflow="reject-publish-dlx", x_max_length=2)
    rabbit.publish(queue, [b"1", b"2", b"3", b"4"])
    rabbit.wait_for(queue, 2)
    limits = rabbit.connector().limits([to_queue(queue)])[to_queue(queue)]
    assert ("each one more drops its oldest" in limits.why, limits.refused_die_again) == (True, False)
    assert "beyond that the oldest vanish" in " ".join(rabbit.inspect(queue, managed=False).warnings)
    assert [body for _, _, body in rabbit.take(queue, 2)] == [b"3", b"4"]


def no_exchange(rabbit: Rabbit) -> Target:
    del rabbit
    return Target("exchange", "no such 'exchange' in vhost '/'", "key")


def internal(rabbit: Rabbit) -> Target:
    rabbit.channel.exchange_declare("inner", "fanout", internal=True)
    return Target("exchange", "inner", "key")


def forbidden_topic(rabbit: Rabbit) -> Target:
    rabbit.channel.exchange_declare("topics", "topic")
    rabbit.allow_topic("topics", write="^allowed")
    return Target("exchange", "topics", "forbidden.'key' in exchange 'x")


def forbidden(rabbit: Rabbit) -> Target:
    rabbit.channel.exchange_declare("secret", "fanout")
    rabbit.allow(rights=".* ^(?!secret) .*")
    return Target("exchange", "secret", "key")


@on_private_nodes
@pytest.mark.parametrize("offend", [no_exchange, internal, forbidden, forbidden_topic])
def test_a_target_that_takes_nothing_is_left_out_and_named_and_the_rest_goes(
    rabbit: Rabbit, offend: Callable[[Rabbit], Target]
) -> None:
    """What was not sent for it may go later, and is in no doubt."""
    queue, offending = rabbit.queue(), offend(rabbit)
    leaves_out(rabbit.broker(), offending, to_queue(queue))
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

    answers, error = sent(rabbit.broker(), letters())
    told = outcomes(answers)
    assert (error, told[0], told[20]) == (None, "returned", "refused")
    assert {told[n] for n in range(1, 20)} <= {"confirmed", "in_doubt"}
    assert [told[n] for n in range(21, 60)] == ["confirmed"] * 39
    arrived = Counter(replay_ids(rabbit, queue))
    assert set(arrived.values()) == {1}, "nothing is sent twice"
    assert {f"id-{n}" for n, outcome in told.items() if outcome == "confirmed"} <= set(arrived)


@on_private_nodes
def test_an_exclusive_queue_is_no_way_for_a_witness_and_leaves_nothing_in_doubt(rabbit: Rabbit) -> None:
    """405, before anything was written for it."""
    good, own = to_queue(rabbit.queue()), to_queue("own")
    rabbit.channel.queue_declare("own", exclusive=True)
    letters = [letter(n, own if n == 5 else good) for n in range(8)]
    answers = publish(rabbit.broker(), letters, window=10, witness=True)
    assert outcomes(answers) == {n: "refused" if n == 5 else "confirmed" for n in range(8)}


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
def test_an_exclusive_queue_is_known_to_end_with_its_connection(rabbit: Rabbit) -> None:
    """4.3.6 closes the connection (541) over a refusal of more than 255 bytes with a name beyond ASCII, which
    the virtual host has here: then the management API tells."""
    names = ["own", "own " + "x" * 10, "own " + "x" * 60]
    for name in names:
        rabbit.channel.queue_declare(name, exclusive=True)
    for name in names:
        connector = rabbit.connector(**({"management_url": None} if name == "own" else {}))
        rabbit.wait_for_statistics(name)
        found = connector.limits([to_queue(name)])[to_queue(name)]
        assert found.temporary == f"queue {name} is exclusive: it ends with its consumers"


@on_rabbitmq_4
def test_a_question_over_which_the_broker_fails_is_no_poison(rabbit: Rabbit) -> None:
    queue = "ü" * 120
    rabbit.channel.queue_declare(queue, exclusive=True)
    connector, wanted = rabbit.connector(), request(queue)
    for ask in (lambda: connector.inspect(wanted.source), lambda: connector.read(wanted)):
        with pytest.raises(ConnectionLost, match=r"541.*the queue is exclusive or not there"):
            ask()


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
    rabbit.set_policy(".*", {"alternate-exchange": "taker"}, "exchanges")
    given = [letter(n, [*targets, gone][n % 3], came_by_topic(n)) for n in range(30)]
    plan = new_plan()
    answers = publish(rabbit.broker(), given, plan=plan, private=[*targets, gone])
    assert outcomes(answers) == {n: "returned" if n % 3 == 2 else "confirmed" for n in range(30)}
    for place, target in enumerate(targets):
        found = [(m.routing_key, p.headers["CC"]) for m, p, _ in rabbit.take(target.name, 10)]
        assert found == [(f"order.{n}", ["copy"]) for n in range(place, 30, 3)]
    assert [rabbit.depth(name) for name in (copied, caught)] == [0, 0]
    assert plan not in str(rabbit.listed("exchanges"))


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
    connector, target = rabbit.connector(), to_queue(work)
    kept = connector.preview(letter(1, target, came_by_topic(1)))
    assert (kept.private, dict(kept.unless_named), "CC" in kept.stripped) == (True, {}, False)
    lost = connector.preview(letter(1, target, record(headers={"region": "north"})))
    if headers_exchange:
        assert not lost.unless_named
        assert "not known: retry goes by more than the key" in str(lost.warnings)
    else:
        assert "the dead-letter exchange orders takes the key" in lost.unless_named["target"]
    blind = rabbit.connector(management_url=None).preview(letter(1, target, record()))
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
        answers, error = until_it_ends(publisher, letters())
    finally:
        rabbit.node.limit_memory()
    assert "alarm" in str(error)
    told = Counter(answer.outcome for answer in answers)
    assert told["confirmed"] >= 400
    assert told["in_doubt"] <= 100
    assert told["confirmed"] <= settled_depth(rabbit, queue) <= told["confirmed"] + told["in_doubt"]


@on_private_nodes
def test_an_alarm_that_ends_in_time_costs_nothing(rabbit: Rabbit) -> None:
    queue = rabbit.queue()

    def free_memory() -> None:
        time.sleep(1.5)
        rabbit.node.limit_memory()

    def letters() -> Iterator[Outgoing]:
        for number in range(2000):
            if number == 500:
                rabbit.node.limit_memory("0.00001")
                threading.Thread(target=free_memory).start()
            yield letter(number, to_queue(queue))

    answers, error = sent(rabbit.broker(), letters())
    assert (Counter(outcomes(answers).values()), error) == ({"confirmed": 2000}, None)
    rabbit.wait_for(queue, 2000)


@on_private_nodes
def test_letters_large_and_small_go_through_tls_in_both_directions(rabbit: Rabbit) -> None:
    queue, large = rabbit.queue(), record(b"x" * 1_000_000)
    targets = (to_queue(queue), to_queue("nowhere"))
    letters = [letter(n, targets[n % 2], large if n % 7 == 0 else None) for n in range(200)]
    answers = publish(rabbit.by_tls(), letters, window=50)
    assert outcomes(answers) == {n: ("confirmed", "returned")[n % 2] for n in range(200)}
    rabbit.wait_for(queue, 100)
