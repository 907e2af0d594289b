"""Step 1 of an analysis: each letter by itself, in this process or in Spark's Python workers.

A share of the segments is read, its letters are classified, and one file of classified letters is written
beside the analysis. The files are kept: a later analysis under the same rules and facts classifies only what
is new.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from hashlib import sha256
from importlib.resources import files as files_in
from typing import IO, Any, NamedTuple, Protocol
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import dlq.analyzers
import dlq.archive
import dlq.core
from dlq.analyzers.groups.advice import advise_alone
from dlq.analyzers.groups.classified import Sharing
from dlq.analyzers.groups.incidents import SLOT
from dlq.analyzers.groups.relations import keys_of
from dlq.analyzers.letters import Group, read
from dlq.analyzers.rules import BROKEN, Facts, Letter, Verdict, classify_letters
from dlq.analyzers.rules.consumer_identity import name_subscription
from dlq.analyzers.rules.frameworks import find_coordinator
from dlq.analyzers.rules.rocketmq import Stored, read_stored, role, unique_key
from dlq.archive.analyses import BESIDE, VERDICTS
from dlq.archive.manifests import Manifest
from dlq.archive.schema import SEGMENT
from dlq.core.brokers import plugins
from dlq.core.runtime.interpreter import rare_garbage_collection

LARGEST_SHARE = 100_000
"""Letters of a task, as far as segments can be told apart."""
ROW_GROUP = 20_000

_S = pa.string()
_STORED = pa.struct(
    [
        ("offset", pa.int64()),
        ("position", pa.int64()),
        ("prepared", pa.int64()),
        ("born_host", _S),
        ("flags", pa.int32()),
        ("checks", pa.int32()),
        ("immunity", pa.int64()),
        ("producer_group", _S),
        ("origin_id", _S),
        ("sent_back_by_client", pa.bool_()),
        ("replayed", pa.bool_()),
        ("keys", _S),
        ("tag", _S),
        ("ended_offsets", _S),
    ]
)
_BY_ITSELF = pa.schema([VERDICTS.field(name) for name in Verdict._fields])
_ADVICE = pa.schema([VERDICTS.field("advice"), VERDICTS.field("advice_reason")])
_FURTHER = pa.schema(
    [("coordinator", _S), ("work", _S), ("role", _S), ("unique_key", _S), ("rocket", _STORED),
     ("subscription", _S), ("said", _S)]
)  # fmt: skip
_KEYS = pa.field("keys", pa.list_(pa.int64()))
"""What the comparison between letters wants to know beside. `said`: the text of the exception, for the
user's rules."""
_COPIED = (
    "record_id", "source", "broker", "broker_kind", "broker_node", "dead_letter_queue", "message_id", "key",
    "body_sha256", "body_size", "published_at", "dead_at", "captured_at",
)  # fmt: skip
_STEM = BESIDE.field("stem")
CLASSIFIED = pa.schema(
    [*(SEGMENT.field(name) for name in _COPIED), *_BY_ITSELF, *_ADVICE, *_FURTHER, _KEYS, _STEM]
)
"""A letter after step 1."""


class _Files(Protocol):
    """How files of the archive are opened where letters are classified."""

    def parquet(self, name: str) -> Any:
        """`name` as pyarrow reads it: a path, or a stream."""

    def write(self, name: str) -> AbstractContextManager[IO[bytes] | Any]:
        """Open a stream into `name`, which is durable at the end."""


class Terms(NamedTuple):
    """What a verdict on one letter depends on, beside the code."""

    facts: Facts
    max_laps: int
    with_text: bool
    """Whether users' rules may ask for the exception's text."""

    def key(self) -> str:
        """Changes when any verdict on a single letter could: with these terms, or with the code of the rooms
        that a rule can import."""
        rules = {name: kind.rules for name, kind in plugins().items()}
        digest = sha256(json.dumps([asdict(self.facts), *self[1:], rules], sort_keys=True).encode())
        for room in (dlq.analyzers, dlq.archive, dlq.core):
            for source in sorted(_sources(files_in(room)), key=str):
                digest.update(source.read_bytes())
        return digest.hexdigest()[:16]


def _sources(folder: Any) -> Iterator[Any]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _sources(entry)
        elif entry.name.endswith(".py"):
            yield entry


class Part(NamedTuple):
    """A file of classified letters, and what is in it."""

    file: str
    stems: Sequence[str]
    """The manifests of the segments that it was made of."""
    kinds: Sequence[str]
    """Broker kinds."""
    transactions: int
    """Records of RocketMQ transactions."""
    suppressed: int
    """Suppressed duplicates."""
    broken: int
    """Letters that made a rule raise."""
    first_slot: int | None
    """Of the times at which they died or were published (`groups.incidents`); None: no letter has one."""
    last_slot: int | None
    damage: str = ""
    """Why there is no such file: which segment cannot be read, and why."""


PART = pa.schema(
    [
        ("file", _S),
        ("stems", pa.list_(_S)),
        ("kinds", pa.list_(_S)),
        ("transactions", pa.int64()),
        ("suppressed", pa.int64()),
        ("broken", pa.int64()),
        ("first_slot", pa.int64()),
        ("last_slot", pa.int64()),
        ("damage", _S),
    ]
)


class Share(NamedTuple):
    """A segment that a task classifies."""

    stem: str
    segment: str
    rows: int
    """As its manifest says: a segment that has more is damaged."""


