"""Records with headers that the client library cannot say: they are fetched once more, by ourselves."""

from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import Message

from dlq.connectors.base import Gap, Skipped
from dlq.connectors.kafka.link import fetch
from dlq.connectors.kafka.link.connection import Link
from dlq.connectors.kafka.look.cluster import Cluster, Place
from dlq.connectors.kafka.records.raw import Headers
from dlq.core.errors import BrokerError

_SOME = 2**20
"""Bytes that are fetched at once: an odd record is rarely alone."""
_Names = tuple[str, ...]


def headers_of(message: Any) -> Headers:
    """Return the headers as the library says them, asked once. Raises SystemError, UnicodeError for a name
    that is no UTF-8.

    It gives both a result with a hole in it and an error. The interpreter's own call of a method, once it has
    become quick, does not look for the error, and the hole ends the process; a call by `map` always looks.
    """
    found: Any = next(map(Message.headers, (message,)))
    return found or ()


_UNSAID = object()


def _tell(messages: Sequence[Any]) -> list[Any]:
    """Return the headers of messages as the library says them, each asked once: None for none, `_UNSAID` as
    `headers_of` raises."""
    told: list[Any] = []
    rest = map(Message.headers, messages)
    while len(told) < len(messages):
        try:
            told.extend(rest)
        except (SystemError, UnicodeError):
            told.append(_UNSAID)
    return told


class OddHeaders:
    """What one reading finds of them."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._links: dict[tuple[str, int], Link] = {}
        self._ahead: dict[Place, Mapping[int, Headers]] = {}
        self._whole: set[tuple[Place, _Names]] = set()
        self._cut: set[tuple[Place, _Names]] = set()

    def readable(self, messages: Sequence[Any]) -> tuple[list[Any], list[Headers], list[Skipped]]:
        """Return messages with the headers that each has, and those whose headers nobody can say."""
        told = _tell(messages)
        if self._are_known_whole(messages, told):
            return [*messages], [found or () for found in told], []
        kept, headers, skipped = [], [], []
        for message, said in zip(messages, told, strict=True):
            try:
                found = self._readable(message, said)
            except (BrokerError, fetch.Unreadable) as error:
                place = Place(message.topic(), message.partition())
                reason = f"its headers are no UTF-8, and could not be read otherwise: {error}"
                passed = Gap(str(place), message.offset(), message.offset() + 1)
                skipped.append(Skipped(f"{place}@{message.offset()}", reason, passed))
                continue
            kept.append(message)
            headers.append(found)
        return kept, headers, skipped

    def _are_known_whole(self, messages: Sequence[Any], told: Sequence[Any]) -> bool:
        """Return whether they are of one partition, and the library has said all headers with such names
        before: mostly so."""
        places: set[Any] = {*zip(map(Message.topic, messages), map(Message.partition, messages), strict=True)}
        if len(places) != 1 or any(found is _UNSAID for found in told):
            return False
        place = Place(*places.pop())
        rows = {tuple([name for name, _ in found]) for found in told if found}
        return place not in self._ahead and all((place, names) in self._whole for names in rows)

    def headers_of(self, message: Any) -> Headers:
        """Return the headers of a message, to the byte. Raises BrokerError, Unreadable where it takes a fetch
        and that fails."""
        return self._readable(message, *_tell([message]))

    def _readable(self, message: Any, said: Any) -> Headers:
        """`headers_of` one of which the library has `said` this.

        The library gives an error for a name that is not UTF-8, once, and ends one at NUL without a word:
        of each row of names that is new in a partition, the first record is compared with what lies there,
        and so are those that came with it.
        """
        place = Place(message.topic(), message.partition())
        if (ahead := self._ahead.get(place)) is not None:
            if (there := ahead.get(message.offset())) is not None:
                return there
            del self._ahead[place]
        if said is _UNSAID:
            return self._fetch(place, message.offset())
        found: Headers = said or ()
        seen = place, tuple([name for name, _ in found])
        if not found or seen in self._whole:
            return found
        if seen in self._cut:
            return self._fetch(place, message.offset())
        return self._compare(seen, message.offset(), found)

    def _compare(self, seen: tuple[Place, _Names], offset: int, found: Headers) -> Headers:
        try:
            there = self._fetch(seen[0], offset)
        except (BrokerError, fetch.Unreadable):
            return found
        is_cut = tuple([name for name, _ in there]) != seen[1]
        (self._cut if is_cut else self._whole).add(seen)
        return there

    def _fetch(self, place: Place, offset: int) -> Headers:
        self._ahead[place] = self._ask(place, offset)
        if offset not in self._ahead[place]:
            raise fetch.Unreadable("it is not there any more")
        return self._ahead[place][offset]

    def _ask(self, place: Place, offset: int) -> Mapping[int, Headers]:
        address = self._cluster.leader(place)
        if address not in self._links:
            self._links[address] = Link(*address, self._cluster.access)
        try:
            wanted = fetch.request(*place, offset, _SOME)
            return fetch.headers_in(self._links[address].ask(fetch.API, fetch.VERSION, wanted))
        except BrokerError:
            self._links.pop(address).close()
            raise

    def close(self) -> None:
        """Drop the connections."""
        for link in self._links.values():
            link.close()
        self._links.clear()
