"""An Artemis whose management is silent for a while: that is no answer, nor is a late one another's."""

import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from support.analyzers.letters import record
from support.rows import each_row
from support.servers.hostile import Server
from support.waiting import SOON

from dlq.connectors import deadline
from dlq.connectors.activemq.link.sockets import Unanswered
from dlq.connectors.activemq.look.artemis import Management
from dlq.connectors.activemq.plugin.description import ActiveMQBroker
from dlq.connectors.activemq.prove.routing import Routing
from dlq.connectors.activemq.read.private import ArtemisPrivate
from dlq.connectors.activemq.read.removal import count_removals
from dlq.connectors.base import Batch, Target
from dlq.core.errors import BrokerError, ConnectionLost
from dlq.core.runtime import patience

TARGET = Target("queue", "a::q")
ANSWERS: dict[str, Any] = {
    "address": "a", "routingType": "ANYCAST", "unRoutedMessageCount": 0, "routedMessageCount": 0,
    "messagesAdded": 0, "uptimeMillis": 10**6, "divertNames": [], "messageCount": 5, "consumerCount": 1,
    "deliveringCount": 2, "forwardingAddress": "b", "exclusive": True,
}  # fmt: skip


class Told(Management):
    """Nothing has come to its queue, and its address drops what is too much."""

    def __init__(self) -> None:
        super().__init__(ActiveMQBroker("b", "artemis", "stomp://h"))
        self.silent: Callable[[str], bool] = lambda _name: False
        self.seconds = 0.0

    def _ask_all(self, questions: Sequence[tuple[dict[str, str], str]]) -> list[Any]:
        deadline.check("b")
        time.sleep(self.seconds)
        return [self._told(headers) for headers, _ in questions]

    def _told(self, headers: Mapping[str, str]) -> Any:
        if self.silent(name := headers.get("_AMQ_Attribute", headers.get("_AMQ_OperationName", ""))):
            self.silences += 1
            return None
        if name == "getAddressSettingsAsJSON":
            return '{"addressFullMessagePolicy": "DROP"}'
        return ["q"] if name == "queueNames" else ANSWERS.get(name)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    monkeypatch.setattr(patience, "COUNTED", 0.1)
    return Told()


@pytest.mark.parametrize(("name", "outcome", "why"), [
    ("nothing", "refused", "is full and drops"),
    *[(name, "in_doubt", "does not answer")
      for name in ("unRoutedMessageCount", "routedMessageCount", "messagesAdded", "uptime")],
])  # fmt: skip
def test_who_is_silent_after_a_commit_has_refused_nothing(
    told: Told, name: str, outcome: str, why: str
) -> None:
    routing = Routing(told)
    assert routing.begin(TARGET) is None
    told.silent = lambda asked: asked.startswith(name)
    [answer] = routing.answers([(1, TARGET)])
    assert answer.outcome == outcome
    assert why in str(answer.detail)


