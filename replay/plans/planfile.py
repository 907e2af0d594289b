"""The file of a plan: `plans/<plan>.jsonl`, a header and then one line per letter, never changed again.

The digest covers the header and every line. Writing and reading stream: a plan of a million letters
needs no more memory than one of ten.
"""

import json
import math
import mmap
import re
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import lru_cache, partial
from hashlib import sha256
from itertools import islice
from operator import itemgetter
from sys import intern
from typing import IO, Any

from dlq.archive.schema import FORMAT_VERSION
from dlq.archive.storage.parquet import MOST_ROWS
from dlq.archive.storage.store import Store, build
from dlq.connectors.base import NO_EVIDENCE, Evidence, Target
from dlq.core import documents
from dlq.core.clock import from_iso
from dlq.core.errors import ArchiveError, DlqError, UsageError
from dlq.core.failures import Event
from dlq.core.headers.failure_headers import Keep
from dlq.core.runtime.bounded_json import LARGEST, once_each
from dlq.core.text import quote_value
from dlq.core.values.suggestions import find_by_prefix
from dlq.replay.plans.letters import Letter
from dlq.replay.runs.ordering import InOrder

_FOLDER = "plans/"
_SUFFIX = ".jsonl"
_EDITS_SUFFIX = ".edits.jsonl"
_BOUNDS_SUFFIX = ".bounds.json"
_RAMP_SUFFIX = ".ramp.json"
COPY_BYTES = 2**20
_WRITTEN_AT_ONCE = 500
"""Letters."""
LONGEST_LINE = 2**20
"""Bytes of a letter in a plan: names, digests and a target. A ledger takes no longer texts."""
_ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z_.-]{0,63}")
"""A plan's: it stands in commands to be copied and in names of queues, and a ledger has room for 64."""
_KEY = re.compile(r"[0-9a-f]{32}")
_NAMES_OF_LINE = re.compile(rb'(?:"record_id": ?"([ !#-\[\]-~]*)", ?)?"key": ?"([0-9a-f]{32})"')
"""A key is as `letters.replay_key` makes it; it goes along with the letter, and so does the record id."""
_LONGEST_ID = 64
# Both run once per letter: json.loads and keyword arguments cost three times as much.
_scan = json.JSONDecoder(object_pairs_hook=once_each).raw_decode
_fields = itemgetter(*Letter._fields[1:-3])
_TYPES = (int, str, str, int, str, str, int, Target, str, str)
_MOST_LAPS = 2**31 - 1
"""A ledger has 32 bits for it."""
_TYPED = tuple[int, str, str, int, str, str, int, Any, str, str]
"""The fields of a letter; checked the slow way where types differ, or there may be half a character."""


_TEXT, _NUMBER = r"([ !#-\[\]-~]*)", "(0|[1-9][0-9]{0,8})"
_PLAIN_LINE = re.compile(
    rf'\{{"record_id":"{_TEXT}","key":"{_TEXT}","lap":{_NUMBER},"broker":"{_TEXT}","segment":"{_TEXT}"'
    rf',"row":{_NUMBER},"target":(\["[ -Z^-~]*"\]),"content":"{_TEXT}"(?:,"business_key":"{_TEXT}")?\}}'
)
"""A line as `_to_line` writes it, with nothing that is escaped: read at half of what JSON costs."""


@lru_cache(maxsize=1024)
def _target(*parts: str) -> Target:
    return Target(*documents.value(tuple[str, ...], parts))


@lru_cache(maxsize=1024)
def _target_in(text: str) -> Target:
    return _target(*json.loads(text))


printed = lru_cache(maxsize=1024)(str)
"""A target as `--to` writes it."""


