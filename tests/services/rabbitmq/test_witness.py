"""The proof of a replay that a real RabbitMQ keeps: what it shows, and that it goes."""

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from threading import Timer
from typing import Any

import pytest
from support import wire_builders
from support.brokers.rabbitmq.broker import Node
from support.brokers.rabbitmq.fixtures import (
    KINDS,
    Rabbit,
    on_private_nodes,
    on_rabbitmq_3,
    on_rabbitmq_4,
    request,
)
from support.brokers.rabbitmq.letters import (
    letter,
    new_plan,
    publish,
    replay_ids,
    sent,
    settled_depth,
    to_process,
    to_queue,
    wait_until_the_node_is_no_newcomer,
)
from support.rows import each_row
from support.sending_contract import proven
from support.waiting import eventually

from dlq.connectors.base import Outgoing, Proof, Search, SendRequest
from dlq.connectors.rabbitmq.amqp091.send import connection_name
from dlq.connectors.rabbitmq.look.management import Management
from dlq.connectors.rabbitmq.plugin.connector import RabbitConnector
from dlq.connectors.rabbitmq.prove.witness import (
    _read_witness,
    count_arrivals,
    exchange_of,
    queue_of,
    wait_for_the_end_of,
)
from dlq.core.clock import now
from dlq.core.errors import AccessDenied, NotFound
from dlq.core.runtime import patience
from dlq.core.settings import Broker

pytestmark = pytest.mark.rabbitmq

CLIENT = """
import sys
from itertools import count
from pathlib import Path
sys.path.insert(0, {tests!r})
from support.brokers.rabbitmq.letters import letter, to_queue
from dlq.connectors.rabbitmq.prove.witness import WitnessedPublisher
from dlq.connectors.rabbitmq.plugin.description import RabbitBroker
broker = RabbitBroker("shop", "rabbitmq", url={url!r}, password_env={variable!r})
publisher = WitnessedPublisher(broker, {plan!r}, 1000)
for answer in publisher.publish(letter(number, to_queue({queue!r})) for number in count()):
    print(answer.number, answer.outcome, flush=answer.number % 100 == 0)
"""


def _client(broker: Broker, plan: str, queue: str) -> "subprocess.Popen[str]":
    tests = str(Path(__file__).parents[2])
    code = CLIENT.format(tests=tests, url=broker.url, variable=broker.password_env, plan=plan, queue=queue)
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)


@on_private_nodes
@pytest.mark.parametrize("kind", KINDS)
def test_after_kill_9_the_witness_holds_what_the_target_holds(rabbit: Rabbit, kind: str) -> None:
    queue, plan = rabbit.queue(kind), new_plan()
    wait_until_the_node_is_no_newcomer(rabbit)
    since = now()
    broker = rabbit.broker()
    client = _client(broker, plan, queue)
    assert client.stdout is not None
    with closing(Management(broker)) as management:
        # What a client has sent before the broker counts it first is in none; the anchor came before.
        while rabbit.depth(queue) < 2000 or count_arrivals(management, plan) in (None, 1):
            assert client.poll() is None
    client.send_signal(signal.SIGKILL)
    said = client.stdout.read()
    client.wait()
    with closing(Management(broker)) as management:  # the broker may still be taking what the client sent
        eventually(lambda: wait_for_the_end_of(connection_name(plan), management))
    settled_depth(rabbit, queue)
    target, witness = (set(replay_ids(rabbit, name)) for name in (queue, queue_of(plan)))
    may_lack = kind == "quorum" and rabbit.version < (4,)
    assert target <= witness if may_lack else target == witness
    last = max(int(found.removeprefix("id-")) for found in witness)
    asked = [letter(number, to_queue(queue)) for number in range(last - 500, last + 500)]
    connector = RabbitConnector(broker)
    there = "unknown" if may_lack else "sent"
    expected = {one.number: there if f"id-{one.number}" in witness else "not_sent" for one in asked}
    open_for_ever = [number for number, found in expected.items() if found == "unknown"]
    assert proven(lambda: connector.find(Search(plan, asked, since)), open_for_ever) == expected
    assert Counter(line.split()[1] for line in said.splitlines()[:-1]).keys() == {"confirmed"}
    connector.forget(SendRequest(plan, witness=True))
    assert set(connector.find(Search(plan, asked, since)).shown.values()) == {"unknown"}


