"""What frameworks and hands leave on a letter that failed: rules read it, and replays take it away.

A letter that is sent again starts anew. What is left on it would make the first hiccup after the replay the
last one (a counter), or explain the next death by the old one (an error). So whatever a rule reads as
evidence of a failure is gone or set back when the letter goes out, on every broker; a header that is a
container is fixed inside, since the rest of it may be needed to read the body.

Some names belong to frameworks and to nobody else (`core.frameworks`). Others are written by hand, in any
spelling: they are put into words, and the words into one vocabulary. There one header alone says little (a
business may call a property `errorMessage`), unless it begins with `x-` or names a dead-letter queue, or its
value is an exception's class or a stack; two of them that belong together say that the letter was parked.
"""

import json
import re
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple

from dlq.core.headers.frameworks import FRAMEWORKS, Inside, Trace

_Path = tuple[str, ...]
Keep = bool | Sequence[str]
"""What a replay leaves on a letter of its failure: all (True), nothing (False), names by patterns (`x-*`)."""
_TRACES: tuple[Trace, ...] = (*chain.from_iterable(framework.traces for framework in FRAMEWORKS),)

# --- Names written by hand ---

_OF_JMS = {"_HYPHEN_": "-", "_DOT_": "."}
"""What Camel writes for characters that no name of a JMS property may hold (DefaultJmsKeyFormatStrategy)."""
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_JOINED = {
    ("stack", "trace"): "stacktrace",
    ("trace", "back"): "traceback",
    ("back", "trace"): "backtrace",
    ("class", "name"): "classname",
    ("routing", "key"): "routingkey",
    ("dead", "letter"): "dlq",
    ("dead", "lettered"): "dlq",
    ("deadletter",): "dlq",
    ("dlt",): "dlq",
    ("dlx",): "dlq",
}
MESSAGES = ("message", "description", "reason", "msg", "detail", "details", "text", "because")
CLASSES = ("class", "type", "name", "classname", "fqcn")
STACKS = ("stacktrace", "stack", "trace", "traceback", "backtrace")
_ERRORS = ("error", "exception", "failure", "failed", "cause")
_PARTS = ("", *MESSAGES, *CLASSES, *STACKS)
_ORIGINS = ("original", "source", "origin", "orig")
_PLACES = (
    "queue", "topic", "address", "exchange", "routingkey", "partition", "offset", "channel", "destination",
)  # fmt: skip
_OF_CAMEL = ("failed", "because")
"""What the documentation of Camel's dead letter channel calls the header of its example."""
_ALWAYS_ERRORS = tuple(f"{x}-{word}" for x in "xX" for word in ("error", "Error", "exception", "Exception"))
_OTHER = "other"
"""A part of an error that is none of these, like its code."""
_OF_QUEUES = ("queue", "address", "exchange", "routingkey")
"""What a count belongs to where nothing tries again by itself: in logs, retry topics are live."""
_COUNTED = (
    "retry", "retries", "retrycount", "attempt", "attempts", "delivery", "redelivery", "redelivered",
    "redeliveries", "deliveries", "processing",
)  # fmt: skip
_BEYOND_THE_FIRST = ("retry", "retries", "retrycount", "redelivery", "redelivered", "redeliveries")
_NO_COUNT_ALONE = ("processing",)
_COUNTS = ("count", "counter", "attempt", "attempts", "number", "no")
_COUNTS_BEHIND = ((), *((word,) for word in _COUNTS))
_MOST_DIGITS = 10
_CUTS = {(x, "truncated") for x in ("value", "body", "payload", "message", "record", "content", "dlq")}
_HISTORIES = frozenset({
    "x-death", "x-opt-deaths", "x-first-death-reason", "x-last-death-reason", "original-destination",
    "_AMQ_ORIG_ADDRESS", "_AMQ_ORIG_QUEUE", "RETRY_TOPIC", "DLQ_ORIGIN_TOPIC",
})  # fmt: skip
"""Where brokers say that a letter died: who counts retries beside that has given up."""
_BROKERS_WORDS = ("rejected", "expired", "maxlen", "delivery_limit")
_NOBODYS = re.compile(
    r"x-death|x-(?:first|last)-death-.*|x-(?:delivery|acquired)-count|x-opt-.*|JMSX.*|_AMQ_.*|__HDR_.*|__\w+"
    r"|original-destination|original(?:Expiration|DeliveryMode)|redelivered|dlqDeliveryFailureCause|dlq_replay_.*"
)
"""Names that brokers and we write: no hand did."""
_CLASS = re.compile(
    r"[A-Za-z_$][\w$]*(?:(?:\.|::|\\)[\w$]+)*(?:Exception|Error|Throwable|Failure|Fault)"
    r"|[a-z_][\w$]*(?:\.[a-z_][\w$]*)*\.[A-Z][\w$]*"
)
_BINARY = re.compile(r"base64:([A-Za-z0-9+/]{6}==|[A-Za-z0-9+/]{11}=)")
"""How 4 or 8 bytes are shown."""
_STACK = re.compile(
    r"\n\s{1,8}at |Traceback \(|\ngoroutine \d|\n#\d+ |^goroutine \d|(?:^|\n)\S{1,300}\.rb:\d{1,9}:in [`']"
)