@dataclass(frozen=True)
class Header:
    """The first line of a plan."""

    plan: str
    created_at: str
    where: str | None
    to: str
    letters: int
    rate: float | None = None
    keep_headers: Keep = False
    """True: all headers of frameworks go along; or patterns of those that do."""
    witness: bool | Sequence[str] = False
    """Whether a witness is left on every broker, or the brokers on which one is left."""
    any_advice: bool = False
    again: bool = False
    """What was sent to another target goes to this one, too; False in a plan of an older dlq."""
    targets: Mapping[str, int] = field(default_factory=dict)
    """Target -> how many letters go there."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    stripped: Mapping[str, int] = field(default_factory=dict)
    """Header or property that is not sent again -> on how many letters."""
    warnings: Mapping[str, int] = field(default_factory=dict)
    audience: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Target -> who receives what is sent there, where the broker could prove it."""
    told_by_letters: Mapping[str, int] = field(default_factory=dict)
    """Target that nothing but the letters names -> how many do."""
    brokers: Mapping[str, int] = field(default_factory=dict)
    """Broker -> how many letters go back to it."""
    target_brokers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Target -> the brokers on which letters go there; empty in a plan of an older dlq."""
    segments: Mapping[str, str] = field(default_factory=dict)
    """Segment -> digest of its record ids when the plan was made."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Segment -> SHA-256 of the file that its letters were planned from; none of a large one."""
    edits: str | None = None
    """SHA-256 of the file of edits."""
    unwrapped: int = 0
    """How many of them `--unwrap` made."""
    digest: str = ""
    actor: str | None = None
    """Who made it; None in a plan of an older dlq."""
    reason: str | None = None
    owners: Sequence[str] = ()
    """What the owners of its consumers say of a replay."""
    owners_until: str | None = None
    """Until when that holds for each of its letters for which it held (ISO 8601); None: for ever."""
    private: Sequence[str] = ()
    """Targets to which the plan has a way of its own (`SendRequest.private`); none in a plan of an older dlq,
    which sends as that said."""
    superseded: Mapping[str, str] = field(default_factory=dict)
    """Letter that something newer of its key has replaced -> what proves it; some of them."""
    not_looked_at: Mapping[str, int] = field(default_factory=dict)
    """Why nobody could look for something newer -> of how many letters."""
    in_order: InOrder | None = None
    """What lets the next letter of a key go; None: letters go in any order."""
    unkeyed: int = 0
    """How many of a plan in order have no key, and go at any time."""
    check_superseded: bool | None = None
    """Whether something newer was looked for; None: as its sources say, and in a plan of an older dlq."""

    @property
    def made_at(self) -> int:
        """When it was made, in microseconds; long ago where that cannot be read."""
        return from_iso(self.created_at) or 0

    def brokers_of(self, target: str) -> Collection[str]:
        """Return the brokers on which letters may go to this target."""
        return self.target_brokers.get(target, ()) if self.target_brokers else self.brokers.keys()

    def leaves_witness(self, broker: str) -> bool:
        """Return whether a witness is left on this broker."""
        return self.witness if isinstance(self.witness, bool) else broker in self.witness


def name_of(plan: str) -> str:
    """Return the name of the plan's file in the archive: plans/<plan>.jsonl."""
    return f"{_FOLDER}{plan}{_SUFFIX}"


def edits_name(plan: str) -> str:
    """Return the file with the changed bodies and headers."""
    return f"{_FOLDER}{plan}{_EDITS_SUFFIX}"


def ids(store: Store) -> list[str]:
    """Return the ids of all plans, oldest first. A file whose name is no id is no plan."""
    names = (name.removeprefix(_FOLDER) for name in store.list(_FOLDER))
    stems = (n.removesuffix(_SUFFIX) for n in names if n.endswith(_SUFFIX) and not n.endswith(_EDITS_SUFFIX))
    return sorted(filter(_ID.fullmatch, stems))


def find(store: Store, prefix: str) -> str:
    """Return the one plan whose id starts with `prefix`; raises UsageError."""
    return find_by_prefix(prefix, ids(store), f"there is no plan {prefix!r}; `dlq replay status` lists them")


def _bounds_name(plan: str, broker: str) -> str:
    return f"{_FOLDER}{plan}.{broker}{_BOUNDS_SUFFIX}"


def keep_bounds(store: Store, plan: str, broker: str, bounds: Evidence) -> None:
    """Remember where a plan's targets ended before anything was sent to them; what is known already, from an
    earlier apply, stays."""
    known = bounds_of(store, plan, broker)
    if not bounds.keys() <= known.keys():
        document = {"format": FORMAT_VERSION, "bounds": {**bounds, **known}}
        store.put(_bounds_name(plan, broker), json.dumps(document).encode())


