"""Three transactions under way: what is confirmed was committed, once, and only the culprit is refused."""

import collections
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any

import pytest

from dlq.connectors.activemq.link.refusals import refusal
from dlq.connectors.activemq.prove.markers import Trail, marker_queue
from dlq.connectors.activemq.send import StompSender
from dlq.connectors.activemq.stomp.send import TransactionPublisher
from dlq.connectors.base import Outgoing, SendRequest, Sent, Target
from dlq.core import patience
from dlq.core.errors import AccessDenied, BrokerError, ConnectionLost, SendingEnded
from dlq.core.record import Record

_FRAME = re.compile(rb"([A-Z]+)\n(.*?)\n\n([^\0]*)\0", re.DOTALL)


class Memory:
    """What a broker remembers: committed letters, and what it objects to."""

    def __init__(self) -> None:
        self.committed: list[bytes] = []
        self.refuses = b""
        self.kills = b""
        """A body with which the connection ends, `deaths` times."""
        self.deaths = 10**6
        self.refuses_commit_of = b""
        self.proven: set[str] = set()
        self.says = "AMQ339013 Error committing"
        self.dies_at_commit = 0
        self.forbids_markers = False
        self.commits = 0
        self.log: list[str] = []


class Connection(StompSender):
    """A connection to a `Memory`: answers at once, shows the answers when they are waited for."""

    artemis = False

    def __init__(self, memory: Memory, node: str = "mq1:61613") -> None:
        self.node = node
        self._memory, self._numbers = memory, iter(range(10**6))
        self._transactions: dict[str, list[bytes]] = {}
        self._answered: set[str] = set()
        self._refused: dict[str, BrokerError] = {}
        self._errors: list[BrokerError] = []

    def guard(self, unsent_seconds: float) -> None:
        pass

    def new_receipt(self) -> str:
        return f"r{id(self)}-{next(self._numbers)}"

    def send(self, data: bytes) -> None:
        for command, head, body in _FRAME.findall(data):
            headers = dict(line.split(":", 1) for line in head.decode().split("\n"))
            getattr(self, f"_{command.decode().lower()}")(headers, body)

    def _begin(self, headers: Mapping[str, str], _body: bytes) -> None:
        self._transactions[headers["transaction"]] = []

    def _send(self, headers: Mapping[str, str], body: bytes) -> None:
        receipt = headers.get("receipt")
        if receipt and "transaction" not in headers:
            self._anchor(receipt, headers["destination"])
        elif receipt:
            self._answered.add(receipt)
        elif headers["destination"] == f"/queue/{marker_queue('plan')}":
            return  # the link of a marker
        elif body == self._memory.kills and self._memory.deaths:
            self._memory.deaths -= 1
            self._errors.append(ConnectionLost("closed by the broker"))
        elif body == self._memory.refuses:
            self._errors.append(BrokerError("no"))
        else:
            self._transactions[headers["transaction"]].append(body)

    def _anchor(self, receipt: str, place: str) -> None:
        if self._memory.forbids_markers:
            self._refused[receipt] = AccessDenied(f"User dlq is not authorized to write to: {place}")
        else:
            self._answered.add(receipt)
            self._memory.log.append("anchored")

    def _commit(self, headers: Mapping[str, str], _body: bytes) -> None:
        bodies, receipt = self._transactions.pop(headers["transaction"]), headers["receipt"]
        self._memory.commits += 1
        self._memory.log.append(f"COMMIT {receipt}")
        if self._memory.commits == self._memory.dies_at_commit:
            return
        if self._memory.refuses_commit_of in bodies:
            self._refused[receipt] = refusal("mq", self._memory.says)
        else:
            self._memory.committed += bodies
            self._answered.add(receipt)

    def wait_for(self, receipt: str) -> None:
        if self._errors:
            raise self._errors.pop(0)
        if receipt in self._refused:
            raise self._refused[receipt]
        if receipt not in self._answered:
            raise ConnectionLost("gone")

    def was_refused(self, receipt: str) -> bool:
        return receipt in self._refused

    def trail(self, _plan: str) -> Trail:
        return Trail(frozenset(self._memory.proven))

    def close(self) -> None:
        self._transactions.clear()
        self._memory.log.append("closed")