@on_rabbitmq_4
def test_while_the_host_that_sends_sleeps_its_witness_proves_nothing(
    rabbit: Rabbit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has in hand may go out when it wakes, as long as its connection is there."""
    queue, plan, broker = rabbit.queue(), new_plan(), rabbit.broker()
    wait_until_the_node_is_no_newcomer(rabbit)
    client = _client(broker, plan, queue)
    eventually(lambda: rabbit.depth(queue) > 0)
    client.send_signal(signal.SIGSTOP)
    eventually(lambda: connection_of(rabbit, plan))  # a new one is listed up to five seconds late
    asked, connector = [letter(number, to_queue(queue)) for number in (0, 10**7)], RabbitConnector(broker)
    with monkeypatch.context() as patch:
        patch.setattr(patience, "GONE", 8)
        proof = connector.find(Search(plan, asked, now()))
    assert proof.shown == {0: "unknown", 10**7: "unknown"}
    assert any("is still there" in why for why in proof.doubts)
    client.kill()
    client.communicate()
    settled_depth(rabbit, queue)
    assert proven(lambda: connector.find(Search(plan, asked, now()))) == {0: "sent", 10**7: "not_sent"}


def connection_of(rabbit: Rabbit, plan: str) -> Mapping[str, Any]:
    """That of a plan's publisher, as the management API lists it; empty where it lists none."""
    listed: Any = rabbit.node.api("GET", "connections")
    name = connection_name(plan)
    named = (one for one in listed if one.get("client_properties", {}).get("connection_name") == name)
    return next(named, {})


@on_rabbitmq_3
def test_what_a_dead_client_sent_in_an_alarm_is_unknown_until_the_broker_has_taken_it(rabbit: Rabbit) -> None:
    queue, plan = rabbit.queue(), new_plan()
    wait_until_the_node_is_no_newcomer(rabbit)
    since, broker = now(), rabbit.broker()
    client = _client(broker, plan, queue)
    eventually(lambda: rabbit.depth(queue) > 0)
    rabbit.node.limit_memory("0.00001")
    try:
        # Of what it sends from now on the broker reads one letter, and not that it has died.
        eventually(lambda: connection_of(rabbit, plan).get("state") == "blocked")
        client.kill()
        client.communicate()
        there = settled_depth(rabbit, queue)
        asked = [letter(number, to_queue(queue)) for number in range(there, there + 100)]
        found = RabbitConnector(broker).find(Search(plan, asked, since)).shown
    finally:
        rabbit.node.limit_memory()
    assert set(found.values()) == {"unknown"}
    found = proven(lambda: RabbitConnector(broker).find(Search(plan, asked, since)))
    arrived = replay_ids(rabbit, queue)
    assert found == {one.number: "sent" if f"id-{one.number}" in arrived else "not_sent" for one in asked}


@dataclass
class Witnessed:
    """A plan of which two letters of four were sent, and what is shown of all."""

    rabbit: Rabbit
    plan: str
    letters: Sequence[Outgoing]
    since: int = field(default_factory=now)

    def find(self) -> Proof:
        return RabbitConnector(self.rabbit.broker()).find(Search(self.plan, self.letters, self.since))


@pytest.fixture
def witnessed(rabbit: Rabbit) -> Witnessed:
    wait_until_the_node_is_no_newcomer(rabbit)
    target = to_queue(rabbit.queue())
    made = Witnessed(rabbit, new_plan(), [letter(number, target) for number in range(4)])
    publish(rabbit.broker(), made.letters[:2], plan=made.plan, witness=True)
    assert proven(made.find) == {0: "sent", 1: "sent", 2: "not_sent", 3: "not_sent"}
    return made


def purge(rabbit: Rabbit, witness: str) -> None:
    rabbit.channel.queue_purge(witness)


def take_one(rabbit: Rabbit, witness: str) -> None:
    rabbit.channel.basic_get(witness, auto_ack=True)


def lack_room(rabbit: Rabbit, witness: str) -> None:
    rabbit.set_policy("^dlq[.]witness", {"max-length": 1})
    eventually(lambda: rabbit.depth(witness) == 1)
    rabbit.node.api("DELETE", "policies", rabbit.vhost, "^dlq[.]witness")


def delete(rabbit: Rabbit, witness: str) -> None:
    rabbit.channel.queue_delete(witness)


def is_anchored(broker: Broker, plan: str) -> bool:
    found = _read_witness(broker, plan, set())
    return found is not None and found.is_anchored


@on_private_nodes
def test_a_witness_of_which_letters_were_taken_from_the_middle_proves_no_absence(
    rabbit: Rabbit, witnessed: Witnessed
) -> None:
    """As who looks for a letter does: what is not it goes back to where it lay."""
    channel, witness = rabbit.connect(), queue_of(witnessed.plan)
    channel.basic_get(witness)
    channel.basic_ack(channel.basic_get(witness)[0].delivery_tag)
    channel.connection.close()
    eventually(lambda: is_anchored(rabbit.broker(), witnessed.plan))
    found = witnessed.find()
    assert found.shown == {0: "unknown", 1: "sent", 2: "unknown", 3: "unknown"}
    assert any("has 2 messages, and 3 came there" in why for why in found.doubts)


@on_private_nodes
@pytest.mark.parametrize("harm", [purge, take_one, lack_room, delete])
def test_a_witness_that_has_lost_something_proves_no_absence(
    rabbit: Rabbit, witnessed: Witnessed, harm: Callable[[Rabbit, str], None]
) -> None:
    harm(rabbit, queue_of(witnessed.plan))
    publish(rabbit.broker(), witnessed.letters[2:3], plan=witnessed.plan, witness=True)  # the next apply
    proven(witnessed.find, but=(0, 1, 3))  # once its connection, and a policy, are no longer shown
    found = witnessed.find()
    assert set(found.shown.values()) <= {"sent", "unknown"}
    assert (found.shown[2], found.shown[3]) == ("sent", "unknown")
    assert any("has lost its first message" in why for why in found.doubts)


@on_private_nodes
@pytest.mark.parametrize("kind", KINDS)
def test_what_a_full_queue_has_refused_lies_in_the_witness_and_is_not_proven_sent(
    rabbit: Rabbit, kind: str
) -> None:
    """An answer that is lost says nothing of it, and the exchange leads to both."""
    queue, plan = rabbit.queue(kind, x_max_length=1, x_overflow="reject-publish"), new_plan()
    wait_until_the_node_is_no_newcomer(rabbit)
    letters = [letter(number, to_queue(queue)) for number in range(10)]
    answers = publish(rabbit.broker(), letters[:9], plan=plan, window=1, witness=True)
    assert answers[8].outcome == "refused"
    find = lambda: RabbitConnector(rabbit.broker()).find(Search(plan, letters, 0))  # noqa: E731
    assert proven(find, but=range(9)) == {**dict.fromkeys(range(9), "unknown"), 9: "not_sent"}
    assert any("refuses what comes when it is full" in why for why in find().doubts)


@on_private_nodes
def test_a_witness_that_the_management_api_does_not_show_proves_nothing(
    witnessed: Witnessed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As behind a gateway that lets some addresses through: what speaks against it may be there."""
    get = Management.get

    def without(management: Management, *path: str) -> Mapping[str, Any] | None:
        return None if path[-1] == queue_of(witnessed.plan) else get(management, *path)

    monkeypatch.setattr(Management, "get", without)
    found = witnessed.find()
    assert {*found.shown.values()} == {"unknown"}
    assert any("does not show the witness queue" in why for why in found.doubts)


@on_private_nodes
@pytest.mark.parametrize("end", [Node.kill, Node.shut_down])
def test_a_witness_loses_its_anchor_with_its_node(rabbit: Rabbit, end: Callable[[Node], None]) -> None:
    queue, plan, broker = rabbit.queue(), new_plan(), rabbit.broker()
    publish(broker, [letter(0, to_queue(queue))], plan=plan, witness=True)
    assert is_anchored(broker, plan)
    rabbit.node.write_to_disk()
    end(rabbit.node)
    rabbit.node.start()
    rabbit.channel = rabbit.connect()
    assert replay_ids(rabbit, queue_of(plan)) == ["id-0"]
    assert not is_anchored(broker, plan)


KILL = "exit(Pid, kill)"


@on_private_nodes
def test_a_witness_loses_its_anchor_when_it_fails_alone(rabbit: Rabbit, witnessed: Witnessed) -> None:
    to_process(rabbit, queue_of(witnessed.plan), KILL)
    eventually(lambda: not is_anchored(rabbit.broker(), witnessed.plan))
    assert {witnessed.find().shown[number] for number in (2, 3)} == {"unknown"}


@on_private_nodes
@pytest.mark.parametrize("arguments", [{}, {"x_max_length": 100, "x_overflow": "reject-publish"}])
def test_what_a_queue_had_not_answered_when_it_failed_alone_is_neither_refused_nor_proven(
    rabbit: Rabbit, arguments: Mapping[str, Any]
) -> None:
    """The queue is there again at once. The witness holds what was lost with it."""
    queue, plan = rabbit.queue(**arguments), new_plan()
    wait_until_the_node_is_no_newcomer(rabbit)
    letters = [letter(number, to_queue(queue)) for number in range(3)]

    def given() -> Iterator[Outgoing]:
        yield from letters[:2]
        to_process(rabbit, queue, "sys:suspend(Pid)")
        Timer(1.0, to_process, (rabbit, queue, KILL)).start()
        yield letters[2]

    answers, error = sent(rabbit.broker(), given(), plan=plan, window=1, witness=True)
    assert "a queue failed" in str(error)
    assert [answers[number].outcome for number in range(3)] == ["confirmed", "confirmed", "in_doubt"]
    assert rabbit.depth(queue) == 2
    found = RabbitConnector(rabbit.broker()).find(Search(plan, letters[2:], 0))
    assert (found.shown, ["a queue failed" in why for why in found.doubts]) == ({2: "unknown"}, [True])


def test_a_target_that_is_deleted_in_the_middle_is_told_of(rabbit: Rabbit) -> None:
    queue, plan = rabbit.queue(), new_plan()

    def letters() -> Iterator[Outgoing]:
        yield letter(1, to_queue(queue))
        rabbit.channel.queue_delete(queue)
        yield letter(2, to_queue(queue))

    _, error = sent(rabbit.broker(), letters(), plan=plan, window=1, witness=True)
    assert "was deleted" in str(error)
    rabbit.channel.queue_delete(queue_of(plan))
    rabbit.channel.exchange_delete(exchange_of(plan))


@on_private_nodes
def test_a_witness_that_the_user_may_not_delete_is_told_of(
    rabbit: Rabbit, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, plan = rabbit.queue(), new_plan()
    publish(rabbit.broker(), [letter(1, to_queue(queue))], plan=plan, witness=True)
    monkeypatch.setenv("SENDER", "secret-word")
    rights, changes = "^$ .* .*", {"password_env": "SENDER", "management_url": None}
    sender = rabbit.by_user("sender", "secret-word", rights=rights, **changes)
    with pytest.raises(AccessDenied, match="sender"):
        RabbitConnector(sender).forget(SendRequest(plan, witness=True))
    assert rabbit.depth(queue_of(plan)) == 2, "an anchor and a letter"
    for _ in range(2):  # the second time nothing is there, which is no error
        rabbit.connector().forget(SendRequest(plan, witness=True))
    with pytest.raises(NotFound):
        rabbit.read(queue_of(plan))


def test_a_broker_without_a_witness_is_not_asked_at_the_end_of_a_plan(rabbit: Rabbit) -> None:
    nobody = replace(rabbit.broker(), url="amqp://guest@127.0.0.1:1/")
    RabbitConnector(nobody).forget(SendRequest(new_plan()))


@on_private_nodes
@each_row(("rights", "lacks"), [
    (".* .* .*", []),
    ("^$ .* .*", ["configure exchanges dlq.replay.*", "configure queues dlq.witness.*"]),
    (".* ^dlq.witness.* .*", ["write to dlq.replay.*"]),
    (".* ^dlq.replay.* .*", ["bind dlq.witness.*"]),
    (".* .* ^dlq.replay.*", ["read dlq.witness.*"]),
])  # fmt: skip
def test_auto_leaves_a_witness_where_the_user_may(rabbit: Rabbit, rights: str, lacks: list[str]) -> None:
    broker = rabbit.by_user("sender", tags="monitoring", rights=rights, witness="auto")
    connector, queue = RabbitConnector(broker), rabbit.queue()
    rabbit.wait_for_statistics(queue)
    wait_until_the_node_is_no_newcomer(rabbit, age=0)
    said = " ".join(connector.check_witness())
    assert ("the user may not" in said) == bool(lacks)
    assert all(right in said for right in lacks)
    fact = connector.inspect(request(queue).source).facts["witness"]
    assert fact == (f"none: {said}" if lacks else "left by a replay")
    assert "rights-" not in str([*rabbit.listed("queues"), *rabbit.listed("exchanges")])


@on_private_nodes
def test_a_missing_right_that_stops_a_proof_is_named_before_and_after(rabbit: Rabbit) -> None:
    def asked_by(tags: str) -> RabbitConnector:
        return RabbitConnector(rabbit.by_user("asker", tags=tags, witness=True))

    queue = rabbit.queue()
    seeing, blind = asked_by("monitoring"), rabbit.connector(management_url=None, witness=True)
    rabbit.wait_for_statistics(queue)
    wait_until_the_node_is_no_newcomer(rabbit, age=0)
    assert seeing.check_witness() == []
    assert "without management_url nothing shows whether a node restarted" in blind.check_witness()[0]
    manager = asked_by("management")
    assert "of nodes the tag monitoring" in manager.check_witness()[0]
    assert any("tag monitoring" in said for said in manager.inspect(request(queue).source).warnings)
    plan, letters = new_plan(), [letter(0, to_queue(queue))]
    assert seeing.find(Search(plan, letters, since=1)).doubts == [
        "without a witness (witness = true, or --witness) RabbitMQ cannot be asked afterwards"
    ]
    seeing.publisher(SendRequest(plan, 10, witness=True)).close()
    for one, why in ((blind, "without management_url"), (manager, "of nodes the tag monitoring")):
        found = one.find(Search(plan, letters, since=1))
        assert (found.shown, why in found.doubts[0]) == ({0: "unknown"}, True)


NUMBERS = range(12)
AT = datetime(2026, 11, 2, 3, 12, 9, tzinfo=UTC)
TRACE = "java.lang.NullPointerException: boom\n\tat shop.Billing.charge(Billing.java:3)"


def test_a_message_that_was_sent_goes_once_whichever_of_its_letters_died_first(
    rabbit: Rabbit, tmp_path: Path
) -> None:
    """The broker tells of a death in whole seconds."""
    dead, work, broker = rabbit.queue(), rabbit.queue(), rabbit.broker()
    connection = f'kind = "rabbitmq"\nurl = "{broker.url}"\npassword_env = "{broker.password_env}"'
    wire_builders.configure(tmp_path, connection, f'queue = "{dead}"\nmode = "drain"')
    dlq = partial(wire_builders.dlq, tmp_path)

    def planned(died_at: datetime) -> Any:
        told = {"queue": "orders", "reason": "rejected", "exchange": "", "routing-keys": ["orders"]}
        headers = {
            "x-death": [{**told, "count": 1, "time": died_at}],
            "x-exception-message": "boom",
            "x-exception-stacktrace": TRACE,
        }
        for number in NUMBERS:
            rabbit.publish(dead, [b"order %d" % number], message_id=f"m{number}", headers=headers)
        rabbit.wait_for(dead, len(NUMBERS))
        assert dlq("pull")["sources"][0]["captured"] == len(NUMBERS)
        return dlq("replay", "plan", "--fixed", "--to", f"queue:{work}")

    dlq("replay", "apply", planned(AT)["plan"])
    assert rabbit.depth(work) == len(NUMBERS)
    again = planned(AT)
    assert (again["selected"], again["left_out"]) == (0, {"replayed": len(NUMBERS), "never": len(NUMBERS)})
    before = planned(AT.replace(second=8))
    assert (before["selected"], before["left_out"]["twin_sent"]) == (0, len(NUMBERS))
    named = dlq("query", f"select min(record_id) as id from letters where dead_at < '{AT}'")[0]["id"]
    assert dlq("replay", "plan", named, "--to", f"queue:{work}")["selected"] == 1