def bounds_of(store: Store, plan: str, broker: str) -> Evidence:
    """Return what `keep_bounds` has remembered; nothing where it was never called. Raises ArchiveError,
    FormatTooNew."""
    name = _bounds_name(plan, broker)
    try:
        content = store.get(name)
    except UsageError:
        return NO_EVIDENCE
    found: Evidence = build(
        name, content, lambda document: documents.value(Mapping[str, int], document["bounds"], "bounds")
    )
    return found


def keep_ramp(store: Store, plan: str, steps: Sequence[Mapping[str, Any]], stopped_by: str | None) -> None:
    """Remember how far a ramp of a plan is, for those who follow it from elsewhere."""
    document = {"format": FORMAT_VERSION, "steps": steps, "stopped_by": stopped_by}
    store.put(f"{_FOLDER}{plan}{_RAMP_SUFFIX}", json.dumps(document).encode())


def ramp_of(store: Store, plan: str) -> dict[str, Any]:
    """Return what `keep_ramp` has remembered last: `steps` and `stopped_by`; nothing where no ramp was ever
    begun. Raises ArchiveError, FormatTooNew."""
    name = f"{_FOLDER}{plan}{_RAMP_SUFFIX}"
    try:
        content = store.get(name)
    except UsageError:
        return {}
    return build(name, content, _ramp)


def forget_stop(store: Store, plan: str) -> None:
    """Forget a stop: a plan whose ramp was stopped is applied again, and its steps stay."""
    known = ramp_of(store, plan)
    if known.get("stopped_by"):
        keep_ramp(store, plan, known["steps"], None)


def _ramp(found: dict[str, Any]) -> dict[str, Any]:
    steps = documents.value(tuple[Mapping[str, Any], ...], found["steps"], "steps")
    stopped_by = documents.value(str | None, found["stopped_by"], "stopped_by")
    return {"steps": list(map(_step, steps)), "stopped_by": stopped_by}


def _step(found: Mapping[str, Any]) -> dict[str, Any]:
    kinds = {"sent": int, "came_back": int, "evidence": str}
    return {name: documents.value(kind, found[name], name) for name, kind in kinds.items()}


class Draft:
    """Letters on their way into a plan file, spooled to `spool`."""

    def __init__(self, spool: IO[bytes]) -> None:
        self._spool = spool
        self._digest = sha256()
        self.letters = 0
        self.segments: set[str] = set()

    def add(self, letters: Iterable[Letter]) -> None:
        """Append letters in order."""
        left = iter(letters)
        while some := [*islice(left, _WRITTEN_AT_ONCE)]:
            lines = b"".join(map(_to_line, some))
            self._digest.update(lines)
            self._spool.write(lines)
            self.letters += len(some)
            self.segments.update([letter.segment for letter in some])

    def digest(self, header: Header) -> str:
        """Return what `Header.digest` must be; the plan's own name is no part of it."""
        return digest_of(header, self._digest)

    def commit(self, store: Store, header: Header) -> None:
        """Write the plan, durably, under a name that no other plan has. Raises UsageError where its first
        line would name more than is read of one."""
        first = json.dumps({"format": FORMAT_VERSION, **asdict(header)}).encode() + b"\n"
        if len(first) > LARGEST:
            raise UsageError(
                f"a plan of {header.letters:,} letters to {len(header.targets):,} different targets is too "
                "large: make it of fewer, with --limit or --where"
            )
        with tempfile.TemporaryFile() as whole:
            whole.write(first)
            self._spool.seek(0)
            while piece := self._spool.read(COPY_BYTES):
                whole.write(piece)
            whole.flush()
            with mmap.mmap(whole.fileno(), 0, access=mmap.ACCESS_READ) as mapped, memoryview(mapped) as view:
                store.put(name_of(header.plan), view)


def load(store: Store, plan: str) -> Header:
    """Return the header of a plan. Raises UsageError, FormatTooNew, ArchiveError."""
    with store.open(name_of(plan)) as file:
        line = file.readline(LARGEST)
    return (_small_header if len(line) <= _SMALL else _header)(plan, line)


