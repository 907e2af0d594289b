"""What a rule is given and what it says: a letter, what pulls learned of the brokers, a finding.

A letter is a record of the archive. What a rule wants to know of it beyond its columns is a function marked
`once_per_letter`, however many rules ask.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any, NamedTuple, TypeVar

from dlq.core.causes import proof_of
from dlq.core.clock import iso
from dlq.core.record import Record

LONGEST_EVIDENCE = 500
"""Characters of the text that a verdict quotes."""
_LONGEST_BODY = 16 << 20
"""Bytes up to which a body is read for what a framework wrote into it."""

_T = TypeVar("_T")
_NUMBERED_ID = re.compile(r"^(.+-\d+-\d+-\d+:\d+:-?\d+:-?\d+):(\d+)\Z", re.ASCII)
"""`ID:<host>-<port>-<time>-<n>:<connection>:<session>:<producer>:<seq>` (OpenWire's MessageId)."""
_WHOLE = re.compile(r"\s{0,9}[+-]?[0-9]{1,19}\s{0,9}")


class Letter(Record):
    """A record, whose body may be fetched only when a rule asks for it."""

    fetch_body: Callable[[], bytes] | None = None

    def once(self, ask: "Callable[[Letter], _T]") -> _T:
        """Return what `ask` says of this letter; it is asked once."""
        known: dict[Any, Any] = self.__dict__
        if ask not in known:
            known[ask] = ask(self)
        answer: _T = known[ask]
        return answer


def once_per_letter(ask: Callable[[Letter], _T]) -> Callable[[Letter], _T]:
    """Return a question to a letter that several rules have."""

    def answer(letter: Letter) -> _T:
        return letter.once(ask)

    answer.__doc__ = ask.__doc__
    return answer


@dataclass(frozen=True)
class Facts:
    """What pulls learned of the brokers, by source name (`topology/<pull>.json`)."""

    delivery_limits: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Source -> queue -> its delivery limit."""
    alternate_exchanges: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Source -> the alternate exchanges that its queue is bound to."""
    dead_letter_exchanges: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Source -> queue -> where it dead-letters to."""
    dead_letter_keys: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Source -> queue -> the key with which it does."""
    routes: Mapping[str, Mapping[str, Mapping[str, tuple[str, ...]]]] = field(default_factory=dict)
    """Source -> exchange -> pattern of keys -> the queues that it routes to."""
    diverts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Source -> the names of its broker's diverts (Artemis)."""
    places_of_the_dead: Mapping[str, Mapping[str, tuple[str | None, str | None]]] = field(
        default_factory=dict
    )
    """Source -> address -> where Artemis' settings send what dies there, and what expires there."""
    most_attempts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Source -> address -> Artemis' max-delivery-attempts, where they are configured."""
    killed_none: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Source -> queue of Artemis' -> since when it has sent nothing to where the dead go, in microseconds."""
    imported: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Source -> dead-letter queue -> in the place of a source: where what was exported with letters of that
    queue stands. It counts for imported letters alone, as anybody may have written it."""

    def place_of(self, letter: Record) -> str:
        """Return the name under which what is known of a letter's broker stands here."""
        if letter.mode != "import":
            return letter.source
        return self.imported.get(letter.source, {}).get(letter.dead_letter_queue, letter.source)


class Finding(NamedTuple):
    """What a rule says of a letter.

    `error_text` is a stack trace or whatever text holds the exception; class and message are read from it,
    and fall back on `error_class` and `error_message`. `origin_kind` is `queue` where an origin is named and
    nothing else is said.
    """

    evidence: str | None
    stale_evidence: bool = False
    attempts: int | None = None
    origin: str | None = None
    origin_kind: str | None = None
    origin_exchange: str | None = None
    origin_routing_key: str | None = None
    error_class: str | None = None
    error_message: str | None = None
    error_text: str | None = None
    outer_error: str | None = None
    """What wraps the exception, where a name of its own says so."""
    consumer_id: str | None = None
    connection_id: str | None = None
    transaction_state: str | None = None
    also_possible: tuple[str, ...] | None = None
    """What else leaves the same trace on this very letter; None: what the rule says of all of them."""


@cache
def _name(find: Callable[..., Any]) -> str:
    return find.__name__.strip("_").replace("_", "-")


class Rule(NamedTuple):
    """One named condition, and what it means where it holds."""

    find: Callable[[Letter, Facts], Finding | None]
    """A finding, or None where it has nothing to say. Its docstring is what people read."""
    cause: str
    mechanism: str
    also_possible: tuple[str, ...] = ()
    """At most three causes, or `moved`, that leave the same trace. None: the trace proves the cause."""

    @property
    def proof(self) -> str | None:
        """How sure its verdicts are, where a finding does not narrow it."""
        return proof_of(self.cause, self.also_possible)

    @property
    def name(self) -> str:
        """`_retry_loop` is known to people as `retry-loop`."""
        return _name(self.find)

    @property
    def when(self) -> str:
        """When it speaks, for people: the first paragraph of its docstring."""
        return " ".join((self.find.__doc__ or "").partition("\n\n")[0].split())


@once_per_letter
def body_of(letter: Letter) -> bytes:
    """Return the body as it was sent."""
    return letter.body or (letter.fetch_body() if letter.fetch_body else b"")


@once_per_letter
def body_text(letter: Letter) -> str:
    """Return the body as text, whatever is in it."""
    return body_of(letter)[:_LONGEST_BODY].decode(errors="replace")


@once_per_letter
def _body_document(letter: Letter) -> Any:
    try:
        return json.loads(body_text(letter))
    except (ValueError, RecursionError):
        return None


def body_field(letter: Letter, *path: str) -> str | None:
    """Return a field of a JSON body as text; None where it is not there, or null."""
    found = _body_document(letter)
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    if found is None:
        return None
    text = found if isinstance(found, str) else json.dumps(found, ensure_ascii=False, separators=(",", ":"))
    return whole_characters(text)


def whole_characters(text: str) -> str:
    """Return a text of JSON, which may hold halves of characters, as one that can be written."""
    return text.encode(errors="replace").decode()


def text_lines(text: str) -> list[str]:
    """Return the texts in a list of JSON; empty for every other text."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return []
    return [whole_characters(one) for one in found if isinstance(one, str)] if isinstance(found, list) else []


def is_whole(letter: Letter) -> bool:
    """Return whether a letter of ActiveMQ's shows all of its headers, as a pull reads them; what people hand
    on are parts."""
    return "message-id" in letter.headers and "destination" in letter.headers


def first(texts: Mapping[str, str], *names: str) -> str | None:
    """Return the first of some headers or properties that is there."""
    for name in names:
        text = texts.get(name)
        if text is not None:
            return text
    return None


def whole(text: str | None, bits: int = 32) -> int | None:
    """Return a text as a whole number of so many bits; None where it is none."""
    if text is None or not _WHOLE.fullmatch(text):
        return None
    return if_fits(int(text), bits)


def part(pattern: re.Pattern[str], text: str | None, group: int = 1) -> str | None:
    """Return what a group of a pattern finds in a text; None where it finds nothing, or an empty text."""
    found = pattern.search(text) if text else None
    return (found[group] or None) if found else None


def if_fits(number: int | None, bits: int = 32) -> int | None:
    """Return a number that the archive has room for; None for any other."""
    return number if number is not None and -(1 << bits - 1) <= number < 1 << bits - 1 else None


def plus(number: int | None, more: int) -> int | None:
    """Return the sum; None of nothing is nothing."""
    return None if number is None else number + more


def join_all(*parts: object) -> str | None:
    """Return the parts in one text; None where one of them is missing."""
    return None if None in parts else "".join(map(str, parts))


def second_of(micros: int) -> str:
    """Return a time in words, to the second."""
    return _in_words(micros // 1_000_000)


@lru_cache(4096)
def _in_words(second: int) -> str:
    """Return a second in words; many letters die in one."""
    return iso(second * 1_000_000)


def producer_of(message_id: str | None) -> tuple[str | None, int | None]:
    """Return the producer and the sequence number that a message id of OpenWire's form tells."""
    found = _NUMBERED_ID.search(message_id) if message_id and ":" in message_id else None
    return (found[1], whole(found[2], 64)) if found else (None, None)