class _Mark(NamedTuple):
    """What a name that a hand wrote says."""

    kind: str
    """error, origin, or count."""
    part: str
    """Of an error: message, class, stacktrace, …, "" for the whole; of an origin the kind of place; of a
    count retries, which are attempts beyond the first, or attempts."""
    explicit: bool
    """It says by itself that it is a failure's, or a count."""


def decode_name(name: str) -> str:
    """Return a header's name as it was before Camel sent it over JMS."""
    if "_HYPHEN_" in name or "_DOT_" in name:
        for word, character in _OF_JMS.items():
            name = name.replace(word, character)
    return name


@lru_cache(maxsize=4096)
def words_of(name: str) -> _Path:
    """`x-Original_routingKey` -> original, routingkey."""
    words = [word.lower() for word in _WORD.findall(decode_name(name))]
    if words[:1] == ["x"]:
        del words[0]
    joined, at = list[str](), 0
    while pair := tuple(words[at : at + 2]):
        found = _JOINED.get(pair)
        joined.append(found or _JOINED.get(pair[:1], pair[0]))
        at += 2 if found else 1
    return tuple(joined)


@lru_cache(maxsize=4096)
def mark_of(name: str) -> _Mark | None:
    """Return what a name says, whoever wrote it; None where it says nothing of a failure."""
    name = decode_name(name)
    if _NOBODYS.fullmatch(name):
        return None
    words = words_of(name)
    is_explicit = name[:2] in ("x-", "X-") or "dlq" in words or words == _OF_CAMEL
    if (part := _error_part(words)) is not None:
        return _Mark("error", part, is_explicit)
    if name.startswith(_ALWAYS_ERRORS):
        return _Mark("error", _OTHER, True)
    own = tuple(word for word in words if word != "dlq")
    if len(own) == 2 and own[0] in _ORIGINS and own[1] in _PLACES:
        return _Mark("origin", own[1], False)
    if own and own[0] in _COUNTED and own != _NO_COUNT_ALONE and own[1:] in _COUNTS_BEHIND:
        counted = "retries" if own[0] in _BEYOND_THE_FIRST else "attempts"
        return _Mark("count", counted, is_explicit or len(own) > 1)
    return _Mark("count", "attempts", False) if own == ("death", "count") else None


def _error_part(words: _Path) -> str | None:
    if words in (("dlq", "reason"), ("death", "reason")):
        return "reason"
    if words in (("stacktrace",), ("traceback",), ("backtrace",)):
        return words[0]
    ends = [number for number, word in enumerate(words, 1) if word in _ERRORS]
    if not ends:
        return None
    rest = words[ends[-1] :]
    told = rest[0] if rest else ""
    return told if len(rest) < 2 and told in _PARTS and words != ("failed",) else None


class _Count(NamedTuple):
    """How often a consumer had a letter, as a hand counted it."""

    attempts: int
    """The first included."""
    number: int
    """As it is written: retries do not count the first."""
    name: str

    def __str__(self) -> str:
        return f"{self.name}: {self.number}"


