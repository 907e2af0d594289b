"""JSONL files as a connector: each line is a letter, nothing is ever acknowledged.

The whole file is the snapshot. A line that cannot be read is `Skipped` with its number and the reason;
the good lines around it are read. `-` is standard input; a name that ends in .gz is compressed.
A file that a console or a client printed is read by the reader of such prints (`jsonl/console_formats.py`).
"""

import codecs
import gzip
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, BinaryIO, cast

from dlq.connectors.base import Batch, Reading, ReadRequest, Skipped
from dlq.connectors.jsonl.console_formats import Reader
from dlq.connectors.jsonl.format import check_document, fit, parse_line, record_of
from dlq.connectors.local import user_files
from dlq.connectors.records import stamp
from dlq.core.errors import UsageError
from dlq.core.record import Record
from dlq.core.runtime import bounded_json
from dlq.core.runtime.regular_files import UNREADABLE

UNNAMED = "import"
"""The broker of letters for which nobody has named one."""
_Letter = bytes | dict[str, Any] | UsageError


def open_binary(path: str, mode: str = "rb") -> BinaryIO:
    """Return a file to be read, gzip by its name; for `-` standard input or output. Raises UsageError."""
    if path == "-":
        return cast(
            BinaryIO, os.fdopen(os.dup(sys.stdin.fileno() if "r" in mode else sys.stdout.fileno()), mode)
        )
    try:
        file = user_files.open_given(path)
        if not path.endswith(".gz"):
            return file
        file.close()
        return cast(BinaryIO, gzip.open(path))
    except user_files.NotOrdinaryError as error:
        raise UsageError(
            f"cannot open {path}: {error.strerror}; to read a pipe, give - and < {path}"
        ) from error
    except OSError as error:
        raise UsageError(f"cannot open {path}: {error.strerror}; check its path and rights") from error


def _text(data: bytes) -> str:
    """Return a print as text: UTF-8, where a surrogate stands for a byte that is none, or what shells on
    Windows write."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", "backslashreplace")
    return data.decode("utf-8-sig", "surrogateescape")


class FileReading:
    """A reading over an open file: JSONL, or what `printed` reads."""

    snapshot: int | None = None
    complete: bool = True
    unique_ids: bool = True
    marks_redelivered: bool = False
    alike: bool = False
    settles_at_once: bool = False
    resumes: bool = False
    notes: Sequence[str] = ()
    _room = bounded_json.LARGEST
    """Bytes of what lines tell of brokers that are kept."""

    def __init__(self, path: str, request: ReadRequest, printed: Reader | None) -> None:
        self._path, self._request, self._printed = path, request, printed
        self._file = open_binary(path)
        self._key = request.key_reader()
        self.topology: Mapping[str, Any] = {"file": path}
        self._told: dict[str, str] = {}
        """Dead-letter queue -> what its letters' broker said, as JSON."""

    def _hear(self, queue: str, facts: Mapping[str, Any]) -> None:
        """Note facts of a queue. Two brokers that say different things of one name say nothing."""
        told = json.dumps(facts, sort_keys=True)
        if len(told) > self._room:
            return
        self._room -= len(told)
        self._told[queue] = told if self._told.get(queue, told) == told else "{}"

    def _broker_facts(self) -> list[dict[str, Any]]:
        """Return what lines have told of brokers, each once."""
        queues: dict[str, list[str]] = {}
        for queue, facts in self._told.items():
            queues.setdefault(facts, []).append(queue)
        return [{"queues": names, "facts": json.loads(facts)} for facts, names in queues.items()]

    def batches(self) -> Iterator[Batch]:
        """Yield the lines in order. Raises UsageError where the file itself cannot be read on."""
        records: list[Record] = []
        skipped: list[Skipped] = []
        size = position = 0
        for number, place, letter in self._letters():
            if self._request.limit is not None and position >= self._request.limit:
                break
            try:
                record = self._record(number, place, letter)
            except UsageError as error:
                skipped.append(Skipped(f"line {number}", str(error)))
                continue
            records.append(record)
            position += 1
            size += record.body_size
            if len(records) >= self._request.batch_rows or size >= self._request.batch_bytes:
                yield Batch(records, position, {}, skipped)
                records, skipped, size = [], [], 0
        if self._told:
            self.topology = {"file": self._path, "imported": self._broker_facts()}
        yield Batch(records, position, {}, skipped)

    def _letters(self) -> Iterator[tuple[int, str, _Letter]]:
        """Yield number of the line, place that tells equal letters apart, and the letter or what makes it."""
        try:
            if self._printed is None:
                yield from self._lines()
            else:
                yield from self._prints(self._printed)
        except UNREADABLE as error:
            raise UsageError(f"cannot read {self._path} to its end: {error}") from error

    def _lines(self) -> Iterator[tuple[int, str, _Letter]]:
        for number, line in enumerate(lines_of(self._file, self._path), 1):
            if line.strip():
                yield number, str(number), line

    def _prints(self, read: Reader) -> Iterator[tuple[int, str, _Letter]]:
        found = read(_text(b"".join(lines_of(self._file, self._path, LONGEST))))
        numbered: list[tuple[int, dict[str, Any] | UsageError]] = [*found.letters]
        numbered += [(number, UsageError(why)) for number, why in found.unread]
        of_line: Counter[int] = Counter()
        for number, letter in sorted(numbered, key=itemgetter(0)):
            of_line[number] += 1
            yield number, f"{number}.{of_line[number]}", letter

    def _record(self, number: int, place: str, letter: _Letter) -> Record:
        if isinstance(letter, UsageError):
            raise letter
        document = check_document(fit(letter)) if isinstance(letter, dict) else parse_line(letter)
        source = self._request.source
        record = record_of(document, source.name, source.broker, place, self._key)
        if told := document.get("topology"):
            self._hear(record.dead_letter_queue, told)
        captured = stamp(record, self._request)
        if source.broker != UNNAMED:  # else what a line says of it stays, and nothing is sent by it
            captured = captured._replace(broker=source.broker)
        return captured if "record" in document else captured._replace(offset=number)

    def acknowledge(self, position: int) -> None:
        """Acknowledge nothing: a file forgets nothing."""

    def settled_position(self) -> int:
        """Return 0: nothing is ever acknowledged."""
        return 0

    def close(self) -> None:
        """Close the file."""
        self._file.close()


LONGEST = 1 << 30
"""Bytes of a line, or of all that a console has printed: an input without end is neither."""


def lines_of(file: Any, path: str, most: int | None = None) -> Iterator[bytes]:
    """Yield the lines of a file that the user names, at most `most` bytes together. Raises UsageError for a
    line that is too long to be a letter, and OSError."""
    read = 0
    while line := file.readline(LONGEST + 1):
        read += len(line)
        if len(line) > LONGEST or read > (most or read):
            raise UsageError(
                f"{path}: line of more than {LONGEST >> 20} MiB: this is no file of letters; name another"
            )
        yield line


class FileConnector:
    """The part of the contract that a file can keep: `read`."""

    def __init__(self, path: str, printed: Reader | None = None) -> None:
        self._path, self._printed = path, printed

    def read(self, request: ReadRequest) -> Reading:
        """Start reading the file. Raises UsageError when it cannot be opened."""
        return FileReading(self._path, request, self._printed)
