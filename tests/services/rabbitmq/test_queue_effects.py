"""What a copy, a drain and crashes do to each kind of queue: said or refused before, and really so."""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pika.exceptions import ChannelClosedByBroker
from support.brokers.rabbitmq.fixtures import KINDS, Rabbit, on_private_nodes, on_rabbitmq_4, request
from support.connector_contract import Place, drained, first_letters, letters
from support.rows import each_row
from support.waiting import eventually

from dlq.connectors.base import Batch, Mode, Reading
from dlq.connectors.rabbitmq.amqp091.link.questions import Questions
from dlq.connectors.rabbitmq.amqp10.send import open_session
from dlq.connectors.rabbitmq.look.management import Management
from dlq.connectors.rabbitmq.plugin.connector import RabbitConnector
from dlq.connectors.rabbitmq.plugin.description import RabbitBroker
from dlq.core.errors import AccessDenied, BrokerError, ConnectionLost, HarmRefused, NotFound

each_kind = pytest.mark.parametrize("kind", KINDS)
BODIES = [b"a", b"b", b"c", b"d", b"e"]


def reader(rabbit: Rabbit, management: str | None = None, configure: str = "^$") -> RabbitBroker:
    """As a user who may read and, unless more is said, no more; `management` is a wrong name of the API's
    path."""
    os.environ["DLQ_TEST_READER"] = "first"
    wrong = f"{rabbit.node.http}/{management}" if management else None
    rights, changes = f"{configure} ^amq.default$ .*", {"password_env": "DLQ_TEST_READER"}
    return rabbit.by_user("reader", "first", rights=rights, management_url=wrong, **changes)


def refused(rabbit: Rabbit, queue: str, mode: Mode, managed: bool = True) -> str:
    """Why the mode is refused, as the reading and `dlq doctor` say."""
    connector = rabbit.connector() if managed else rabbit.connector(management_url=None)
    with pytest.raises(HarmRefused) as raised:
        connector.read(request(queue, mode))
    assert rabbit.inspect(queue, managed).harm[mode] in str(raised.value)
    return str(raised.value)


def copy(rabbit: Rabbit, queue: str, meanwhile: Callable[[], object] = lambda: None) -> int:
    """The letters that a copy shows; something happens before it gives them back."""
    reading = rabbit.read(queue, "copy", force=True)
    seen = sum(len(batch.records) for batch in reading.batches())
    meanwhile()
    reading.close()
    return seen


def crash(rabbit: Rabbit, queue: str, meanwhile: Callable[[], object] = lambda: None) -> int:
    """The letters that a drain held when its connection was cut; something happens before."""
    reading: Any = rabbit.connector().read(request(queue, force=True, batch_rows=5))
    held = count_held(reading, reading.snapshot)
    meanwhile()
    cut(reading)
    return held


def cut(reading: Any) -> None:
    """End its connection as a crash does."""
    reading._link._socket.close()


def count_held(reading: Reading, most: int) -> int:
    """The letters that a reading holds when it has so many, or comes no further without acknowledgements:
    then empty batches follow close on each other, while of a slow broker one comes each second, and three at
    most."""
    held = empty = 0
    for batch in reading.batches():
        held, empty = held + len(batch.records), 0 if batch.records else empty + 1
        if held == most or (held and empty > 5):
            break
    return held


def acknowledge(reading: Reading, batches: Iterator[Batch]) -> None:
    """Take and acknowledge the rest, as a pull does."""
    for batch in batches:
        reading.acknowledge(batch.position)
    reading.settled_position()


def left(rabbit: Rabbit, queue: str, number: int) -> list[bytes]:
    """The bodies that lie there, taken in their order once there are so many."""
    rabbit.wait_for(queue, number)
    return [body for _, _, body in rabbit.take(queue, number)]


def is_gone(rabbit: Rabbit, queue: str) -> bool:
    """Whether the queue has ended; if not, it was used now."""
    channel = rabbit.channel.connection.channel()
    try:
        channel.queue_declare(queue, passive=True)
    except ChannelClosedByBroker as closed:
        return bool(closed.reply_code == 404)
    return False


