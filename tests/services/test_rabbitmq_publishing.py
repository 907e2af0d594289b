"""The way into a real RabbitMQ: what the broker says of each letter, and what remains when it cannot."""

import asyncio
import contextlib
import os
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

import pika
import pytest
from services.cutter import Cutter
from services.rabbitmq_fixtures import (
    A_QUEUE_IS_DURABLE_AFTER,
    KINDS,
    Rabbit,
    on_private_nodes,
    on_rabbitmq_4,
)

from dlq.connectors.base import Outgoing, Sent, Target
from dlq.connectors.rabbitmq import RabbitConnector
from dlq.connectors.rabbitmq_management import Management
from dlq.connectors.rabbitmq_publishing import RabbitPublisher
from dlq.connectors.rabbitmq_witness import WitnessedPublisher, exchange_of, queue_of
from dlq.core.clock import now
from dlq.core.errors import ConnectionLost, NotFound
from dlq.core.record import Record

pytestmark = pytest.mark.rabbitmq
HEADERS = {"tenant": 42, "x-death": [{"reason": "rejected", "queue": "orders", "count": 1}]}
_plans = count(1)


def new_plan() -> str:
    return f"plan-{time.time_ns()}-{next(_plans)}"


def record(body: bytes = b"letter", **properties: object) -> Record:
    block = b"".join(pika.BasicProperties(**{"headers": HEADERS, "message_id": "m", **properties}).encode())
    return Record("r", "s", "b", "rabbitmq", "dlq", raw_properties=block, body=body, body_size=len(body))


def letter(number: int, target: Target, what: Record | None = None) -> Outgoing:
    provenance = {"dlq_replay_id": f"id-{number}", "dlq_replay_lap": "1", "dlq_replay_of": f"record-{number}"}
    return Outgoing(number, what or record(), target, provenance)


def to_queue(name: str) -> Target:
    return Target("queue", name)


def publish(rabbit: Rabbit, letters: Sequence[Outgoing], window: int = 1000) -> dict[int, Sent]:
    publisher = RabbitPublisher(rabbit.broker(), new_plan(), window)
    try:
        sent = list(publisher.publish(iter(letters)))
    finally:
        publisher.close()
    assert sorted(answer.number for answer in sent) == sorted(given.number for given in letters)
    return {answer.number: answer for answer in sent}


def until_it_ends(
    publisher: RabbitPublisher, letters: Iterator[Outgoing]
) -> tuple[list[Sent], Exception | None]:
    """All answers, and what `publish` raised at the end."""
    sent: list[Sent] = []
    try:
        for answer in publisher.publish(letters):
            sent.append(answer)
    except (ConnectionLost, NotFound) as error:
        return sent, error
    finally:
        publisher.close()
    return sent, None


def replay_ids(rabbit: Rabbit, queue: str) -> list[str]:
    """Of all messages in a queue; they stay there."""
    number = settled_depth(rabbit, queue)
    channel = rabbit.channel.connection.channel()
    channel.basic_qos(prefetch_count=65_535)
    found: list[str] = []
    channel.basic_consume(
        queue, lambda _channel, _method, properties, _body: found.append(properties.headers["dlq_replay_id"])
    )
    wait_until(lambda: channel.connection.process_data_events(0.1) or len(found) >= number)
    channel.close()
    rabbit.wait_for(queue, number)
    return found


