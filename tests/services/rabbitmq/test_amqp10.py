"""Letters that RabbitMQ 4 delivers by AMQP 1.0 alone: captured beside letters of 0-9-1, and sent back."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pika.exceptions import ConnectionClosedByBroker
from proton import UNDESCRIBED, Array, Data, char, decimal64, symbol, ulong
from support.brokers.rabbitmq.amqp10 import (
    SEVEN,
    Careful,
    a_poison,
    captured,
    connected,
    plain,
    poison,
    received,
    send,
)
from support.brokers.rabbitmq.fixtures import KINDS, Rabbit, on_rabbitmq_4, request
from support.brokers.rabbitmq.letters import (
    cutting,
    letter,
    new_plan,
    outcomes,
    publish,
    to_process,
    to_queue,
    wait_until_the_node_is_no_newcomer,
)
from support.connector_contract import Place, ReadingContract, letters
from support.sending_contract import SendingContract, SendingPlace, proven
from support.waiting import PATIENCE

from dlq.analyzers.rules import judge
from dlq.analyzers.rules.letter import Facts
from dlq.archive.storage.store import LocalStore
from dlq.capture.pull import PullOptions, PullResult, pull
from dlq.connectors.amqp10.codec import frames, message, values
from dlq.connectors.base import Outgoing, Search, SendRequest, Target
from dlq.connectors.rabbitmq.amqp10.send import open_session
from dlq.connectors.rabbitmq.records.amqp10 import is_carried_by_0_9_1
from dlq.core.clock import now
from dlq.core.errors import ConnectionLost, PoisonMessage
from dlq.core.record import Record
from dlq.core.settings import Source

pytestmark = [pytest.mark.rabbitmq, on_rabbitmq_4]
each_kind = pytest.mark.parametrize("kind", KINDS)


class TestReading(ReadingContract):
    """The contract, where every letter is of the kind."""

    @pytest.fixture
    def place(self, rabbit: Rabbit) -> Place:
        queue = rabbit.queue("quorum")
        sent = iter(range(1000))

        def fill(number: int) -> list[bytes]:
            bodies = [b"letter %d" % next(sent) for _ in range(number)]
            send(rabbit, queue, *map(poison, bodies))
            return bodies

        return Place(Careful(rabbit.broker()), request(queue).source, fill)


LONG = "k" * 256
VALUES: Sequence[tuple[Any, bool]] = (
    ("text", True), (5, True), (ulong(2**63), True), (0.5, True), (True, True), (None, True),
    (b"\xff", True), (float("nan"), True), (float("-inf"), True),
    (decimal64(5), True), (Array(UNDESCRIBED, Data.INT, 1), True), ([1, "a"], True), ({"k": ulong(7)}, True),
    ([decimal64(5)], True), ({b"k": 1}, True), ([{"k": ulong(7)}], True), (SEVEN, False), (char("c"), False),
    ([ulong(7)], False), ([SEVEN], False), ({"k": SEVEN}, False), ({5: "v"}, False), ({LONG: 1}, False),
    ([Array(UNDESCRIBED, Data.INT, 1)], False), (Array(UNDESCRIBED, Data.UUID, SEVEN), False),
)  # fmt: skip


def test_what_is_read_by_1_0_is_exactly_what_closes_0_9_1_connections(rabbit: Rabbit) -> None:
    queue = rabbit.queue()
    messages = [
        *[(plain(b"x", properties={"k": value}), fits) for value, fits in VALUES],
        *[(plain(b"x", annotations={symbol("x-k"): value}), fits) for value, fits in VALUES if value],
        (plain(b"x", content_type=symbol("c" * 255), properties={LONG: SEVEN}), True),
        (plain(b"x", content_type=symbol("c" * 256)), False),
        (plain(b"x", annotations={symbol("x-opt-deaths"): SEVEN}), True),
    ]
    channel = rabbit.connect()
    with connected(rabbit) as connection:
        sender = connection.create_sender(f"/queues/{queue}")
        for sent, fits in messages:
            sender.send(sent)
            seen = message.parts(message.split(_raw(rabbit, queue))[0])
            assert is_carried_by_0_9_1(seen, rabbit.version) is fits, sent
            if fits:
                assert channel.basic_get(queue, auto_ack=True)[0], sent
                continue
            with pytest.raises(ConnectionClosedByBroker, match="541"):
                channel.basic_get(queue)
            received(rabbit, queue)
            channel = rabbit.connect()
    channel.connection.close()


def _raw(rabbit: Rabbit, queue: str) -> bytes:
    """The letter in front, which goes back."""
    session = open_session(rabbit.broker())
    link = session.attach(frames.RECEIVER, f"/queues/{queue}")
    while not (found := session.take()):
        session.ask(link, 1)
        session.turn(1)
    session.settle(found[0].number, found[0].number, frames.RELEASED)
    while not session.outcomes():
        session.turn(1)
    session.close()
    return found[0].message


@each_kind
def test_a_drain_after_a_copy_adds_nothing_twice_and_each_letter_has_its_own_form(
    rabbit: Rabbit, kind: str, tmp_path: Path
) -> None:
    queue = rabbit.queue(kind)
    nested = {"headers": {"table": {"array": [1, 2]}}}
    rabbit.publish(queue, [b"a", b"b"], **nested)
    send(rabbit, queue, poison(b"c"), plain(b"d", subject="s"), poison(b"c"))
    rabbit.publish(queue, [b"e"], **nested)
    store, source = LocalStore(str(tmp_path)), Source("orders", "shop", queue=queue)

    def pulled(mode: Any) -> PullResult:
        result = pull(store, rabbit.connector(), source, PullOptions(mode, force=True))
        assert (result.error, result.partial, result.left) == (None, False, 0)
        return result

    assert pulled("copy").captured == 6
    rabbit.wait_for(queue, 6)
    assert (pulled("drain").captured, rabbit.depth(queue)) == (0, 0)


@each_kind
def test_what_is_released_keeps_its_place_and_has_failed_no_more_often(rabbit: Rabbit, kind: str) -> None:
    queue = rabbit.queue(kind, x_single_active_consumer=True)
    for part in range(3):
        rabbit.publish(queue, [b"%d %d" % (part, number) for number in range(10)])
        send(rabbit, queue, poison(b"poison %d" % part))
    found = captured(rabbit.broker(), queue)
    assert [one.body for one in found[:3]] == [b"poison %d" % part for part in range(3)]
    assert [one.body for one in found[3:]] == [b"%d %d" % (part, n) for part in range(3) for n in range(10)]
    assert not any("x-delivery-count" in one.headers for one in found)
    assert rabbit.depth(queue) == 0


def test_what_a_quorum_queue_has_not_committed_is_not_called_removed(rabbit: Rabbit) -> None:
    """The broker answers an outcome, and a declare, without its leader."""
    queue = rabbit.queue("quorum")
    send(rabbit, queue, poison(b"letter"))
    reading = Careful(rabbit.broker(timeout="1s")).read(request(queue))
    assert [*reading.batches()][-1].position == 1
    to_process(rabbit, queue, "sys:suspend(Pid)")
    with pytest.raises(ConnectionLost):
        reading.acknowledge(1)
    to_process(rabbit, queue, "sys:resume(Pid)")
    reading.close()


def test_a_dead_letter_says_what_it_died_of_and_what_is_in_it(rabbit: Rabbit) -> None:
    dead = rabbit.queue("quorum")
    work = rabbit.queue(x_dead_letter_exchange="", x_dead_letter_routing_key=dead)
    sent = poison(
        {"order": [1, SEVEN]}, id=SEVEN, correlation_id=ulong(5), subject="s", reply_to="/queues/r",
        priority=7, creation_time=1_700_000_000.5, content_type=symbol("application/json"), group_id="g",
        properties={"n": 5, "who": "me"}, annotations={symbol("x-opt-mine"): char("c")},
    )  # fmt: skip
    sent.inferred = False
    send(rabbit, work, sent)
    with connected(rabbit) as connection:
        receiver = connection.create_receiver(f"/queues/{work}")
        receiver.receive(timeout=PATIENCE)
        receiver.reject()
    rabbit.wait_for(dead, 1)
    [found] = captured(rabbit.broker(), dead)
    assert (found.exchange, found.routing_key, found.origin, found.attempts) == ("", dead, work, 1)
    assert found.dead_at == found.deaths[0].time == found.first_dead_at
    assert found.published_at == 1_700_000_000_500_000
    assert (found.message_id, found.correlation_id, found.priority) == (f"urn:uuid:{SEVEN}", "5", 7)
    wanted = {"poison": str(SEVEN), "n": "5", "who": "me", "x-opt-mine": "c", "x-first-death-queue": work}
    assert wanted.items() <= found.headers.items()
    assert {"subject": "s", "type": "amqp-1.0", "group_id": "g"}.items() <= found.properties.items()
    verdict = judge(found, Facts())
    assert (verdict.cause, verdict.mechanism, verdict.origin) == ("poison_ack", "reject", work)


def test_what_is_sent_back_equals_what_was_sent_and_bodies_of_many_frames_arrive(rabbit: Rabbit) -> None:
    queue, target = rabbit.queue(), rabbit.queue("quorum")
    large = bytes(range(256)) * 12_000
    known = {"id": SEVEN, "subject": "s", "priority": 7, "user_id": b"guest", "expiry_time": 1_900_000_000.0}
    annotations = {symbol("x-opt-mine"): "v", symbol("x-cust"): 5}
    for body, inferred in ((large, True), ({"a": [1, SEVEN]}, False), ([1, "two"], True), (b"", True)):
        sent = poison(body, annotations=annotations, **known)
        sent.inferred = inferred
        send(rabbit, queue, sent)
        [found] = captured(rabbit.broker(), queue)
        publish(rabbit.broker(), [letter(1, to_queue(target), found)])
        back = received(rabbit, target)
        assert bytes(back.body) == body if isinstance(body, bytes) else back.body == body
        assert (back.id, back.subject, back.priority, back.durable) == (SEVEN, "s", 7, True)
        assert (back.user_id, back.expiry_time) == (b"", 0.0)
        assert back.properties == {"poison": SEVEN, **letter(1, to_queue(target)).provenance}
        assert {symbol("x-opt-mine"): "v", symbol("x-cust"): 5}.items() <= back.annotations.items()


def test_letters_of_both_kinds_go_to_queues_and_exchanges_with_odd_names(rabbit: Rabbit) -> None:
    odd, found = "a b/ü%", a_poison(rabbit)
    rabbit.channel.queue_declare(odd, durable=True)
    rabbit.channel.exchange_declare(odd, "direct")
    rabbit.channel.queue_bind(odd, odd, odd)
    targets = [to_queue(odd), Target("exchange", odd, odd), Target("exchange", odd, "none"), to_queue("none")]
    given = [letter(n, targets[n % 4], found if n % 3 else None) for n in range(24)]
    answers = publish(rabbit.broker(), [*given, letter(24, Target("exchange", "none", "k"), found)])
    assert outcomes(answers) == {n: "confirmed" if n % 4 < 2 and n < 24 else "returned" for n in range(25)}
    rabbit.wait_for(odd, 12)
    drain = pull_all(rabbit, odd)
    assert Counter(message.is_block(one.raw_properties) for one in drain) == {True: 8, False: 4}


def test_a_window_beyond_the_brokers_credit_is_kept(rabbit: Rabbit) -> None:
    target, found, taken = to_queue(rabbit.queue()), a_poison(rabbit), 0

    def letters() -> Iterator[Outgoing]:
        nonlocal taken
        for number in range(2_000):
            taken += 1
            yield letter(number, target, found)

    publisher = rabbit.connector().publisher(SendRequest(new_plan(), 500))
    for answered, _ in enumerate(publisher.publish(letters())):
        assert taken - answered <= 500
    publisher.close()


def test_a_witness_proves_letters_of_both_kinds(rabbit: Rabbit) -> None:
    target, plan, found = to_queue(rabbit.queue()), new_plan(), a_poison(rabbit)
    outgoing = [letter(number, target, found if number % 3 else None) for number in range(12)]
    wait_until_the_node_is_no_newcomer(rabbit)
    connector, since = rabbit.connector(), now()
    answers = publish(rabbit.broker(), outgoing[:8], plan=plan, witness=True)
    assert {*outcomes(answers).values()} == {"confirmed"}
    find = lambda: connector.find(Search(plan, outgoing, since))  # noqa: E731
    for _ in range(2):  # what was read goes back
        shown = proven(find, but=range(8, 12))
        assert shown == {number: "sent" if number < 8 else "unknown" for number in range(12)}
    [uncounted] = find().doubts
    assert "which leaves out what comes by AMQP 1.0" in uncounted
    connector.forget(SendRequest(plan, witness=True))


def pull_all(rabbit: Rabbit, queue: str) -> list[Record]:
    return letters(Careful(rabbit.broker()).read(request(queue)))


def test_a_small_letter_that_promises_much_is_captured_and_goes_back_byte_by_byte(rabbit: Rabbit) -> None:
    died, again, found = rabbit.queue(), rabbit.queue(), a_poison(rabbit)
    promise = values.sized_32(0xF0, 5) + (60_000).to_bytes(4, "big") + values.TRUE
    pairs = [
        values.string("poison") + b"\x98" + SEVEN.bytes,
        *[values.string(f"k{n}") + promise for n in range(19)],
    ]
    application = values.described_value(message.APPLICATION, values.mapping(pairs))
    body = values.described_value(message.DATA, values.binary(b"x"))
    made = found._replace(raw_properties=message.split(application + body)[0])
    publish(rabbit.broker(), [letter(0, to_queue(died), made)._replace(provenance={})])
    [kept] = captured(rabbit.broker(), died)
    assert (kept.body, kept.headers["poison"]) == (b"x", str(SEVEN))
    assert all("too much" in kept.headers[f"k{n}"] for n in range(19))
    assert application in (kept.raw_properties or b"")
    publish(rabbit.broker(), [letter(0, to_queue(again), kept)._replace(provenance={})])
    assert application in message.split(_raw(rabbit, again))[0]


class TestSending(SendingContract):
    """The way back of the contract with a witness, by AMQP 1.0."""

    @pytest.fixture
    def place(self, rabbit: Rabbit) -> SendingPlace:
        queue, found = rabbit.queue("quorum"), a_poison(rabbit)

        def refused() -> tuple[Record, Target]:
            full = rabbit.queue(x_max_length=1, x_overflow="reject-publish")
            rabbit.publish(full, [b"first"])
            return found, to_queue(full)

        return SendingPlace(
            rabbit.connector(),
            to_queue(queue),
            lambda number: found._replace(body=b"%03d" % number, body_size=3),
            lambda: [one.headers["dlq_replay_id"] for one in pull_all(rabbit, queue)],
            nowhere=to_queue("nowhere"),
            refused=refused,
            cutting=lambda: cutting(rabbit),
            witness=True,
            servers=[f"127.0.0.1:{port}" for port in (rabbit.node.port, rabbit.node.http_port)],
            before_proof=lambda: wait_until_the_node_is_no_newcomer(rabbit),
            cannot={
                "buffer": "each letter is written before the next is taken",
                "absence": "nothing that RabbitMQ shows counts what comes into a queue by AMQP 1.0",
            },
        )


def test_a_letter_over_which_the_broker_fails_each_time_is_a_poison(rabbit: Rabbit, tmp_path: Path) -> None:
    """4.3.6 fails itself at a null annotation beside a letter that only AMQP 1.0 carries."""
    queue = rabbit.queue()
    rabbit.publish(queue, [b"a", b"b"])
    send(rabbit, queue, poison(), plain(b"odd", annotations={symbol("x-k"): None}))
    rabbit.wait_for(queue, 4)
    store = LocalStore(str(tmp_path / "archive"))
    done = pull(store, rabbit.connector(), request(queue).source, PullOptions("drain"))
    assert isinstance(done.error, PoisonMessage), done.error
    assert (done.captured, done.acknowledged, done.left) == (2, 2, 2)
    assert "\n" not in str(done.error)
    rabbit.wait_for(queue, 2)