@each_kind
@pytest.mark.parametrize("end", [copy, crash])
def test_what_is_given_back_is_marked_and_keeps_its_order(
    rabbit: Rabbit, kind: str, end: Callable[..., int]
) -> None:
    queue = rabbit.holding(BODIES, kind)
    assert end(rabbit, queue) == 5
    rabbit.wait_for(queue, 5)
    taken = rabbit.take(queue, 5)
    assert [body for _, _, body in taken] == BODIES
    assert all(method.redelivered for method, _, _ in taken)
    counts = [(properties.headers or {}).get("x-delivery-count", 0) for _, properties, _ in taken]
    counted = kind == "quorum" and (end is crash or rabbit.version < (4, 3))
    assert set(counts) == {1 if counted else 0}


@pytest.mark.parametrize("managed", [True, False])
@pytest.mark.parametrize("mode", ["copy", "drain"])
def test_a_queue_that_goes_with_its_last_consumer_is_left_alone(
    rabbit: Rabbit, mode: Mode, managed: bool
) -> None:
    queue = f"auto-delete-{time.time_ns()}"
    rabbit.channel.queue_declare(queue, durable=True, auto_delete=True)
    rabbit.publish(queue, BODIES)
    rabbit.wait_for(queue, 5)
    assert "it is auto-delete" in refused(rabbit, queue, mode, managed)
    assert rabbit.depth(queue) == 5, "looking is no consumer"
    with pytest.raises(NotFound):
        drained(Place(rabbit.connector(), request(queue).source, lambda _n: []), limit=2, force=True)
    eventually(lambda: is_gone(rabbit, queue))


@on_private_nodes
def test_a_queue_that_may_go_with_its_consumer_is_left_alone_until_that_is_known(rabbit: Rabbit) -> None:
    """Whoever insists has one consumer drain it to its end."""
    queue = f"auto-delete-{time.time_ns()}"
    rabbit.channel.queue_declare(queue, durable=True, auto_delete=True)
    rabbit.fill(queue, 5_000)
    for configure, why in (("^$", "whether it is auto-delete is not known"), (".*", "it is auto-delete")):
        for limit in (None, 100):
            with pytest.raises(HarmRefused, match=why):
                RabbitConnector(reader(rabbit, configure=configure)).read(request(queue, limit=limit))
    assert rabbit.depth(queue) == 5_000
    place = Place(RabbitConnector(reader(rabbit)), request(queue).source, lambda _n: [])
    assert "auto-delete is not known" in place.connector.inspect(place.source).harm["drain"]
    assert len(drained(place, force=True)) == 5_000
    lasting = rabbit.holding(BODIES)
    for management in (None, "none"):
        RabbitConnector(reader(rabbit, management, ".*")).read(request(lasting)).close()


@on_private_nodes
@pytest.mark.parametrize("configure", ["^$", ".*"])
@pytest.mark.parametrize("arguments", [{}, {"x_delivery_limit": 9}])
def test_a_limit_that_is_not_seen_costs_few_letters_and_is_not_told(
    rabbit: Rabbit, configure: str, arguments: dict[str, Any]
) -> None:
    """A policy removes what was delivered once."""
    queue = rabbit.queue("quorum", **arguments)
    rabbit.set_policy(f"^{queue}$", {"delivery-limit": 0})
    rabbit.publish(queue, [b"letter"] * 500)
    rabbit.wait_for(queue, 500)
    broker = reader(rabbit, configure=configure)
    facts = str(RabbitConnector(broker).inspect(request(queue).source).facts)
    known = "9, or lower by a policy that is not seen" if arguments and configure == ".*" else "not known"
    assert f"'{known}'" in facts
    reading: Any = RabbitConnector(broker).read(request(queue, force=configure == "^$"))
    held = count_held(reading, 500)
    cut(reading)
    assert 0 < held <= 32
    rabbit.wait_for(queue, 500 - held)