def load_checked(store: Store, plan: str) -> Header:
    """Return the header of a plan that nobody has changed; raises UsageError when somebody has."""
    return check(store, plan).header


@dataclass(frozen=True)
class Checked:
    """A plan that nobody had changed when it was checked, and perhaps approved."""

    store: Store
    header: Header
    sums: Sequence[bytes]
    """The digest of each MiB of its lines: who reads them again may be given others."""

    def letters(self) -> Iterator[Letter]:
        """Yield its letters in order. Raises UsageError before the first that is not what was checked,
        ArchiveError before one that goes where the header does not say, or says that fewer go: that is what
        people look at, and approve."""
        plan, targets, brokers = self.header.plan, dict(self.header.targets), dict(self.header.brokers)
        for letter in letters(self.store, plan, self.sums):
            target, broker = printed(letter.target), letter.broker
            told = self.header.brokers_of(target)
            if targets.get(target, 0) < 1 or brokers.get(broker, 0) < 1 or broker not in told:
                raise ArchiveError(
                    f"plan {plan} is damaged at line {letter.number + 2}: more letters go to {target} on "
                    f"{broker} than its first line says"
                )
            targets[target] -= 1
            brokers[broker] -= 1
            yield letter


def check(store: Store, plan: str) -> Checked:
    """Check a plan as `load_checked` does, with the letters."""
    with store.open(name_of(plan)) as file:
        header = _header(plan, file.readline(LARGEST))
        running, sums, lines = sha256(), list[bytes](), 0
        for piece in _pieces(file, plan):
            running.update(piece)
            sums.append(sha256(piece).digest())
            lines += piece.count(b"\n")
    if digest_of(header, running) != header.digest:
        raise _changed_error(plan)
    if lines != header.letters:
        raise ArchiveError(f"plan {plan} is damaged: it says {header.letters} letters, and has {lines}")
    return Checked(store, header, sums)


def _changed_error(plan: str) -> UsageError:
    return UsageError(f"plan {plan} was changed after it was made; make a new one with `dlq replay plan`")


def list_makers(store: Store) -> Iterator[Event]:
    """Yield who made which plan and why, of those that can be read and say it."""
    for plan in ids(store):
        with suppress(DlqError):
            header = load(store, plan)
            if header.actor is not None:
                why = header.reason or ""
                yield Event(plan, header.made_at, header.actor, plan, "plan", header.digest, why)


def letters(store: Store, plan: str, sums: Sequence[bytes] | None = None) -> Iterator[Letter]:
    """Yield the letters of a plan in its order, read line by line; with `sums`, those of `Checked`. Raises
    ArchiveError where a line is damaged."""
    with store.open(name_of(plan)) as file:
        file.readline(LARGEST)
        pieces = _pieces(file, plan) if sums is None else _checked_pieces(file, plan, sums)
        for number, line in enumerate(_lines_of(pieces)):
            try:
                letter = _letter(number, line)
                if len(line) > LONGEST_LINE or not (_KEY.fullmatch(letter.key) and can_hold(letter)):
                    raise ValueError("what no dlq writes")
                yield letter
            except (ValueError, TypeError, LookupError, RecursionError) as error:
                raise ArchiveError(f"plan {plan} is damaged at line {number + 2}") from error


def _letter(number: int, line: bytes) -> Letter:
    text = line.decode()
    if plain := _PLAIN_LINE.match(text):
        record_id, key, lap, broker, segment, row, target, content, business_key = plain.groups("")
        to, broker, segment = _target_in(target), intern(broker), intern(segment)
        return Letter(number, record_id, key, int(lap), broker, segment, int(row), to, content, business_key)
    found, _ = _scan(text, 0)
    told = *_fields(found), _target(*found["target"])
    fields = (number, *told, found.get("content", ""), found.get("business_key", ""))
    if tuple(map(type, fields)) != _TYPES or (b"\\" in line and b"\\ud" in line.lower()):
        documents.value(_TYPED, fields)
    return Letter._make(fields)


