"""An embedded broker with the full contract: for the demo, for trying things, and for tests of logic.

It behaves like RabbitMQ's classic queues (publishing to a queue that is not declared is returned, what
is not acknowledged goes back in its place) and holds letters as JSONL objects in an SQLite database; a
source with `transactions = true` reads all of its queues, which then hold what RocketMQ leaves of them:
`memory:NAME` lives as long as the process, `memory:///path/file` in a file that several processes share.
It proves nothing about a real broker.
"""

import json
import re
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from dlq.connectors import base
from dlq.connectors.jsonl.format import body_fields, record_of
from dlq.connectors.proving import decide, numbers_of
from dlq.connectors.queue import QueueReading, until_acknowledged
from dlq.connectors.rabbitmq.amqp091.codec import table
from dlq.connectors.rabbitmq.republish import address_of, block_to_send, preview, target_of
from dlq.connectors.records import stamp
from dlq.connectors.sending import WindowedPublisher
from dlq.core.brokers import Plugin
from dlq.core.errors import ConnectionLost, NotFound
from dlq.core.headers.provenance import REPLAY_ID
from dlq.core.record import Record
from dlq.core.settings import Broker, Source

_SCHEMA = """
CREATE TABLE IF NOT EXISTS queues (name TEXT PRIMARY KEY);
CREATE TABLE IF NOT EXISTS letters (
    number INTEGER PRIMARY KEY AUTOINCREMENT, queue TEXT NOT NULL, document TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS delivered (queue TEXT PRIMARY KEY, number INTEGER NOT NULL); -- '': of every queue
CREATE INDEX IF NOT EXISTS by_queue ON letters (queue, number);
CREATE TABLE IF NOT EXISTS consumed (queue TEXT PRIMARY KEY, letters INTEGER NOT NULL);
CREATE TRIGGER IF NOT EXISTS count_consumed AFTER DELETE ON letters BEGIN
    INSERT INTO consumed VALUES (old.queue, 1) ON CONFLICT (queue) DO UPDATE SET letters = letters + 1;
END;
"""
_DELIVERED = """
INSERT INTO delivered VALUES (?, ?) ON CONFLICT (queue) DO UPDATE SET number = max(number, excluded.number)
"""
MOST_ROWS, _WINDOWS = 100, 50


@dataclass
class _Faults:
    """What goes wrong, for tests: each is spent when it has happened."""

    cut_reading_after: int | None = None
    """Letters of one reading after which the connection is lost."""
    cut_publishing_after: int | None = None
    """Messages of one publisher after which the connection is lost; the last one's answer with it."""
    refuse: Callable[[base.Outgoing], bool] = field(default=lambda _outgoing: False)
    """Messages that are answered with a nack."""