class HandWritten(NamedTuple):
    """What hands wrote of a failure on one letter."""

    errors: Mapping[str, tuple[str, str]]
    """Part of the error -> the header, and its value; of several the first."""
    origins: Mapping[str, str]
    """Kind of place -> its name."""
    counted: _Count | None
    """Of several the highest."""
    names: tuple[str, ...]
    """All these headers."""
    is_proven: bool
    """A value is an exception's class, or a stack: a program wrote it when it failed."""


def by_hand(headers: Mapping[str, str]) -> HandWritten | None:
    """Return what hands wrote of a failure, or None: a lone business property is none."""
    marked = _marked_names(tuple(headers))
    if not marked:
        return None
    errors: dict[str, tuple[str, str]] = {}
    origins: dict[str, str] = {}
    counts: list[_Count] = []
    is_explicit = is_proven = False
    for name, mark in marked:
        value = headers[name]
        if mark.kind == "origin":
            origins.setdefault(mark.part, value)
        elif mark.kind == "count":
            counts += _read_counts(name, mark, value)
        elif tells(name, value):
            errors.setdefault(mark.part, (name, value))
            is_explicit |= mark.explicit
            is_proven |= is_of_a_program(value)
    is_parked = not origins.keys().isdisjoint(_OF_QUEUES) and any(count.number for count in counts)
    is_told = bool(errors) and (is_explicit or is_proven or len(marked) > 1)
    if not is_told and not is_parked:
        return None
    names = tuple(name for name, _ in marked)
    return HandWritten(errors, origins, max(counts, default=None), names, is_proven)


@lru_cache(maxsize=4096)
def _marked_names(names: tuple[str, ...]) -> Sequence[tuple[str, _Mark]]:
    """Return those of these names that say something of a failure."""
    return [(name, mark) for name in names if (mark := mark_of(name)) is not None]


def tells(name: str, value: str) -> bool:
    """Return whether a header that may tell an error does, or one that counts has counted something."""
    mark = mark_of(name)
    if mark is not None and mark.kind == "count":
        return any(count.number for count in _read_counts(name, mark, value))
    return bool(value.strip()) and not (value in _BROKERS_WORDS and words_of(name) == ("death", "reason"))


@lru_cache(maxsize=4096)
def names_of_cuts(names: tuple[str, ...]) -> Sequence[str]:
    """Return those of these names that may say that a body is cut: dlq.value.truncated, bodyTruncated."""
    told = ((name, words_of(name)) for name in names)
    return [name for name, words in told if words[-2:] in _CUTS and not {*_ERRORS}.intersection(words)]


def attempts_of_retries(headers: Mapping[str, str]) -> int | None:
    """Return attempts by headers that say by themselves that they count retries, whoever wrote them."""
    marked = ((name, mark_of(name)) for name in headers)
    counts = (
        _read_counts(name, mark, headers[name])
        for name, mark in marked
        if mark is not None and mark.part == "retries" and mark.explicit
    )
    return max((count.attempts for found in counts for count in found), default=None)


def first_published(headers: Mapping[str, str]) -> tuple[str | None, str | None]:
    """Return exchange and routing key of a letter's first publishing, as frameworks and hands note them."""
    names = _of_origin(tuple(headers))
    exchange, key = names.get("exchange"), names.get("routingkey")
    return exchange and headers[exchange], key and headers[key]


@lru_cache(maxsize=4096)
def _of_origin(names: tuple[str, ...]) -> Mapping[str, str]:
    """Return which of these headers tell where a letter came from, by what they tell."""
    marked = ((mark_of(name), name) for name in names)
    return {mark.part: name for mark, name in marked if mark is not None and mark.kind == "origin"}


def is_of_a_program(value: str) -> bool:
    """Return whether a value is an exception's class, with or without its message, or a stack."""
    return bool(_STACK.search(value) or _CLASS.fullmatch(value.partition(": ")[0].strip()))