@pytest.fixture
def memory() -> Memory:
    return Memory()


def letters(number: int, taken: Callable[[int], Any] = lambda _n: None) -> Iterator[Outgoing]:
    for n in range(number):
        taken(n)
        record = Record(
            f"id{n}", "s", "legacy", "activemq", "dlq", headers={"content-length": "1"}, body=b"%d" % n
        )
        yield Outgoing(n, record, Target("queue", "orders"), {"dlq_replay_id": f"k{n}"})


def published(memory: Memory, number: int, window: int = 1000) -> list[Sent]:
    publisher = TransactionPublisher(lambda: Connection(memory), SendRequest("plan", window))
    return list(publisher.publish(letters(number)))


class Complaining(Connection):
    """Once something is committed it answers with errors that nothing asked for, for ever."""

    def wait_for(self, receipt: str) -> None:
        if self._memory.commits:
            raise BrokerError("no")
        super().wait_for(receipt)


def test_errors_without_end_behind_a_commit_leave_it_in_doubt(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "ENDLESS", 0.1)
    publisher, sent = (
        TransactionPublisher(lambda: Complaining(memory), SendRequest("plan", 100)),
        list[Sent](),
    )
    with pytest.raises(ConnectionLost, match="nothing but errors"):
        sent += publisher.publish(letters(5))
    assert memory.commits == 1


def test_all_letters_are_committed_once_and_confirmed_in_their_order(memory: Memory) -> None:
    sent = published(memory, 1050)
    assert [(s.number, s.outcome) for s in sent] == [(n, "confirmed") for n in range(1050)]
    assert memory.committed == [b"%d" % n for n in range(1050)]
    assert memory.commits == 11


def test_nothing_to_send_leaves_no_marker(memory: Memory) -> None:
    assert (published(memory, 0), memory.commits) == ([], 0)


@pytest.mark.parametrize("when", ["refuses", "refuses_commit_of"])
@pytest.mark.parametrize("culprit", [0, 150, 399])
def test_only_the_letter_that_the_broker_refuses_at_once_or_at_commit_is_refused(
    memory: Memory, culprit: int, when: str
) -> None:
    setattr(memory, when, b"%d" % culprit)
    memory.says = "Transaction marked rollback only"
    sent = {s.number: s.outcome for s in published(memory, 400)}
    assert sent == {n: "refused" if n == culprit else "confirmed" for n in range(400)}
    assert sorted(memory.committed) == sorted(b"%d" % n for n in range(400) if n != culprit)


@pytest.mark.parametrize("culprit", [0, 99, 150, 199])
def test_only_the_letter_with_which_connections_end_is_refused(memory: Memory, culprit: int) -> None:
    memory.kills = b"%d" % culprit
    sent = {s.number: s for s in published(memory, 400)}
    outcomes = {n: s.outcome for n, s in sent.items()}
    assert outcomes == {n: "refused" if n == culprit else "confirmed" for n in range(400)}
    assert sent[culprit].detail == "each time that it was sent the connection ended: closed by the broker"
    assert sorted(memory.committed) == sorted(b"%d" % n for n in range(400) if n != culprit)


def test_a_letter_that_ends_the_connection_of_another_commit_is_refused_by_the_next_run(
    memory: Memory,
) -> None:
    memory.kills = b"399"
    written: set[int] = set()
    publisher = TransactionPublisher(lambda: Connection(memory), SendRequest("plan", 1000))
    with pytest.raises(ConnectionLost):
        collections.deque(publisher.publish(letters(400), written.update), maxlen=0)
    rest = (letter for letter in letters(400) if letter.number not in written)
    again = TransactionPublisher(lambda: Connection(memory), SendRequest("plan", 1000))
    sent = {s.number: s.outcome for s in again.publish(rest)}
    assert sent == {n: "refused" if n == 399 else "confirmed" for n in range(400) if n not in written}


@pytest.mark.parametrize("deaths", [1, 2])
def test_a_connection_that_ended_by_itself_costs_no_letter(memory: Memory, deaths: int) -> None:
    memory.kills, memory.deaths = b"150", deaths
    assert {s.outcome for s in published(memory, 400)} == {"confirmed"}
    assert sorted(memory.committed) == sorted(b"%d" % n for n in range(400))


