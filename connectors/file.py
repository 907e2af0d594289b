"""JSONL files as a connector: each line is a letter, nothing is ever acknowledged.

The whole file is the snapshot. A line that cannot be read is `Skipped` with its number and the reason;
the good lines around it are read. `-` is standard input; a name that ends in .gz is compressed.
"""

import gzip
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO, cast

from dlq.connectors.base import Batch, Reading, ReadRequest, Skipped
from dlq.connectors.interchange.format import parse_line, record_of
from dlq.core.clock import now
from dlq.core.errors import UsageError
from dlq.core.record import Record

LONGEST_LINE = 512 * 2**20


def open_binary(path: str, mode: str = "rb") -> BinaryIO:
    """A file, gzip by its name, or `-` for a pipe. Raises UsageError."""
    if path == "-":
        return cast(
            BinaryIO, os.fdopen(os.dup(sys.stdin.fileno() if "r" in mode else sys.stdout.fileno()), mode)
        )
    try:
        return cast(BinaryIO, gzip.open(path, mode) if path.endswith(".gz") else open(path, mode))
    except OSError as error:
        raise UsageError(f"cannot open {path}: {error.strerror}") from error


class FileReading:
    """A reading over an open JSONL file."""

    snapshot: int | None = None
    complete: bool = True
    unique_ids: bool = True
    notes: Sequence[str] = ()

    def __init__(self, path: str, request: ReadRequest) -> None:
        self._path, self._request = path, request
        self._file = open_binary(path)
        self._key = request.key_reader()
        self.topology: Mapping[str, Any] = {"file": path}

    def batches(self) -> Iterator[Batch]:
        """The lines in order. Raises UsageError where the file itself cannot be read on."""
        records: list[Record] = []
        skipped: list[Skipped] = []
        size = position = 0
        for number, line in self._lines():
            if self._request.limit is not None and position >= self._request.limit:
                break
            try:
                record = self._record(number, line)
            except UsageError as error:
                skipped.append(Skipped(f"line {number}", str(error)))
                continue
            records.append(record)
            position += 1
            size += record.body_size
            if len(records) >= self._request.batch_rows or size >= self._request.batch_bytes:
                yield Batch(records, position, {}, skipped)
                records, skipped, size = [], [], 0
        yield Batch(records, position, {}, skipped)

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        try:
            for number, line in enumerate(self._file, 1):
                if line.strip():
                    yield number, line
        except (OSError, EOFError) as error:
            raise UsageError(f"cannot read {self._path} to its end: {error}") from error

    def _record(self, number: int, line: bytes) -> Record:
        document = parse_line(line)
        source = self._request.source
        record = record_of(document, source.name, source.broker, str(number), self._key)
        captured = record._replace(captured_at=now(), pull_id=self._request.pull_id, mode=self._request.mode)
        return captured if "record" in document else captured._replace(offset=number)

    def acknowledge(self, position: int) -> None:
        """A file forgets nothing."""

    def settled(self) -> int:
        """Nothing is ever acknowledged."""
        return 0

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class FileConnector:
    """The part of the contract that a file can keep: `read`."""

    def __init__(self, path: str) -> None:
        self._path = path

    def read(self, request: ReadRequest) -> Reading:
        """Start reading the file. Raises UsageError when it cannot be opened."""
        return FileReading(self._path, request)