def _read_counts(name: str, mark: _Mark, value: str) -> list[_Count]:
    """Return what a header counts; nothing where it holds no number."""
    digits = _digits(value)
    if not (digits.isascii() and digits.isdecimal() and len(digits) < _MOST_DIGITS):
        return []
    number = int(digits)
    return [_Count(number + (mark.part == "retries"), number, name)]


def _digits(count: str) -> str:
    """Return a count as digits: Camel writes an int to Kafka as its bytes (DefaultKafkaHeaderSerializer)."""
    binary = _BINARY.fullmatch(count)
    return str(int.from_bytes(b64decode(binary[1]), "big", signed=True)) if binary else count


# --- What a replay does with them ---


class HeaderScrub(NamedTuple):
    """What of a letter's headers is not sent again."""

    gone: frozenset[str]
    fixed: Mapping[str, Inside]


Answers = tuple[tuple[bool, ...], bool]
"""What the values of headers decide of their restart: whether each that may tell a failure does, and whether
one that is alone proves it."""


def restart(headers: Mapping[str, str], keep: Keep = False) -> HeaderScrub:
    """Return what a replay takes away of these headers, and mends. `keep`: True for nothing but what is
    compared with what a broker wrote, which never goes along; else patterns of the names that stay as they
    are."""
    names = tuple(headers)
    return restart_told(names, ask_values(names, headers.__getitem__, keep), keep)


def ask_values(names: tuple[str, ...], value_of: Callable[[str], str], keep: Keep = False) -> Answers:
    """Return what the values of headers with these names decide; only those that count are asked for."""
    marked = [] if keep is True else marked_names(names)
    return answers_of([*map(tells, marked, map(value_of, marked))], lambda: value_of(marked[0]))


def answers_of(told: Sequence[bool], alone: Callable[[], str]) -> Answers:
    """Return `ask_values` of headers of which this is told, each by `tells`; `alone`: the value of one."""
    return tuple(told), len(told) == 1 and told[0] and is_of_a_program(alone())


@lru_cache(maxsize=4096)
def marked_names(names: tuple[str, ...]) -> Sequence[str]:
    """Return those of these names whose values count."""
    return [name for name, _ in _marked_names(names)]


def restart_told(names: tuple[str, ...], answers: Answers, keep: Keep = False) -> HeaderScrub:
    """Return `restart` of headers with these names, of whose values this is known."""
    told, is_proven = answers
    kept = () if isinstance(keep, bool) else tuple(keep)
    return _of_hands(names, told, is_proven, kept) if told else _of_frameworks(names, keep is True, kept)


@lru_cache(maxsize=4096)
def _of_hands(
    names: tuple[str, ...], told: tuple[bool, ...], is_proven: bool, kept: tuple[str, ...]
) -> HeaderScrub:
    """Return what goes of letters with these names, of which those that are marked tell something, or do not:
    as `by_hand` says, which reads what they tell. A count goes beside a topic, too, which proves no death,
    and one of retries beside a death."""
    found, marked = _of_frameworks(names, False, kept), _marked_names(names)
    telling = [one for one, tells in zip(marked, told, strict=True) if tells]
    errors = [mark for _, mark in telling if mark.kind == "error"]
    counts = [(name, mark) for name, mark in telling if mark.kind == "count"]
    is_parked = counts and any(m.kind == "origin" and m.part in (*_OF_QUEUES, "topic") for _, m in marked)
    is_explicit = any(mark.explicit for mark in errors) or is_proven or len(marked) > 1
    is_dead = not _HISTORIES.isdisjoint(names)
    hand = {name for name, mark in counts if is_dead and mark.part == "retries" and mark.explicit}
    if (errors and is_explicit) or is_parked:
        hand = {name for name, _ in marked} | {name for name in names if _is_of_a_failure(name)}
    more = {name for name in hand - found.fixed.keys() if not _is_kept(name, kept)}
    return HeaderScrub(found.gone | more, found.fixed)


@lru_cache(maxsize=4096)
def is_of_a_failure(name: str) -> bool:
    """Return whether a header's name is a framework's, or says by itself that it tells a failure."""
    plain = decode_name(name)
    is_traced = any(trace.is_of(plain) for trace in _TRACES if not trace.beside)
    return is_traced or mark_of(name) is not None