def wait_until(holds: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def settled_depth(rabbit: Rabbit, queue: str) -> int:
    before = -1
    while before != (depth := rabbit.depth(queue)):
        before = depth
        time.sleep(0.3)
    return depth


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


def test_an_exchange_that_is_not_there_ends_the_run_with_nothing_in_doubt_after_it(rabbit: Rabbit) -> None:
    queue = rabbit.queue()
    publisher = RabbitPublisher(rabbit.broker(), new_plan(), 100)
    letters = (letter(n, to_queue(queue) if n < 50 else Target("exchange", "none", "k")) for n in range(200))
    sent, error = until_it_ends(publisher, letters)
    assert isinstance(error, NotFound)
    outcomes = {answer.number: answer.outcome for answer in sent}
    assert {outcomes[n] for n in range(50, len(sent))} == {"refused"}
    arrived = {int(found.removeprefix("id-")) for found in replay_ids(rabbit, queue)}
    assert {n for n, outcome in outcomes.items() if outcome == "confirmed"} <= arrived
    assert arrived <= {n for n, outcome in outcomes.items() if outcome in ("confirmed", "in_doubt")}


def test_no_more_than_the_window_is_taken_ahead_of_the_answers(rabbit: Rabbit) -> None:
    queue = rabbit.queue()
    taken = 0

    def letters() -> Iterator[Outgoing]:
        nonlocal taken
        for number in range(500):
            taken += 1
            yield letter(number, to_queue(queue))

    publisher = RabbitPublisher(rabbit.broker(), new_plan(), 20)
    for answered, _ in enumerate(publisher.publish(letters())):
        assert taken - answered <= 20 + 20  # one window in flight, one answered and being handed over
    publisher.close()
    assert taken == 500


@on_private_nodes
def test_an_alarm_with_a_window_in_flight_leaves_only_that_window_in_doubt(rabbit: Rabbit) -> None:
    queue = rabbit.queue()
    publisher = RabbitPublisher(rabbit.broker(), new_plan(), 100, blocked_seconds=1.0)

    def letters() -> Iterator[Outgoing]:
        for number in count():
            if number == 500:
                rabbit.node.ctl("set_vm_memory_high_watermark", "0.00001")
            yield letter(number, to_queue(queue))

    try:
        sent, error = until_it_ends(publisher, letters())
    finally:
        rabbit.node.ctl("set_vm_memory_high_watermark", "absolute", "2GB")
    assert "alarm" in str(error)
    outcomes = Counter(answer.outcome for answer in sent)
    assert outcomes["confirmed"] >= 400
    assert outcomes["in_doubt"] <= 100
    depth = settled_depth(rabbit, queue)
    assert outcomes["confirmed"] <= depth <= outcomes["confirmed"] + outcomes["in_doubt"]


@on_private_nodes
def test_an_alarm_that_ends_in_time_costs_nothing(rabbit: Rabbit) -> None:
    queue = rabbit.queue()
    publisher = RabbitPublisher(rabbit.broker(), new_plan(), 100)

    def free_memory() -> None:
        time.sleep(1.5)
        rabbit.node.ctl("set_vm_memory_high_watermark", "absolute", "2GB")

    def letters() -> Iterator[Outgoing]:
        for number in range(2000):
            if number == 500:
                rabbit.node.ctl("set_vm_memory_high_watermark", "0.00001")
                threading.Thread(target=free_memory).start()
            yield letter(number, to_queue(queue))

    sent, error = until_it_ends(publisher, letters())
    assert (Counter(answer.outcome for answer in sent), error) == ({"confirmed": 2000}, None)
    rabbit.wait_for(queue, 2000)


@pytest.mark.parametrize("direction", ["requests", "answers"])
def test_a_cut_connection_leaves_at_most_one_window_in_doubt(rabbit: Rabbit, direction: str) -> None:
    queue = rabbit.queue()
    url = urlsplit(rabbit.url)
    with Cutter(f"{url.hostname}:{url.port}") as cutter:
        setattr(cutter, direction, 200_000 if direction == "requests" else 1_500)
        broker = rabbit.broker(url=f"amqp://{url.username}@{cutter.address}{url.path}")
        publisher = RabbitPublisher(broker, new_plan(), 100)
        sent, error = until_it_ends(publisher, (letter(n, to_queue(queue)) for n in count()))
    assert isinstance(error, ConnectionLost)
    outcomes = Counter(answer.outcome for answer in sent)
    assert 0 < outcomes["in_doubt"] <= 100
    depth = settled_depth(rabbit, queue)
    assert outcomes["confirmed"] <= depth <= outcomes["confirmed"] + outcomes["in_doubt"]
    assert len({answer.number for answer in sent}) == len(sent) == max(answer.number for answer in sent) + 1


@contextlib.contextmanager
def tls_in_front_of(host: str, port: int, folder: Path) -> Iterator[int]:
    """The port of a server that takes TLS off and passes on."""
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    files = ["-keyout", f"{folder}/key.pem", "-out", f"{folder}/ca.pem"]
    wanted = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *names, *files]
    subprocess.run(wanted, check=True, capture_output=True)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(f"{folder}/ca.pem", f"{folder}/key.pem")

    async def pass_on(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                sink.write(data)
                await sink.drain()
        sink.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(host, port)
        await asyncio.gather(pass_on(reader, far_writer), pass_on(far_reader, writer))

    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(asyncio.start_server(serve, "localhost", 0, ssl=context))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


def test_letters_large_and_small_go_through_tls_in_both_directions(rabbit: Rabbit, tmp_path: Path) -> None:
    queue = rabbit.queue()
    url = urlsplit(rabbit.url)
    large = record(b"x" * 1_000_000)
    with tls_in_front_of(url.hostname or "", url.port or 5672, tmp_path) as port:
        address = f"amqps://{url.username}@localhost:{port}{url.path}"
        publisher = RabbitPublisher(rabbit.broker(url=address, ca_file=f"{tmp_path}/ca.pem"), new_plan(), 50)
        letters = [
            letter(n, to_queue("nowhere" if n % 2 else queue), large if n % 7 == 0 else None)
            for n in range(200)
        ]
        sent, error = until_it_ends(publisher, iter(letters))
    assert error is None
    assert Counter((answer.number % 2, answer.outcome) for answer in sent) == {
        (0, "confirmed"): 100, (1, "returned"): 100,
    }  # fmt: skip
    rabbit.wait_for(queue, 100)


CLIENT = """
import sys
from itertools import count
sys.path.insert(0, {tests!r})
from services.test_rabbitmq_publishing import letter, to_queue
from dlq.connectors.rabbitmq_witness import WitnessedPublisher
from dlq.core.settings import Broker
broker = Broker("shop", "rabbitmq", url={url!r}, password_env={variable!r})
publisher = WitnessedPublisher(broker, {plan!r}, 1000)
for answer in publisher.publish(letter(number, to_queue({queue!r})) for number in count()):
    print(answer.number, answer.outcome, flush=answer.number % 100 == 0)
"""


@on_private_nodes
@pytest.mark.parametrize("kind", KINDS)
def test_after_kill_9_the_witness_holds_exactly_what_the_target_holds(rabbit: Rabbit, kind: str) -> None:
    queue, plan = rabbit.queue(kind), new_plan()
    wait_until_the_node_is_no_newcomer(rabbit)
    since = now()
    broker = rabbit.broker()
    tests = os.path.dirname(os.path.dirname(__file__))
    code = CLIENT.format(tests=tests, url=broker.url, variable=broker.password_env, plan=plan, queue=queue)
    client = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert client.stdout is not None
    while rabbit.depth(queue) < 2000:
        assert client.poll() is None
    client.send_signal(signal.SIGKILL)
    said = client.stdout.read()
    client.wait()
    depth = settled_depth(rabbit, queue)
    rabbit.wait_for(queue_of(plan), depth)
    target = set(replay_ids(rabbit, queue))
    assert target == set(replay_ids(rabbit, queue_of(plan)))
    last = max(int(found.removeprefix("id-")) for found in target)
    asked = [letter(number, to_queue(queue)) for number in range(last - 500, last + 500)]
    connector = RabbitConnector(broker)
    found = connector.find(plan, asked, since)
    assert {n for n, presence in found.items() if presence == "sent"} == {
        given.number for given in asked if given.provenance["dlq_replay_id"] in target
    }
    assert "unknown" not in found.values()
    assert Counter(line.split()[1] for line in said.splitlines()[:-1]).keys() == {"confirmed"}
    connector.forget(plan)
    assert set(connector.find(plan, asked, since).values()) == {"unknown"}


@on_private_nodes
def test_a_killed_broker_has_all_that_it_confirmed_and_its_witness_proves_nothing(rabbit: Rabbit) -> None:
    queues, plan, since = [rabbit.queue(kind) for kind in KINDS], new_plan(), now()
    time.sleep(A_QUEUE_IS_DURABLE_AFTER)
    publisher = WitnessedPublisher(rabbit.broker(), plan, 100)

    def letters() -> Iterator[Outgoing]:
        for number in count():
            if number == 1000:
                rabbit.node.kill()
            yield letter(number, to_queue(queues[number % 2]))

    sent, error = until_it_ends(publisher, letters())
    rabbit.node.start()
    after = Rabbit(rabbit.url, rabbit.vhost, rabbit.node, rabbit.connect())
    assert isinstance(error, ConnectionLost)
    outcomes = Counter(answer.outcome for answer in sent)
    assert outcomes.keys() == {"confirmed", "in_doubt"}
    assert outcomes["in_doubt"] <= 100
    confirmed = {f"id-{answer.number}" for answer in sent if answer.outcome == "confirmed"}
    wait_until(lambda: sum(map(after.depth, queues)) >= len(confirmed))  # a quorum queue elects first
    assert confirmed <= {found for queue in queues for found in replay_ids(after, queue)}
    doubtful = [letter(answer.number, to_queue(queues[0])) for answer in sent if answer.outcome == "in_doubt"]
    found = RabbitConnector(rabbit.broker()).find(plan, doubtful, since)
    assert found == {given.number: "unknown" for given in doubtful}
    after.channel.connection.close()


@on_private_nodes
def test_a_witness_proves_nothing_of_a_node_that_started_after_the_first_send(rabbit: Rabbit) -> None:
    queue, plan = rabbit.queue(), new_plan()
    broker = rabbit.broker()
    publisher = WitnessedPublisher(broker, plan, 10)
    letters = [letter(1, to_queue(queue)), letter(2, to_queue("nowhere"))]
    sent, error = until_it_ends(publisher, iter(letters))
    assert {answer.number: answer.outcome for answer in sent} == {1: "confirmed", 2: "returned"}
    assert error is None
    long_ago = now() - 86_400_000_000
    assert RabbitConnector(broker).find(plan, letters, long_ago) == {1: "unknown", 2: "unknown"}
    without = rabbit.broker(management_url=None)
    assert RabbitConnector(without).find(plan, letters, now()) == {1: "unknown", 2: "unknown"}


def test_a_target_that_is_deleted_in_the_middle_is_told_of(rabbit: Rabbit) -> None:
    queue, plan = rabbit.queue(), new_plan()

    def letters() -> Iterator[Outgoing]:
        yield letter(1, to_queue(queue))
        rabbit.channel.queue_delete(queue)
        yield letter(2, to_queue(queue))

    _, error = until_it_ends(WitnessedPublisher(rabbit.broker(), plan, 1), letters())
    assert "was deleted" in str(error)
    rabbit.channel.queue_delete(queue_of(plan))
    rabbit.channel.exchange_delete(exchange_of(plan))


def wait_until_the_node_is_no_newcomer(rabbit: Rabbit) -> None:
    management = Management(rabbit.broker())
    while min(node.get("uptime", 0) for node in management.get("nodes")) < 6000:
        time.sleep(0.5)
    management.close()


@on_private_nodes
def test_the_audience_of_a_target_is_read_from_the_bindings(rabbit: Rabbit) -> None:
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
    assert RabbitConnector(rabbit.broker()).audience(asked) == expected
    assert RabbitConnector(rabbit.broker(management_url=None)).audience(asked) == {}
