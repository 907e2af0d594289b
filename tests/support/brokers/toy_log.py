"""A log broker that is as small as one can be: a topic is a file, a line of it a letter, its number the
offset. It shows what a driver of a log has to say (docs/adding-a-connector.md)."""

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from dlq.connectors.base import (
    Checkpoint,
    Connector,
    Gauge,
    Outgoing,
    Proof,
    ReadRequest,
    Search,
    SendRequest,
    Sent,
    Target,
)
from dlq.connectors.jsonl.format import body_fields, body_of
from dlq.connectors.log import LogReading, Plan
from dlq.connectors.records import make_record
from dlq.connectors.sending import WindowedPublisher
from dlq.core.brokers import Plugin
from dlq.core.errors import NotFound
from dlq.core.headers.failure_headers import strip_failure
from dlq.core.headers.provenance import REPLAY_ID
from dlq.core.identity import content_id
from dlq.core.record import Record
from dlq.core.settings import Broker, Source

LONGEST_LINE = 64 * 1024


class ToyReading(LogReading):
    """One scan of a topic."""

    def __init__(self, topic: str, lines: Sequence[bytes], request: ReadRequest) -> None:
        plan = Plan[str]()
        plan.add(topic, topic, topic, (0, len(lines)), request.resume if request.mode == "drain" else {})
        super().__init__(request, plan, {"topic": topic}, "A toy")
        self._lines = lines

    def fetch(self, place: str, start: int, most: int) -> tuple[Sequence[Record], int]:
        """All lines are here already."""
        some = self._lines[start : start + most]
        return [self._record(place, at, line) for at, line in enumerate(some, start)], start + len(some)

    def _record(self, topic: str, offset: int, line: bytes) -> Record:
        letter = json.loads(line)
        headers = letter.get("headers", {})
        return make_record(
            self._request,
            "toylog",
            content_id(self._request.source.name.encode(), topic.encode(), b"%d" % offset, line),
            body_of(letter),
            headers,
            message_id=headers.get("id"),
            dead_letter_queue=topic,
            offset=offset,
            origin_kind="topic",
            origin=headers.get("from"),
        )


class ToyPublisher(WindowedPublisher):
    """Letters are put together, and written and synced one after the other."""

    def __init__(self, connector: "ToyLogConnector", window: int) -> None:
        super().__init__(window)
        self._connector = connector
        self._waiting: list[tuple[Outgoing, bytes]] = []

    def put(self, letter: Outgoing) -> None:
        """It goes with the next `poll`."""
        headers, _ = strip_failure(letter.record.headers, letter.keep_headers)
        document = {"headers": {**headers, **letter.provenance}, **body_fields(letter.record.body)}
        line = json.dumps(document).encode() + b"\n"
        if len(line) > LONGEST_LINE:
            raise ValueError(f"its line would be longer than {LONGEST_LINE} bytes")
        self._waiting.append((letter, line))

    def poll(self, wait: float) -> None:
        """What is synced is answered."""
        waiting, self._waiting = self._waiting, []
        self.announce([letter.number for letter, _ in waiting])
        self.answers += [self._write(letter, line) for letter, line in waiting]

    def _write(self, letter: Outgoing, line: bytes) -> Sent:
        file = self._connector.file_of(letter.target.name)
        if not file.exists():
            return Sent(letter.number, "returned", f"there is no topic {letter.target.name}")
        with file.open("ab") as sink:
            sink.write(line)
            sink.flush()
            os.fsync(sink.fileno())
        return Sent(letter.number, "confirmed")


class ToyLogConnector(Connector):
    """The topics of one folder."""

    window = 4000
    changes = {"copy": "changes nothing", "drain": "changes nothing"}  # noqa: RUF012

    def __init__(self, broker: Broker) -> None:
        self._root = Path(str(broker.url).removeprefix("toylog://"))

    def file_of(self, topic: str | None) -> Path:
        """Whether it is there or not."""
        return self._root / f"{topic}.log"

    def _lines(self, topic: str | None) -> list[bytes]:
        try:
            return self.file_of(topic).read_bytes().splitlines(keepends=True)
        except FileNotFoundError as error:
            raise NotFound(f"there is no topic {topic}; look at the name") from error

    def gauge(self, source: Source) -> Gauge:
        """How many lines."""
        return Gauge(len(self._lines(source.topic)))

    def read(self, request: ReadRequest) -> ToyReading:
        """Start a reading. Raises NotFound."""
        topic = str(request.source.topic)
        return ToyReading(topic, self._lines(topic), request)

    def publisher(self, request: SendRequest) -> ToyPublisher:
        """Nothing has to be left to find letters by: they stay."""
        return ToyPublisher(self, request.window)

    def bounds(self, targets: Iterable[Target]) -> Checkpoint:
        """Where each topic ends."""
        return {target.name: len(self._lines(target.name)) for target in targets}

    def find(self, search: Search) -> Proof:
        """By their replay ids, among what came since."""
        names = {letter.target.name for letter in search.letters}
        new = [line for name in names for line in self._lines(name)[search.before.get(name, 0) :]]
        there = {json.loads(line)["headers"].get(REPLAY_ID) for line in new}
        return Proof({
            one.number: "sent" if one.provenance[REPLAY_ID] in there else "not_sent" for one in search.letters
        })  # fmt: skip


TOY_LOG = Plugin(
    connector="support.brokers.toy_log:ToyLogConnector", named_by=("topic",), schemes=("toylog",)
)