@pytest.mark.parametrize(("routed", "outcome"), [(1, "confirmed"), (2, "in_doubt")])
def test_what_an_address_that_drops_has_kept_may_be_of_others(
    told: Told, routed: int, outcome: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    routing = Routing(told)
    assert routing.begin(TARGET) is None
    monkeypatch.setitem(ANSWERS, "messagesAdded", 1)
    monkeypatch.setitem(ANSWERS, "routedMessageCount", routed)
    assert [one.outcome for one in routing.answers([(1, TARGET)])] == [outcome]


def test_a_management_that_is_slow_ends_the_sending_or_leaves_letters_in_doubt(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    routing, began = Routing(told), time.monotonic()
    routing.begin(TARGET)
    monkeypatch.setattr(patience, "ANSWER", 0.3)
    told.seconds = 0.2
    answers = routing.answers([(n, TARGET._replace(name=f"a::q{n}")) for n in range(9)])
    assert {one.outcome for one in answers} == {"in_doubt"}
    assert all("a look takes more than" in str(one.detail) for one in answers)
    with pytest.raises(Unanswered, match="a look takes more than"):
        Routing(told).begin(TARGET)
    assert time.monotonic() - began < SOON


def test_addresses_whose_queues_are_not_listed_have_none_that_is_known(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ANSWERS, "addressNames", ["a"])
    assert told.definitions() is None
    monkeypatch.setitem(ANSWERS, "listQueues", '{"data": [{"name": "q"}], "count": 1}')
    assert told.definitions() == ([{"name": "q"}], {"a": {"addressFullMessagePolicy": "DROP"}}, {})


@pytest.mark.parametrize("name", ["divertNames", "address", "forwardingAddress", "exclusive"])
def test_diverts_of_which_one_is_not_told_are_not_known(
    told: Told, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {"addressNames": ["a"], "divertNames": ["d"], "listQueues": '{"data": [{}], "count": 1}'}
    for one, answer in asked.items():
        monkeypatch.setitem(ANSWERS, one, answer)
    divert = {"address": "a", "forwardingAddress": "b", "exclusive": True, "filter": None}
    assert (told.definitions() or ())[-1:] == ({"a": [divert]},)
    told.silent = lambda asked: asked == name
    assert told.definitions() is None
    assert bool(told.ways_of_the_dead()) == (name != "divertNames")


@pytest.mark.parametrize("name", ["messageCount", "consumerCount", "deliveringCount"])
def test_a_queue_of_which_one_count_is_not_told_is_not_known(told: Told, name: str) -> None:
    assert (told.facts("q") or ())[:3] == (5, 1, 2)
    told.silent = lambda asked: asked == name
    assert told.facts("q") is None


USES: Mapping[str, Callable[[Routing], object]] = {
    "where it leads": lambda routing: routing.resolve_target(TARGET, record()),
    "whether it is there": lambda routing: routing.why_missing(TARGET),
    "who gets it": lambda routing: routing.receivers(TARGET),
    "what was counted": lambda routing: routing.counts([TARGET]),
    "what drops": lambda routing: routing.risk(TARGET),
    "before a letter": lambda routing: routing.begin(TARGET),
    "what is sent through a divert": lambda routing: routing.is_divert("d"),
}


@pytest.mark.parametrize("use", USES)
def test_silence_is_neither_a_missing_queue_nor_a_count(told: Told, use: str) -> None:
    routing = Routing(told)
    assert routing.tells
    told.silent = lambda _name: True
    with pytest.raises(Unanswered, match="does not answer"):
        USES[use](routing)
    told.silent = lambda _name: False
    USES[use](routing)
    assert routing.why_missing(TARGET) is None
    assert "there is no queue 'gone'" in str(routing.why_missing(TARGET._replace(name="a::gone")))


def test_who_was_never_answered_has_no_right_and_is_told_so_by_nothing(told: Told) -> None:
    told.silent = lambda _name: True
    routing = Routing(told)
    assert not routing.tells
    assert routing.begin(TARGET) is None
    assert [one.outcome for one in routing.answers([(1, TARGET)])] == ["confirmed"]


def test_private_queues_are_not_called_removed_where_nobody_says_so(told: Told) -> None:
    private = ArtemisPrivate(told, "b", "dlq.rehearsal.p")
    private.remove()
    told.silent = lambda name: name == "queueNames"
    with pytest.raises(BrokerError, match=r"dlq\.rehearsal\.p, dlq\.rehearsal\.p\.dead could not be removed"):
        private.remove()


class Part:
    """A queue of one letter, which is acknowledged."""

    complete, position, seen = True, 1, 1

    def __init__(self, shown: str) -> None:
        self.shown = shown

    def batches(self) -> Iterator[Batch]:
        yield Batch([record(record_id=self.shown)], 1)

    def acknowledge(self, _position: int) -> None: ...

    def settled_position(self) -> int:
        return 1

    def close(self) -> None: ...


@each_row(("second", "settled"), [("another", 1), ("first", 0), (None, 0)])
def test_what_is_not_counted_is_settled_only_where_a_second_look_shows_that_it_is_gone(
    second: str | None, settled: int
) -> None:
    parts = iter(["first", *([second] if second else [])])

    def begin(_limit: int | None) -> Part:
        if (shown := next(parts, None)) is None:
            raise ConnectionLost("nobody is there")
        return Part(shown)

    scan: Any = SimpleNamespace(queue="q", depth=1, topology={}, notes=[], begin=begin)
    notes = list[str]()
    reading: Any = count_removals(scan, lambda: None, True, notes).begin(None)
    assert len([*reading.batches()]) == 1
    assert (reading.settled_position(), reading.complete) == (settled, bool(settled))
    reading.close()
    assert len(notes) == 1 - settled


@pytest.mark.parametrize("said", [b"", b"ERROR\nmessage:AMQ229032: no permission\n\n\0"])
def test_who_does_not_answer_at_all_ends_the_sending_and_who_refuses_does_not(said: bytes) -> None:
    def behave(peer: socket.socket) -> None:
        for headers in headers_of_frames(peer):
            is_question = headers.get(b"destination") == b"activemq.management"
            peer.sendall(said if is_question else receipt_of(headers))

    with Server(behave) as server:
        settings = ActiveMQBroker("b", "artemis", f"stomp://{server.address}", timeout="200ms")
        with nullcontext() if said else pytest.raises(Unanswered, match="no answer within"):
            assert Routing(Management(settings)).begin(TARGET) is None


def headers_of_frames(peer: socket.socket) -> Iterator[dict[bytes, bytes]]:
    """Of each frame that comes; a connection is answered."""
    heard = b""
    while data := peer.recv(2**16):
        heard += data
        *frames, heard = heard.split(b"\0")
        for frame in frames:
            said = dict(re.findall(rb"\n([^:\n]+):([^\n]*)", frame))
            if b"CONNECT\n" in frame[:10]:
                peer.sendall(b"CONNECTED\nversion:1.2\nserver:ActiveMQ-Artemis/2.56.0\n\n\0\n")
            yield said


def answer_to(said: Mapping[bytes, bytes], more: bytes = b"") -> bytes:
    """Of an attribute its name."""
    head = b"MESSAGE\n%bsubscription:%b\nmessage-id:1\ndestination:d\n_AMQ_OperationSucceeded:true\n"
    return head % (more, said[b"reply-to"].rpartition(b".")[2]) + b'\n["%b"]\0\n' % said[b"_AMQ_Attribute"]


def receipt_of(said: Mapping[bytes, bytes]) -> bytes:
    return b"RECEIPT\nreceipt-id:%b\n\n\0\n" % said[b"receipt"] if b"receipt" in said else b""


def answering_late(peer: socket.socket) -> None:
    """The first question is answered when the second one comes, and before that."""
    late = b""
    for said in headers_of_frames(peer):
        peer.sendall(receipt_of(said))
        if b"_AMQ_Attribute" in said:
            peer.sendall(late)
            if said[b"_AMQ_Attribute"] == b"slow":
                late = answer_to(said)
            else:
                time.sleep(0.05)
                peer.sendall(answer_to(said))


def test_a_late_answer_is_none_to_another_question(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "REPLY", SOON)
    with Server(answering_late) as server:
        management = Management(ActiveMQBroker("b", "artemis", f"stomp://{server.address}"))
        assert management.attribute("q", "quick") == "quick"
        with monkeypatch.context() as in_haste:
            in_haste.setattr(patience, "REPLY", 0.5)
            assert management.attribute("q", "slow") is None
        assert management.silences == 1
        assert management.attribute("q", "quick") == "quick"
        management.close()


def answering_backwards(peer: socket.socket) -> None:
    """What is asked together is answered when all of it is there, the last question first."""
    answers = list[bytes]()
    for said in headers_of_frames(peer):
        if b"_AMQ_Attribute" in said:
            answers.append(answer_to(said, b"correlation-id:%b\n" % said[b"correlation-id"]))
        if b"receipt" in said:
            peer.sendall(receipt_of(said) + b"".join(answers[::-1]))
            answers.clear()


def test_what_is_asked_together_is_told_apart_whichever_answer_comes_first() -> None:
    with Server(answering_backwards) as server:
        management = Management(ActiveMQBroker("b", "artemis", f"stomp://{server.address}"))
        asked = [("q", f"n{number}") for number in range(120)]
        assert management.attributes(asked) == [name for _, name in asked]
        assert management.attribute("q", "alone") == "alone"
        management.close()


def test_a_broker_that_is_not_there_is_silent() -> None:
    management = Management(ActiveMQBroker("b", "artemis", "stomp://127.0.0.1:1", timeout="200ms"))
    assert management.attribute("q", "quick") is None
    assert management.silences == 1