@on_private_nodes
def test_a_password_is_asked_for_anew_by_each_connection(rabbit: Rabbit, tmp_path: Path) -> None:
    queue, token = rabbit.holding(BODIES), tmp_path / "token"
    token.write_text("first")
    broker = replace(reader(rabbit, configure=".*"), password_env=None, password_command=("cat", str(token)))
    connector = RabbitConnector(broker)
    rabbit.node.api("PUT", "users", "reader", password="first", tags="management")
    management = Management(replace(broker, management_url=rabbit.node.http))
    connector.read(request(queue)).close()
    assert management.get("whoami")
    rabbit.node.api("PUT", "users", "reader", password="second", tags="management")
    token.write_text("second")
    assert management.get("whoami"), "it asks again where its password is refused"
    connector.read(request(queue)).close()
    rabbit.wait_for(queue, len(BODIES))
    rabbit.node.api("PUT", "users", "reader", password="third", tags="")
    token.write_text("third")
    open_session(broker).close() if rabbit.version >= (4,) else Questions(broker).close()


def test_near_a_delivery_limit_a_crash_costs_one_letter_a_delivery(rabbit: Rabbit) -> None:
    queue = rabbit.holding([b"x"] * 30, "quorum", x_delivery_limit=11)
    held = []
    for _ in range(13):
        rabbit.wait_for(queue, 30)
        held.append(crash(rabbit, queue))
    assert held == [30] * 10 + [1] * 3
    assert left(rabbit, queue, 30) == [b"x"] * 30


@each_row(("kind", "end", "overflow"), [
    ("classic", copy, ""), ("classic", crash, ""), ("quorum", crash, ""),
    *[("classic", end, f"reject-publish{more}") for end in (copy, crash) for more in ("", "-dlx")],
])  # fmt: skip
def test_a_full_queue_drops_its_oldest_for_what_came_while_they_were_out_unless_it_refuses_more(
    rabbit: Rabbit, kind: str, end: Callable[..., int], overflow: str
) -> None:
    """A copy that would do that is refused; what it would do is done by one that is forced."""
    queue = rabbit.holding(BODIES, kind, x_max_length=5, **({"x_overflow": overflow} if overflow else {}))
    seen = rabbit.inspect(queue)
    assert "drain" not in seen.harm
    assert any("what a pull that is killed gives back" in said for said in seen.warnings) != bool(overflow)
    if overflow:
        assert "copy" not in seen.harm
    elif kind == "classic":
        assert "it is nearly full and drops its oldest" in refused(rabbit, queue, "copy")
    assert end(rabbit, queue, lambda: rabbit.publish(queue, [b"f"] if overflow else [b"f", b"g"])) == 5
    rest = [*BODIES, b"f"] if overflow else [b"c", b"d", b"e", b"f", b"g"]
    assert left(rabbit, queue, len(rest)) == rest


@pytest.mark.parametrize("end", [copy, crash])
def test_what_is_given_back_too_old_dies_again(rabbit: Rabbit, end: Callable[..., int]) -> None:
    def outlasted(seconds: int) -> str:
        """Where letters go that are held until they are too old; none on a busy machine, where they die
        before they are read."""
        again = rabbit.queue()
        dies = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": again}
        queue = rabbit.queue(x_message_ttl=seconds * 1000, **dies)
        said = f"letters older than {seconds}s are dead-lettered again: pull in time; so do those that are"
        assert f"{said} given back" in str(rabbit.inspect(queue).warnings)
        rabbit.publish(queue, BODIES)
        return again if end(rabbit, queue, lambda: time.sleep(seconds + 0.2)) == 5 else ""

    again = next(filter(None, map(outlasted, (3, 12, 48))))
    assert sorted(left(rabbit, again, 5)) == BODIES