class MemoryBroker:
    """The broker itself: declared queues and the letters in them."""

    def __init__(self, path: str = ":memory:") -> None:
        self.faults = _Faults()
        self._lock = threading.RLock()
        self._database = sqlite3.connect(path, check_same_thread=False, isolation_level=None, timeout=30)
        self._database.executescript(f"PRAGMA journal_mode = WAL; {_SCHEMA}")

    def sql(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement."""
        with self._lock:
            return self._database.execute(statement, parameters).fetchall()

    def declare(self, queue: str) -> None:
        """Make a queue, if it is not there."""
        self.sql("INSERT OR IGNORE INTO queues VALUES (?)", [queue])

    def put(self, queue: str, *documents: Mapping[str, Any]) -> None:
        """Put letters (JSONL objects, without their `queue`) at the end of a queue."""
        self.declare(queue)
        for document in documents:
            self.offer(queue, document)

    def offer(self, queue: str, document: Mapping[str, Any]) -> bool:
        """Put a letter at the end of a queue that is there; return whether it is."""
        put = "INSERT INTO letters (queue, document) SELECT name, ? FROM queues WHERE name = ? RETURNING 1"
        return bool(self.sql(put, [json.dumps({**document, "queue": queue}), queue]))

    def depth(self, queue: str | None) -> int:
        """Return how many letters a queue (None: every queue) holds; raises NotFound for none declared."""
        if queue is not None and not self.sql("SELECT 1 FROM queues WHERE name = ?", [queue]):
            raise NotFound(f"no queue {queue!r} on the memory broker")
        where, values = _condition(queue)
        return int(self.sql(f"SELECT count(*) FROM letters WHERE {where}", values)[0][0])

    def letters(self, queue: str) -> list[dict[str, Any]]:
        """Return the letters of a queue, in order."""
        rows = self.sql("SELECT document FROM letters WHERE queue = ? ORDER BY number", [queue])
        return [json.loads(text) for (text,) in rows]


def _condition(queue: str | None) -> tuple[str, list[str]]:
    """Return the condition for the letters of a queue (None: of every queue), and its values."""
    return ("true", []) if queue is None else ("queue = ?", [queue])


open_brokers: dict[str, MemoryBroker] = {}


def broker_at(url: str) -> MemoryBroker:
    """Return the broker of a URL: `memory:NAME`, or `memory:///path/file`."""
    name = url.removeprefix("memory:")
    if name not in open_brokers:
        open_brokers[name] = MemoryBroker(name.removeprefix("//") if name.startswith("///") else ":memory:")
    return open_brokers[name]


_Row = tuple[int, str]
"""Its number, and the letter."""


class MemoryReading(QueueReading[_Row, Record]):
    """A reading over one queue."""

    marks_redelivered = True

    def __init__(self, broker: MemoryBroker, request: base.ReadRequest) -> None:
        request = replace(request, batch_rows=min(request.batch_rows, MOST_ROWS))
        super().__init__(request, broker.depth(request.source.queue), request.limit)
        self._broker, self._key, self._last = broker, request.key_reader(), 0
        self._where, self._values = _condition(request.source.queue)
        [(self._delivered,)] = broker.sql(
            f"SELECT coalesce(max(number), 0) FROM delivered WHERE queue = '' OR {self._where}", self._values
        )
        self.topology = {**self.topology, "queue_type": "memory"}

    def prepare(self) -> Iterator[base.Batch]:
        """Give no more letters than a window where some are alike, until all of it is acknowledged."""
        if self.alike and self.position - self._removed >= _WINDOWS * MOST_ROWS:
            yield from until_acknowledged(lambda: self._owed, self.position)

    def acknowledge(self, position: int) -> None:
        """See `Reading`."""
        if position == self.position or not self.alike:
            super().acknowledge(position)

    def receive(self, wait: float) -> list[_Row]:
        """Return those behind the last; whoever gets them next gets them as redelivered."""
        ask = f"SELECT number, document FROM letters WHERE number > ? AND {self._where}"
        most = min(MOST_ROWS, (self._goal or 0) - self.seen)
        rows = self._broker.sql(f"{ask} ORDER BY number LIMIT {most}", [self._last, *self._values])
        self._ended = not rows
        if rows:
            queue = self._request.source.queue or ""
            self._broker.sql(_DELIVERED, [queue, rows[-1][0]])
        return cast(list[_Row], rows)

    def size_of(self, arrived: _Row) -> int:
        """Return the bytes of a letter's text."""
        return len(arrived[1])

    def sort(self, arrived: _Row, taken: list[Record], skipped: list[base.Skipped]) -> None:
        """Take every letter."""
        self._last, text = arrived
        self.seen += 1
        source = self._request.source
        record = record_of(json.loads(text), source.name, source.broker, "", self._key)
        self.take(taken, record._replace(redelivered=self._last <= self._delivered), self._last)

    def make(self, taken: list[Record]) -> list[Record]:
        """Return them, unless the connection is to end before they are there."""
        cut = self._broker.faults.cut_reading_after
        if cut is not None and self.seen >= cut:
            self._broker.faults.cut_reading_after = None
            raise ConnectionLost("the memory broker cut the connection")
        return [stamp(record, self._request) for record in taken]

    def remove(self, numbers: Sequence[int]) -> None:
        """Forget them, at once."""
        for number in numbers:
            self._broker.sql("DELETE FROM letters WHERE number = ?", [number])


class MemoryPublisher(WindowedPublisher):
    """Publishes one message after the other; see `dlq.connectors.base.Publisher`."""

    def __init__(self, broker: MemoryBroker) -> None:
        super().__init__(window=1)
        self._broker = broker
        self._sent = 0

    def put(self, letter: base.Outgoing) -> None:
        """Put a letter. It is answered at once, unless the connection ends."""
        self._sent += 1
        self.announce([letter.number])
        answer = self._send(letter)
        if self._broker.faults.cut_publishing_after == self._sent:
            self._broker.faults.cut_publishing_after = None
            raise ConnectionLost("the memory broker cut the connection")
        self.answers.append(answer)

    def _send(self, message: base.Outgoing) -> base.Sent:
        if self._broker.faults.refuse(message):
            return base.Sent(message.number, "refused", "the memory broker was told to refuse it")
        _exchange, queue = address_of(message.target)
        block = block_to_send(message.record, message.provenance, message.keep_headers)
        properties, headers = table.decode(block)
        body = body_fields(message.record.body)
        document = {
            "broker_kind": "rabbitmq",
            "routing_key": queue,
            "headers": headers,
            "properties": properties,
        }
        if not self._broker.offer(queue, {**document, **body}):
            return base.Sent(message.number, "returned", f"312 NO_ROUTE to {message.target}")
        return base.Sent(message.number, "confirmed")


class MemoryConnector(base.Connector):
    """The connector for `kind = "memory"`; see `dlq.connectors.base.Connector`."""

    window = 1000

    def __init__(self, broker: Broker) -> None:
        self._broker = broker_at(broker.url or f"memory:{broker.name}")

    def inspect(self, source: Source) -> base.Inspection:
        """Return the depth only."""
        depth = self._broker.depth(source.queue)
        changes = {"copy": "marks the messages redelivered", "drain": "removes them once they are durable"}
        return base.Inspection("memory", depth, {"queue type": "memory", "retention": "none"}, changes)

    def gauge(self, source: Source) -> base.Gauge:
        """Return the depth only."""
        return base.Gauge(self._broker.depth(source.queue))

    def discover(self) -> list[base.DeadLetterPlace]:
        """Return queues that are named so."""
        rows = self._broker.sql("SELECT name FROM queues WHERE name LIKE '%dlq%' ORDER BY name")
        return [
            base.DeadLetterPlace(
                name, {"queue": name}, "memory", "its name says so", self._broker.depth(name), 0
            )
            for (name,) in rows
        ]

    def read(self, request: base.ReadRequest) -> MemoryReading:
        """Start a reading. Raises NotFound for a queue that is not declared."""
        return MemoryReading(self._broker, request)

    def target_of(self, record: Record, to: str) -> base.Target | None:
        """Return the target as for RabbitMQ."""
        return target_of(record, to)

    def preview(self, letter: base.Outgoing) -> base.SendPreview:
        """Preview a replay as for RabbitMQ."""
        return preview(letter)

    def consumers(self, targets: Sequence[base.Target]) -> Mapping[base.Target, Sequence[str]]:
        """Return each queue as its own receiver: its consumers alone get what it holds."""
        return {target: [target.name] for target in targets if target.kind == "queue"}

    def missing_targets(self, targets: Sequence[base.Target]) -> Mapping[base.Target, str]:
        """Return queues that are not declared."""
        declared = {name for (name,) in self._broker.sql("SELECT name FROM queues")}
        named = {target: address_of(target)[1] for target in targets}
        return {target: f"there is no queue {name}" for target, name in named.items() if name not in declared}

    def consumption(self, targets: Sequence[base.Target]) -> Mapping[base.Target, Sequence[base.Consumption]]:
        """Return what is not acknowledged: all that is there, as who consumes deletes."""
        done = dict(self._broker.sql("SELECT queue, letters FROM consumed"))
        gone = self.missing_targets(targets)
        queues = [target for target in targets if target.kind == "queue" and target not in gone]
        return {
            one: [base.Consumption(one.name, self._broker.depth(one.name), None, done.get(one.name, 0))]
            for one in queues
        }

    def publisher(self, request: base.SendRequest) -> MemoryPublisher:
        """Return a publisher with a window of one, so no witness is needed."""
        return MemoryPublisher(self._broker)

    def find(self, search: base.Search) -> base.Proof:
        """Look for the replay id among all letters that are still there."""
        rows = self._broker.sql("SELECT document FROM letters")
        present = {json.loads(text).get("headers", {}).get(REPLAY_ID) for (text,) in rows}
        return decide(search.letters, numbers_of(search.letters, present), [])

    def private(self, name: str) -> base.Private:
        """Return two queues; whoever takes from the first puts what dies into the other."""
        return _MemoryPrivate(self._broker, name)


class _MemoryPrivate(base.Private):
    def __init__(self, broker: MemoryBroker, name: str) -> None:
        super().__init__(base.Target("queue", name), {"queue": name}, {"queue": f"{name}.dlq"})
        self._broker, self._names = broker, (name, f"{name}.dlq")

    def make(self) -> None:
        for name in self._names:
            self._broker.declare(name)

    def remove(self) -> None:
        for name in self._names:
            self._broker.sql("DELETE FROM letters WHERE queue = ?", [name])
            self._broker.sql("DELETE FROM queues WHERE name = ?", [name])


MEMORY = Plugin(
    connector="dlq.connectors.memory:MemoryConnector",
    named_by=("queue", "transactions"),
    schemes=("memory",),
    rules="dlq.analyzers.rules.rabbitmq",
    republishing="dlq.connectors.rabbitmq.republish",
    writes=re.compile(r"x-death|x-(first|last)-death-.*|x-(delivery|acquired)-count|dlq_replay_.*"),
)