@pytest.mark.parametrize("used", [0, 150, 399])
def test_a_replay_that_artemis_knows_already_is_not_sent_twice(memory: Memory, used: int) -> None:
    memory.refuses_commit_of, memory.proven = b"%d" % used, {f"k{used}"}
    assert {s.outcome for s in published(memory, 400)} == {"confirmed"}
    assert sorted(memory.committed) == sorted(b"%d" % n for n in range(400) if n != used)


def test_a_commit_that_fails_in_artemis_without_a_marker_of_an_earlier_one_is_in_doubt(
    memory: Memory,
) -> None:
    memory.refuses_commit_of = b"7"
    sent = {s.number: s.outcome for s in published(memory, 20)}
    assert sent == {n: "in_doubt" if n == 7 else "confirmed" for n in range(20)}


@pytest.mark.parametrize("commit", [1, 3])
def test_a_connection_lost_at_commit_leaves_all_that_was_under_way_in_doubt(
    memory: Memory, commit: int
) -> None:
    memory.dies_at_commit = commit
    publisher = TransactionPublisher(lambda: Connection(memory), SendRequest("plan", 1000))
    sent: list[Sent] = []
    with pytest.raises(ConnectionLost):
        collections.deque(map(sent.append, publisher.publish(letters(1000))), maxlen=0)
    confirmed = [s.number for s in sent if s.outcome == "confirmed"]
    doubtful = [s.number for s in sent if s.outcome == "in_doubt"]
    assert confirmed == list(range(100 * (commit - 1)))
    assert doubtful == list(range(100 * (commit - 1), 100 * (commit - 1) + len(doubtful)))
    assert 100 <= len(doubtful) <= 300


@pytest.mark.parametrize("transaction", [1, 3])
def test_a_run_that_may_send_nothing_more_neither_connects_again_nor_refuses_a_letter(
    memory: Memory, transaction: int
) -> None:
    """Its lease is over: whoever has taken over decides on the letters."""
    publisher = TransactionPublisher(lambda: Connection(memory), SendRequest("plan", 1000))
    sent: list[Sent] = []
    asked = count(1)

    def writing(_numbers: Sequence[int]) -> None:
        if next(asked) >= transaction:
            raise SendingEnded("another run has taken over")

    with pytest.raises(SendingEnded):
        collections.deque(map(sent.append, publisher.publish(letters(1000), writing)), maxlen=0)
    assert {one.outcome for one in sent} <= {"confirmed", "in_doubt"}
    assert len(memory.committed) == 100 * (transaction - 1)
    assert "closed" not in memory.log


def test_a_run_that_must_connect_again_ends_where_another_broker_answers(memory: Memory) -> None:
    memory.refuses = b"150"
    nodes = iter(["mq1", "mq1", *["mq2"] * 200])
    publisher = TransactionPublisher(lambda: Connection(memory, next(nodes)), SendRequest("plan", 1000))
    sent: list[Sent] = []
    with pytest.raises(ConnectionLost, match="mq1 is not there any more, and mq2 answers instead"):
        collections.deque(map(sent.append, publisher.publish(letters(400))), maxlen=0)
    assert len(memory.committed) == len([s for s in sent if s.outcome == "confirmed"]) == 100
    assert memory.log.count("anchored") == 1


def test_a_second_connection_that_leads_to_another_broker_is_not_used(memory: Memory) -> None:
    nodes = iter(["mq1", "elsewhere"])
    publisher = TransactionPublisher(lambda: Connection(memory, next(nodes)), SendRequest("plan", 1000))
    assert [sent.outcome for sent in publisher.publish(letters(400))] == ["confirmed"] * 400
    assert memory.log.count("anchored") == 1


def test_without_the_right_to_write_markers_there_is_no_publisher(memory: Memory) -> None:
    memory.forbids_markers = True
    with pytest.raises(AccessDenied, match=r"write to: /queue/dlq\.replay\.plan; .*<authorizationEntry "):
        published(memory, 3)
    assert (memory.committed, memory.log) == ([], ["closed"])