def test_each_use_of_a_queue_that_expires_starts_its_time_anew(rabbit: Rabbit) -> None:
    def outlived(seconds: float) -> Mapping[str, Callable[..., object]]:
        """Queues that were used, each in its way, for longer than they last unused; none on a busy machine,
        where one of them was not used in time."""
        uses = (Rabbit.inspect, copy, crash)
        queues = {rabbit.holding(BODIES, x_expires=round(seconds * 1000)): use for use in uses}
        said = [str(rabbit.inspect(queue).warnings) for queue in queues]
        assert all(f"its letters, when unused for {round(seconds)}s" in one for one in said), said
        used = dict.fromkeys(queues, time.monotonic())
        for _ in range(4):
            time.sleep(seconds / 3)
            for queue, use in queues.items():
                try:
                    use(rabbit, queue)
                except BrokerError:
                    assert time.monotonic() - used[queue] > seconds, "its time did not start anew"
                    return {}
                used[queue] = time.monotonic()
        return queues

    queues = next(filter(None, map(outlived, (4.5, 18.0, 54.0))))
    eventually(lambda: queues.keys().isdisjoint(one["name"] for one in rabbit.listed("queues")))
    assert all(is_gone(rabbit, queue) for queue in queues)


@each_kind
def test_a_single_active_consumer_takes_turns(rabbit: Rabbit, kind: str) -> None:
    queue = rabbit.queue(kind, x_single_active_consumer=True)
    rabbit.fill(queue, 600)
    said = "the queue has a single active consumer; while another one is active, nothing comes"
    assert said in str(rabbit.inspect(queue).warnings)
    reading = rabbit.read(queue, limit=500)
    taken = 0
    other = rabbit.connect()
    other.basic_qos(prefetch_count=10)
    got: list[bytes] = []
    for batch in reading.batches():
        # A reading of a quorum queue is several consumers, between which the other one would have its turn.
        before, taken = taken, taken + len(batch.records)
        if before == 0 < taken if kind == "classic" else before < taken == 500:
            other.basic_consume(queue, lambda _c, _m, _p, body: got.append(body))
        reading.acknowledge(batch.position)
    eventually(lambda: other.connection.process_data_events(0.1) or len(got) == 10)
    assert taken == 500
    reading.close()
    second = rabbit.read(queue)
    assert letters(second) == []
    assert not second.complete


def test_a_consumer_that_wants_a_queue_for_itself_finds_ours_there(rabbit: Rabbit) -> None:
    queue = rabbit.queue()
    rabbit.fill(queue, 20_000)
    reading = rabbit.read(queue, batch_rows=10)
    batches = reading.batches()
    first_letters(batches)
    with pytest.raises(ChannelClosedByBroker, match="exclusive use"):
        rabbit.connect().basic_consume(queue, lambda *_: None, exclusive=True)
    reading.close()


@each_kind
def test_a_consumer_that_has_a_classic_queue_for_itself_keeps_us_out(rabbit: Rabbit, kind: str) -> None:
    """A quorum queue grants that to nobody."""
    queue = rabbit.holding(BODIES, kind)
    holder = rabbit.connect()
    holder.basic_qos(prefetch_count=1)
    holder.basic_consume(queue, lambda *_: None, exclusive=True)
    rabbit.wait_for(queue, 4)
    reading = rabbit.read(queue)
    if kind == "quorum":
        assert len(letters(reading)) == 4
        return
    with pytest.raises(AccessDenied, match="exclusive"):
        letters(reading)


@each_kind
def test_a_consumer_of_a_higher_priority_is_served_first(rabbit: Rabbit, kind: str) -> None:
    queue = rabbit.queue(kind)
    other = rabbit.connect()
    other.basic_qos(prefetch_count=10)
    other.basic_consume(queue, lambda *_: None, arguments={"x-priority": 5})
    rabbit.publish(queue, [b"x"] * 15)
    rabbit.wait_for(queue, 5)
    assert "1 other consumer takes messages from this queue" in rabbit.inspect(queue).warnings
    assert len(letters(rabbit.read(queue))) == 5


