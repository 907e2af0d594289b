"""Three transactions under way: what is confirmed was committed, once, and only the culprit is refused."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, repeat
from typing import Any
from unittest.mock import Mock

import pytest
from support.rows import each_row
from support.sending_contract import said

from dlq.connectors.activemq.link.refusals import refusal
from dlq.connectors.activemq.prove.markers import Trail, marker_queue
from dlq.connectors.activemq.send import StompSender
from dlq.connectors.activemq.stomp.send import TransactionPublisher
from dlq.connectors.base import Outgoing, SendRequest, Sent, Target, Writing, keep_no_mark
from dlq.core.errors import BrokerError, ConnectionLost, SendingEnded
from dlq.core.record import Record
from dlq.core.runtime import patience

_FRAME = re.compile(rb"([A-Z]+)\n(.*?)\n\n([^\0]*)\0", re.DOTALL)


@dataclass
class Memory:
    """What a broker remembers: committed letters, and what it objects to."""

    refuses: bytes = b""
    kills: bytes = b""
    """A body with which the connection ends, `deaths` times."""
    deaths: int = 10**6
    refuses_commit_of: bytes = b""
    says: str = "AMQ339013 Error committing"
    proven: frozenset[str] = frozenset()
    committed: list[bytes] = field(default_factory=list)
    commits: int = 0
    log: list[str] = field(default_factory=list)


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
            self._answered.add(receipt)
            self._memory.log.append("anchored")
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

    def _commit(self, headers: Mapping[str, str], _body: bytes) -> None:
        bodies, receipt = self._transactions.pop(headers["transaction"]), headers["receipt"]
        self._memory.commits += 1
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
        return Trail(self._memory.proven)

    def close(self) -> None:
        self._transactions.clear()
        self._memory.log.append("closed")


def letters(number: int) -> Iterator[Outgoing]:
    for n in range(number):
        record = Record(
            f"id{n}", "s", "legacy", "activemq", "dlq", headers={"content-length": "1"}, body=b"%d" % n
        )
        yield Outgoing(n, record, Target("queue", "orders"), {"dlq_replay_id": f"k{n}"})


def published(
    memory: Memory,
    number: int = 400,
    nodes: Iterable[str] = repeat("mq1"),
    some: Iterable[Outgoing] | None = None,
    writing: Writing = keep_no_mark,
) -> tuple[dict[int, Sent], Exception | None]:
    """What became of letters, each answered once, and what ended the sending."""
    each = iter(nodes)
    publisher = TransactionPublisher(lambda: Connection(memory, next(each)), SendRequest("plan", 1000))
    sent, error = said(publisher, iter(some or letters(number)), writing)
    assert len({one.number for one in sent}) == len(sent)
    return {one.number: one for one in sent}, error


def outcomes(sent: Mapping[int, Sent]) -> dict[int, str]:
    return {number: one.outcome for number, one in sent.items()}


class Complaining(Connection):
    """Once something is committed it answers with errors that nothing asked for, for ever."""

    def wait_for(self, receipt: str) -> None:
        if self._memory.commits:
            raise BrokerError("no")
        super().wait_for(receipt)


def test_errors_without_end_behind_a_commit_leave_it_in_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "ENDLESS", 0.1)
    memory = Memory()
    publisher = TransactionPublisher(lambda: Complaining(memory), SendRequest("plan", 100))
    with pytest.raises(ConnectionLost, match="nothing but errors"):
        list(publisher.publish(letters(5)))
    assert memory.commits == 1


ROLLED_BACK = "Transaction marked rollback only"
CULPRITS: list[tuple[int | None, str, dict[str, Any]]] = [
    *[(n, "refused", {"refuses": b"%d" % n}) for n in (0, 150, 399)],
    *[(n, "refused", {"refuses_commit_of": b"%d" % n, "says": ROLLED_BACK}) for n in (0, 150, 399)],
    *[(n, "refused", {"kills": b"%d" % n}) for n in (0, 99, 150, 199)],
    *[(n, "confirmed", {"refuses_commit_of": b"%d" % n, "proven": {f"k{n}"}}) for n in (0, 150, 399)],
    (7, "in_doubt", {"refuses_commit_of": b"7"}),
    *[(None, "confirmed", {"kills": b"150", "deaths": deaths}) for deaths in (1, 2)],
]


@each_row("culprit, outcome, objects", CULPRITS)
def test_only_the_letter_that_the_broker_objects_to_is_not_committed_nor_one_that_it_has_already(
    culprit: int | None, outcome: str, objects: dict[str, Any]
) -> None:
    memory = Memory(**objects)
    sent, error = published(memory)
    assert error is None
    assert outcomes(sent) == {n: outcome if n == culprit else "confirmed" for n in range(400)}
    assert sorted(memory.committed) == sorted(b"%d" % n for n in range(400) if n != culprit)
    if memory.kills and culprit is not None:
        why = "each time that it was sent the connection ended: closed by the broker"
        assert sent[culprit].detail == why


def test_a_letter_that_ends_the_connection_of_another_commit_is_refused_by_the_next_run() -> None:
    memory, written = Memory(kills=b"399"), set[int]()
    _, error = published(memory, writing=written.update)
    assert isinstance(error, ConnectionLost)
    sent, error = published(memory, some=[one for one in letters(400) if one.number not in written])
    assert error is None
    assert outcomes(sent) == dict.fromkeys({*range(400)} - written, "confirmed") | {399: "refused"}


@each_row("transaction", [1, 3])
def test_a_run_that_may_send_nothing_more_neither_connects_again_nor_refuses_a_letter(
    transaction: int,
) -> None:
    """Its lease is over: whoever has taken over decides on the letters."""
    memory, asked = Memory(), count(1)

    def writing(_numbers: Sequence[int]) -> None:
        if next(asked) >= transaction:
            raise SendingEnded("another run has taken over")

    sent, error = published(memory, 1000, writing=writing)
    assert isinstance(error, SendingEnded)
    assert {*outcomes(sent).values()} <= {"confirmed", "in_doubt"}
    assert len(memory.committed) == 100 * (transaction - 1)
    assert "closed" not in memory.log


def test_a_run_that_must_connect_again_ends_where_another_broker_answers() -> None:
    memory = Memory(refuses=b"150")
    sent, error = published(memory, nodes=["mq1", "mq1", *["mq2"] * 200])
    assert "mq1 is not there any more, and mq2 answers instead" in str(error)
    assert len(memory.committed) == [*outcomes(sent).values()].count("confirmed") == 100
    assert memory.log.count("anchored") == 1


def test_a_second_connection_that_leads_to_another_broker_is_not_used() -> None:
    memory = Memory()
    sent, _ = published(memory, nodes=["mq1", "elsewhere"])
    assert [*outcomes(sent).values()] == ["confirmed"] * 400
    assert memory.log.count("anchored") == 1


class Unsayable(Connection):
    """No letter can be written."""

    def letter(self, letter: Outgoing, transaction: str) -> bytes:
        raise ValueError("too long")


NO_QUEUE = Mock(
    node="n",
    begin=lambda _target: "there is no queue",
    resolve_target=lambda target, _record: target,
)


@each_row("connection, routing, outcome", [(Unsayable, None, "refused"), (Connection, NO_QUEUE, "returned")])
def test_no_more_than_the_window_is_taken_of_letters_that_are_answered_unsent(
    connection: type[Connection], routing: Any, outcome: str
) -> None:
    taken: list[int] = []
    given = (taken.append(letter.number) or letter for letter in letters(2000))
    publisher = TransactionPublisher(lambda: connection(Memory()), SendRequest("plan", 1000), routing)
    for answered, sent in enumerate(publisher.publish(given)):
        assert (sent.outcome, len(taken) - answered <= 1000) == (outcome, True)
    assert len(taken) == 2000