def names(store: Store, plan: str) -> Iterator[tuple[str, str]]:
    """Yield key and record id of its letters in its order, at a tenth of what `letters` costs; of an id that
    is written with escapes nothing. Raises ArchiveError for a line without a key."""
    with store.open(name_of(plan)) as file:
        file.readline(LARGEST)
        for number, line in enumerate(_lines_of(_pieces(file, plan))):
            found = _NAMES_OF_LINE.search(line)  # within a text JSON would have a backslash before the quote
            if found is None:
                raise ArchiveError(f"plan {plan} is damaged at line {number + 2}")
            yield found[2].decode(), (found[1] or b"").decode()


def can_hold(letter: Letter) -> bool:
    """Return whether a plan can name it, if its key is one of ours: another is not read back."""
    return (
        0 <= letter.lap <= _MOST_LAPS
        and 0 <= letter.row < MOST_ROWS
        and len(letter.record_id) <= _LONGEST_ID
        and letter.record_id.isprintable()
    )


def _pieces(file: IO[bytes], plan: str) -> Iterator[bytes]:
    """Yield the rest of a plan. Raises ArchiveError for a line without an end, which would take all
    memory."""
    length = 0
    while piece := file.read(COPY_BYTES):
        *whole, last = piece.rsplit(b"\n", 1)
        length = len(last) if whole else length + len(last)
        if length > LONGEST_LINE:
            raise ArchiveError(f"plan {plan} is damaged: a line has more than {LONGEST_LINE >> 20} MiB")
        yield piece


def _checked_pieces(file: IO[bytes], plan: str, sums: Sequence[bytes]) -> Iterator[bytes]:
    """Yield the rest of a plan that was looked through already."""
    for known in sums:
        piece = file.read(COPY_BYTES)
        if sha256(piece).digest() != known:
            raise _changed_error(plan)
        yield piece


def _lines_of(pieces: Iterable[bytes]) -> Iterator[bytes]:
    rest = b""
    for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n")
        yield from whole
    if rest:
        yield rest


def _to_line(letter: Letter) -> bytes:
    """Write a line as `json.dumps` does, which costs four times as much."""
    _, record_id, key, lap, broker, segment, row, target, content, business_key = letter
    whose = f'"record_id":{_quoted(record_id)},"key":{_quoted(key)},"lap":{lap},"broker":{_quoted(broker)}'
    where = f'"segment":{_quoted(segment)},"row":{row},"target":{_target_quoted(target)}'
    after = f',"business_key":{_quoted(business_key)}' if business_key else ""
    return f'{{{whose},{where},"content":{_quoted(content)}{after}}}\n'.encode()


_quoted = json.encoder.encode_basestring_ascii


@lru_cache(maxsize=1024)
def _target_quoted(target: Target) -> str:
    return json.dumps(target, separators=(",", ":"))


_LATER = (
    "actor", "reason", "told_by_letters", "target_brokers", "private", "unwrapped", "superseded",
    "not_looked_at", "in_order", "unkeyed", "again", "owners_until", "files", "check_superseded",
)  # fmt: skip
"""What plans of an older dlq do not have."""


def digest_of(header: Header, lines: Any) -> str:
    fields = {name: value for name, value in asdict(header).items() if name not in ("plan", "digest")}
    for name in _LATER:
        if not fields[name]:
            del fields[name]
    whole = lines.copy()
    whole.update(json.dumps(fields, sort_keys=True).encode())
    return str(whole.hexdigest())


def _header(plan: str, line: bytes) -> Header:
    return build(name_of(plan), line, partial(_build_header, plan))


_SMALL = 16 * 1024
_small_header = lru_cache(maxsize=1024)(_header)
"""Who shows a list of plans reads all headers again and again."""


def _build_header(plan: str, document: Mapping[str, Any]) -> Header:
    header = documents.build(Header, document)
    if header.plan != plan:
        raise ValueError(f"it says that it is plan {quote_value(header.plan)}")
    if header.letters < 0 or not (header.rate is None or 0 < header.rate < math.inf):
        raise ValueError("letters must be 0 at least, and a rate more than 0 and finite")
    return header