@each_row(("arguments", "end"), [
    ({"x_max_priority": 5}, copy), ({"x_max_priority": 5}, crash), ({"x_queue_mode": "lazy"}, copy),
    ({"x_queue_mode": "lazy"}, crash),
])  # fmt: skip
def test_priorities_and_lazy_queues_keep_their_order(
    rabbit: Rabbit, arguments: dict[str, Any], end: Callable[..., int]
) -> None:
    queue = rabbit.queue(**arguments)
    for number, body in enumerate(BODIES):
        rabbit.publish(queue, [body], priority=number % 3)
    rabbit.wait_for(queue, 5)
    assert not rabbit.inspect(queue).harm
    assert end(rabbit, queue) == 5
    in_order = [b"c", b"b", b"e", b"a", b"d"] if "x_max_priority" in arguments else BODIES
    assert left(rabbit, queue, 5) == in_order


@on_rabbitmq_4
@pytest.mark.parametrize("mode", ["copy", "drain"])
def test_a_consumer_timeout_gives_letters_back_counted_once_at_most(rabbit: Rabbit, mode: Mode) -> None:
    queue = rabbit.holding(BODIES, "quorum", x_consumer_timeout=4000)
    assert "holds letters for longer than 4s (consumer-timeout)" in str(rabbit.inspect(queue).warnings)
    reading = rabbit.read(queue, mode, force=True)
    batches, held = reading.batches(), 0
    while held < 5:
        held += len(first_letters(batches).records)
    rabbit.wait_for(queue, 5)
    with pytest.raises(ConnectionLost, match="consumer timeout ran out"):
        acknowledge(reading, batches)
    reading.close()
    rabbit.wait_for(queue, 5)
    counts = [(p.headers or {}).get("x-delivery-count", 0) for _, p, _ in rabbit.take(queue, 5)]
    assert max(counts) <= 1  # mostly none; where the timer is late, the end of the channel counts


@on_rabbitmq_4
def test_a_delayed_retry_hides_what_is_given_back_and_that_is_said(rabbit: Rabbit) -> None:
    delay = {"x_delayed_retry_type": "all", "x_delayed_retry_min": 30_000, "x_delayed_retry_max": 30_000}
    queues = {rabbit.holding(BODIES, "quorum", **delay): end for end in (copy, crash)}
    said = "5 more messages were given back and are hidden"  # statistics of quorum queues come every 5 s
    for queue, end in queues.items():
        warnings = str(rabbit.inspect(queue).warnings)
        assert "hidden from everybody for a while (delayed-retry)" in warnings
        assert end(rabbit, queue) == 5
        eventually(lambda name=queue: said in str(rabbit.inspect(name).warnings))
        reading = rabbit.read(queue)
        assert any("5 more messages were given back" in note for note in reading.notes)
        assert letters(reading) == []
    for queue in queues:
        rabbit.wait_for(queue, 5)


@on_private_nodes
def test_a_queue_that_is_not_durable_goes_with_its_node(rabbit: Rabbit) -> None:
    queue = f"transient-{time.time_ns()}"
    rabbit.channel.queue_declare(queue, durable=False)
    rabbit.publish(queue, BODIES)
    for managed in (True, False):
        assert any("it is not durable" in warning for warning in rabbit.inspect(queue, managed).warnings)
    rabbit.node.shut_down()
    rabbit.node.start()
    rabbit.channel = rabbit.connect()
    assert is_gone(rabbit, queue)


def test_a_stream_forgets_nothing_and_counts_nothing(rabbit: Rabbit) -> None:
    queue = rabbit.holding(BODIES, "stream", x_max_length_bytes=10_000)
    seen = rabbit.inspect(queue)
    assert set(seen.harm) == {"drain"}
    assert seen.changes["copy"] == "nothing"
    assert not any("drops its oldest" in warning for warning in seen.warnings)
    assert (copy(rabbit, queue), copy(rabbit, queue)) == (5, 5)