def shares(committed: Sequence[Manifest], parallel: int) -> list[list[Share]]:
    """Return the segments of each task: about the same number of letters, at least a task for each core."""
    most = min(LARGEST_SHARE, max(1, sum(m.rows for m in committed) // parallel))
    found: list[list[Share]] = []
    filled = most
    for manifest in sorted(committed, key=lambda m: m.rows, reverse=True):
        if filled >= most:
            found.append([])
            filled = 0
        found[-1].append(Share(manifest.stem, manifest.segment, manifest.rows))
        filled += manifest.rows
    return found


class _Damaged(Exception):
    """A segment cannot be read."""


def classify_share(files: _Files, terms: Terms, share: Sequence[Share], folder: str) -> Part:
    """Classify a share. Damage is returned: raised, it would reach the driver as a Java error, after Spark
    had tried again."""
    try:
        return _classify_share(files, terms, share, folder)
    except _Damaged as error:
        return Part("", (), (), 0, 0, 0, None, None, str(error))


def _groups(files: _Files, share: Share) -> Iterator[Group]:
    try:
        yield from read(files.parquet(share.segment), share.rows)
    except (OSError, pa.ArrowException) as error:
        raise _Damaged(f"{share.segment} in the archive cannot be read: {error}") from error


def _classify_share(files: _Files, terms: Terms, share: Sequence[Share], folder: str) -> Part:
    name = f"{folder}/{uuid4().hex}.parquet"
    tallies = [_NOTHING]
    classify = classify_letters(terms.facts)
    groups = ((group, one.stem) for one in share for group in _groups(files, one))
    with rare_garbage_collection(), files.write(name) as stream, _writer(stream) as writer:
        for table in _coalesce(_classify_group(*group, terms, classify) for group in groups):
            writer.write_table(table)
            tallies.append(_tally(table))
    kinds, transactions, suppressed, broken, times = zip(*tallies, strict=True)
    slots = [at // (SLOT * 1_000_000) for pair in times for at in pair if at is not None]
    return Part(
        name,
        [one.stem for one in share],
        sorted(set().union(*kinds)),
        sum(transactions),
        sum(suppressed),
        sum(broken),
        min(slots, default=None),
        max(slots, default=None),
    )


_NOTHING: tuple[frozenset[str], int, int, int, tuple[int | None, ...]] = (frozenset(), 0, 0, 0, ())


def _tally(table: pa.Table) -> tuple[frozenset[str], int, int, int, tuple[int | None, ...]]:
    """Broker kinds, records of transactions, suppressed duplicates, broken rules, first and last time."""
    at = pc.coalesce(table["dead_at"], table["published_at"]).cast(pa.int64())
    return (
        frozenset(pc.unique(table["broker_kind"]).to_pylist()),
        len(table) - table["role"].null_count,
        _count(table, "cause", "suppressed_duplicate"),
        _count(table, "rule", BROKEN),
        tuple(pc.min_max(at).as_py().values()),
    )


def _writer(stream: Any) -> pq.ParquetWriter:
    """Open a writer without dictionaries: they make neither smaller nor quicker what zstd packs, and whoever
    opens the file has to look through them for what it unpacks to (`archive.parquet`)."""
    return pq.ParquetWriter(
        stream,
        CLASSIFIED,
        compression="zstd",
        compression_level=1,
        write_statistics=False,
        use_dictionary=False,
    )


def _count(table: pa.Table, column: str, value: str) -> int:
    return int(pc.sum(pc.equal(table[column], value)).as_py() or 0)


def _coalesce(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Put small tables together, so that row groups are worth reading."""
    waiting: list[pa.Table] = []
    for table in tables:
        waiting.append(table)
        if sum(map(len, waiting)) >= ROW_GROUP:
            yield pa.concat_tables(waiting)
            waiting = []
    if waiting:
        yield pa.concat_tables(waiting)


_Classify = Callable[[Letter], tuple[Verdict, str | None]]


def _classify_group(group: Group, stem: str, terms: Terms, classify: _Classify) -> pa.Table:
    found = [classify(letter) for letter in group.letters]
    pairs = list(zip(group.letters, found, strict=True))
    by_itself = [verdict for verdict, _ in found]
    advice = [advise_alone(letter, verdict, terms.max_laps) for letter, (verdict, _) in pairs]
    further = [_further(letter, text if terms.with_text else None) for letter, (_, text) in pairs]
    copied = [group.table[name].cast(SEGMENT.field(name).type) for name in _COPIED]
    columns = [*_columns(by_itself, _BY_ITSELF), *_columns(advice, _ADVICE), *_columns(further, _FURTHER)]
    keys = [_keys(*one) for one in zip(group.letters, by_itself, further, strict=True)]
    beside = [pa.array(keys, _KEYS.type), pa.repeat(stem, len(pairs))]
    return pa.Table.from_arrays([*copied, *columns, *beside], schema=CLASSIFIED)


def _columns(found: Sequence[tuple[Any, ...]], schema: pa.Schema) -> list[pa.Array]:
    columns: Iterable[Sequence[Any]] = zip(*found, strict=True) if found else [()] * len(schema)
    return [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]


_Further = tuple[str | None, str | None, str | None, str | None, Stored | None, str | None, str | None]


def _further(letter: Letter, text: str | None) -> _Further:
    coordinator, work = find_coordinator(letter) or (None, None)
    facts = read_stored(letter)
    if facts is None:
        return coordinator, work, None, None, None, name_subscription(letter), text
    part = role(letter, facts)
    return coordinator, work, part, unique_key(letter, facts) if part else None, facts, None, text


def _keys(letter: Letter, verdict: Verdict, further: _Further) -> list[int]:
    _, work, part, _, facts, subscription, _ = further
    return keys_of(
        Sharing(
            letter.source,
            letter.broker,
            letter.broker_kind,
            letter.dead_letter_queue,
            letter.message_id,
            letter.key,
            letter.body_sha256,
            letter.body_size,
            verdict.origin,
            verdict.laps,
            verdict.connection_id,
            work,
            part,
            facts,
            subscription,
        )
    )