@lru_cache(maxsize=4096)
def _is_of_a_failure(name: str) -> bool:
    """Return whether a name that tells no failure by itself is one's beside others: error-code, failedAt."""
    words = [word for word in words_of(name) if word not in ("dlq", "first", "last")]
    return len(words) > 1 and words[0] in _ERRORS and _NOBODYS.fullmatch(decode_name(name)) is None


def _is_kept(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


@lru_cache(maxsize=4096)
def _of_frameworks(names: tuple[str, ...], always_alone: bool, kept: tuple[str, ...]) -> HeaderScrub:
    """Return what frameworks' headers lose; remembered, for letters of one kind all have the same names."""
    known = {decode_name(name): name for name in names}
    gone: set[str] = set()
    fixed: dict[str, Inside] = {}
    for trace in _TRACES:
        if (always_alone and not trace.always) or not all(name in known for name in trace.beside):
            continue
        for plain, name in known.items():
            if not trace.is_of(plain) or (_is_kept(name, kept) and not trace.always):
                continue
            if trace.inside is None:
                gone.add(name)
            else:
                fixed[name] = fixed.get(name, Inside()).join(trace.inside)
    return HeaderScrub(frozenset(gone), fixed)


def strip_failure(
    headers: Mapping[str, str], keep: Keep = False, names: _Path | None = None, brokers: Sequence[str] = ()
) -> tuple[dict[str, str], list[str]]:
    """Return these headers as a replay sends them again, and what it takes away of them, in words. `names`:
    those alone that are looked at, and sent; None: all. `brokers`: others that tell what a broker did."""
    names = tuple(headers) if names is None else names
    known = _by_name(names, keep if isinstance(keep, bool) else tuple(keep))
    if known is not None:
        sent, gone = known
        return {name: headers[name] for name in sent}, [*gone]
    own = {name: headers[name] for name in names}
    what = restart({**own, **dict.fromkeys(_HISTORIES.intersection(brokers), "")}, keep)
    kept = {
        name: fix_text(value, what.fixed[name]) if name in what.fixed else value
        for name, value in own.items()
        if name not in what.gone
    }
    return kept, taken_away(own, what)


@lru_cache(maxsize=4096)
def _by_name(
    names: tuple[str, ...], keep: bool | tuple[str, ...]
) -> tuple[Sequence[str], Sequence[str]] | None:
    """Return which headers with these names are sent again, and which are not; None where that is for their
    values to say."""
    if keep is not True and _marked_names(names):
        return None
    what = restart_told(names, ((), False), keep)
    gone = [name for name in names if name in what.gone]
    return None if what.fixed else ([name for name in names if name not in what.gone], gone)


def taken_away(headers: Mapping[str, str], what: HeaderScrub) -> list[str]:
    """Return what a replay takes away of these headers, in words, in their order."""
    if not what.fixed:
        return [name for name in headers if name in what.gone]
    return [told for name, value in headers.items() if (told := _name_change(name, value, what)) is not None]


def _name_change(name: str, value: str, what: HeaderScrub) -> str | None:
    inside = what.fixed.get(name)
    if inside is None or name in what.gone:
        return name if name in what.gone else None
    if fix_text(value, inside) == value:
        return None
    return f"{name} (set back to 0)" if () in inside.zero else f"{name} ({inside})"


def fix_text(text: str, inside: Inside) -> str:
    """Return a header's value as JSON or a number, fixed; what is neither stays."""
    if () in inside.zero:
        return "0" if text.strip().lstrip("+-").isdecimal() else text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    fixed = _fix(value, inside)
    return text if fixed == value else json.dumps(fixed, ensure_ascii=False, separators=(",", ":"))


def _fix(value: Any, inside: Inside, at: _Path = ()) -> Any:
    """Return a JSON value without what is gone, and 0 where it is set back."""
    if not isinstance(value, dict):
        return value
    kept = {key: one for key, one in value.items() if not inside.is_gone((*at, key))}
    return {
        key: 0 if inside.is_zero((*at, key)) else _fix(one, inside, (*at, key)) for key, one in kept.items()
    }
