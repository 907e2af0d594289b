"""Many frames' header lines at once: one column for each header.

Letters of one kind have the same headers in the same order, most of them with the same values, so what all
of them share is decoded once.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from dlq.connectors.activemq.stomp import headers_of, unescape
from dlq.core.columns import Column, Maps, Same, each, same

_PER_DELIVERY = (b"subscription:", b"ack:", b"redelivered:", b"message-id:", b"browser:")
"""Header lines that differ from one delivery to the next (Artemis' message-id begins with the consumer)."""


class Heads(NamedTuple):
    """Heads of one kind: their places among all, their headers, and what each keeps for life."""

    places: Sequence[int]
    headers: Column
    stable: Column

    def of(self, name: str) -> Column:
        """One header; None where there is none."""
        if isinstance(self.headers, Maps):
            return self.headers.columns.get(name, Same(None, len(self.places)))
        return [headers.get(name) for headers in self.headers]


def by_kind(heads: Sequence[bytes]) -> Iterator[Heads]:
    """The heads, those of one kind together."""
    lines = [head.split(b"\n") for head in heads]
    if (found := _alike(range(len(heads)), lines)) is not None:
        yield found
        return
    kinds: dict[tuple[bytes, ...], list[int]] = {}
    for place, some in enumerate(lines):
        kinds.setdefault(tuple([line.partition(b":")[0] for line in some]), []).append(place)
    for places in kinds.values():
        alike = _alike(places, [lines[place] for place in places])
        yield alike or _one_by_one(places, [heads[place] for place in places])


def _one_by_one(places: Sequence[int], heads: Sequence[bytes]) -> Heads:
    return Heads(places, list(map(headers_of, heads)), list(map(stable_lines, heads)))


def _alike(places: Sequence[int], heads: Sequence[list[bytes]]) -> Heads | None:
    """None where headers differ, come twice, or are no headers."""
    if len(set(map(len, heads))) != 1:
        return None
    columns: dict[bytes, Column] = {}
    for lines in zip(*heads, strict=True):
        column = same(lines)
        name, colon, _ = lines[0].partition(b":")
        begin = name + colon
        if not colon or not (isinstance(column, Same) or all(line.startswith(begin) for line in lines)):
            return None
        columns[begin] = column
    headers = {name[:-1].decode("utf-8", "replace"): _values(name, lines) for name, lines in columns.items()}
    if len(headers) != len(heads[0]):
        return None
    return Heads(places, Maps(headers, len(places)), _stable(columns, len(places)))


def _values(begin: bytes, lines: Column) -> Column:
    skipped = len(begin)

    def value(line: bytes) -> str:
        text = line[skipped:].decode("utf-8", "replace")
        return unescape(text) if "\\" in text else text

    return each(value, lines)


def _stable(columns: Mapping[bytes, Column], rows: int) -> Column:
    """A name ends with its colon and is there once, so the order of names is the order of lines."""
    kept = [columns[name] for name in sorted(columns) if name not in _PER_DELIVERY]
    return same(list(map(b"\n".join, zip(*kept, strict=True)))) if kept else Same(b"", rows)


def stable_lines(head: bytes) -> bytes:
    """The header lines that a message keeps for life, sorted: Classic's order is a hash map's."""
    return b"\n".join(sorted([line for line in head.split(b"\n") if not line.startswith(_PER_DELIVERY)]))
