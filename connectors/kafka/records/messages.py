"""From letters as the client library gave them to records, column by column."""

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256

from dlq.connectors.base import ReadRequest
from dlq.connectors.jsonl.values import count_of, from_millis, integer
from dlq.connectors.kafka.records.columns import Letters, Original
from dlq.connectors.kafka.records.header_texts import column_of_texts, text_of, texts_column, texts_of
from dlq.connectors.kafka.records.raw import (
    HAS_ORIGINAL,
    LOG_APPEND_TIME,
    VALUE_WAS_NULL,
    encode_all,
    with_original,
)
from dlq.connectors.records import common_columns, content_columns, key_column
from dlq.core.clock import datable
from dlq.core.columns import (
    Column,
    Columns,
    Constant,
    Maps,
    choose,
    collapse,
    map_column,
    map_columns,
    map_distinct,
    values_of,
)
from dlq.core.headers.kafka_headers import SHARE_GROUP, TELL_THE_PLACE, Origin, OriginHeaders, died_at
from dlq.core.identity import frame, placed_ids
from dlq.core.record import Record

UNRESOLVED = 8
"""`flags` of a record, beside those of its block: what a share group's dead letter points to was not had."""
_CREATE_TIME, _APPEND_TIME = "CreateTime", "LogAppendTime"
_DELIVERIES = f"{SHARE_GROUP}delivery.count"

_Maker = Callable[[Letters, Mapping[int, Original]], Sequence[Record]]


def record_maker(request: ReadRequest, cluster: str, topic_ids: Mapping[str, str]) -> _Maker:
    """Return the function that makes records of letters, for one pull.

    It takes one or more letters, and by their number what those that are pointers led to.
    """
    source = request.source.name.encode()
    starts = {
        topic: frame(b"\0".join((source, cluster.encode(), topic_id.encode(), topic.encode())))
        for topic, topic_id in topic_ids.items()
    }

    def make(letters: Letters, originals: Mapping[int, Original]) -> Sequence[Record]:
        rows = len(letters.offsets)
        shown = letters.with_originals(originals)
        blocks, digests = _blocks(letters), _digests(letters.values)
        ids = placed_ids(
            map_column(starts.__getitem__, letters.topics),
            map(b"%d:%d".__mod__, zip(letters.partitions, letters.offsets, strict=True)),
            blocks,
            digests,
        )
        if shown is not letters:
            blocks, digests = _with_originals(blocks, originals), _digests(shown.values)
        texts = _texts(letters, shown)
        deaths = _deaths(texts, letters.topics)
        offsets = [*map(str, letters.offsets)]
        keys = _keys(shown.keys)
        properties = _properties(letters, offsets, keys, originals)
        bodies = [value or b"" for value in shown.values]
        message_ids = _message_ids(texts, deaths)
        published, dead = _times(letters, deaths, texts, originals)
        return Columns.build(
            rows,
            record_id=ids,
            message_id=message_ids,
            keys=map_column(lambda key: (key,) if key else (), keys),
            key=key_column(request, message_ids, texts, properties, bodies),
            published_at=published,
            dead_at=dead,
            raw_properties=blocks,
            properties=properties,
            flags=_flags(letters, shown, originals),
            **_of_place(letters, offsets),
            **_of_headers(texts, deaths),
            **content_columns(bodies, digests),
            **common_columns(rows, request, "kafka", node=cluster),
        )

    return make


def _of_place(letters: Letters, offsets: Sequence[str]) -> dict[str, Column]:
    """Return where each lies."""
    return {
        "dead_letter_queue": letters.topics,
        "queue_id": letters.partitions,
        "offset": letters.offsets,
        "physical_id": [*map("{}-{}@{}".format, letters.topics, letters.partitions, offsets)],
    }


def _of_headers(texts: Column, deaths: Column) -> dict[str, Column]:
    """Return what headers tell, and where each died by them."""
    types = values_of(texts, "content-type"), values_of(texts, "contentType")
    return {
        "origin_kind": map_column(lambda died: "topic" if died else None, deaths),
        "origin": map_column(lambda died: died and died.topic, deaths),
        "origin_group": map_column(lambda died: died and died.group, deaths),
        "attempts": map_distinct(count_of, values_of(texts, _DELIVERIES)),
        "headers": texts,
        "content_type": map_columns(_first, *types),
    }


def _message_ids(texts: Column, deaths: Column) -> Column:
    return map_columns(
        _coordinates,
        map_column(lambda died: died and died.topic, deaths),
        _origin_texts(texts, deaths, lambda names: names.partition),
        _origin_texts(texts, deaths, lambda names: names.offset),
    )


def coordinates(died: Origin | None) -> str | None:
    """Return the name of the message that died; two groups' dead letters of it have the same."""
    return died and _coordinates(died.topic, died.partition, died.offset)


def _coordinates(topic: str | None, partition: str | None, offset: str | None) -> str | None:
    is_told = topic is not None and _is_number(partition, 32) and _is_number(offset, 64)
    return f"{topic}-{partition}@{offset}" if is_told else None


def _is_number(text: str | None, bits: int) -> bool:
    """Few digits, as they mostly are, need not become a number first: it is done for each letter."""
    is_plain = text is not None and len(text) < 10 and text.isdecimal()
    return is_plain or integer(text, bits) is not None


def _first(one: str | None, other: str | None) -> str | None:
    return one or other or None


def _digests(values: Sequence[bytes | None]) -> list[bytes]:
    return [sha256(value or b"").digest() for value in values]


def _block_flags(is_null: bool, is_log_append: bool) -> int:
    return (VALUE_WAS_NULL if is_null else 0) | (LOG_APPEND_TIME if is_log_append else 0)


def _are_null(values: Sequence[bytes | None]) -> Column:
    return collapse([value is None for value in values])


def _blocks(letters: Letters) -> list[bytes]:
    flags = map_columns(_block_flags, _are_null(letters.values), letters.is_log_append)
    return encode_all(flags, letters.timestamps, letters.keys, letters.headers, letters.same_names)


def _with_originals(blocks: Sequence[bytes], originals: Mapping[int, Original]) -> list[bytes]:
    found = [*blocks]
    for number, original in originals.items():
        if original.raw is not None:
            found[number] = with_original(found[number], original.raw)
    return found


def _flags(letters: Letters, shown: Letters, originals: Mapping[int, Original]) -> Column:
    flags = map_columns(_block_flags, _are_null(shown.values), letters.is_log_append)
    if not originals:
        return flags
    found: list[int] = [*flags]
    for number, original in originals.items():
        if original.raw is not None:
            found[number] |= HAS_ORIGINAL
        elif letters.values[number] is None and letters.keys[number] is None:
            found[number] |= UNRESOLVED
    return found


def _texts(letters: Letters, shown: Letters) -> Column:
    """Return the texts of shown headers; of a resolved pointer those of the original, too."""
    if shown is letters:
        return texts_column(letters.headers, letters.same_names)
    both = zip(shown.headers, letters.headers, strict=True)
    return [{**texts_of(original), **texts_of(own)} for original, own in both]


def _keys(keys: list[bytes | None]) -> Column:
    if None not in keys:
        return collapse([*column_of_texts(keys)])
    return collapse([None if key is None else text_of(key) for key in keys])


def _properties(
    letters: Letters, offsets: Sequence[str], keys: Column, originals: Mapping[int, Original]
) -> Column:
    """Return the fixed fields of the dead letters by their Java names; `pointer` says what became of one."""
    rows = len(offsets)
    columns: dict[str, Column] = {
        "topic": letters.topics,
        "partition": map_column(str, letters.partitions),
        "offset": offsets,
        "timestamp": [*map(str, letters.timestamps)],
        "timestampType": map_column(
            lambda is_append: _APPEND_TIME if is_append else _CREATE_TIME, letters.is_log_append
        ),
        "key": keys,
        "pointer": collapse([_became(originals.get(number)) for number in range(rows)]),
    }
    told = {name: column for name, column in columns.items() if _is_told(column)}
    if not any(None in column for column in told.values()):
        return Maps(told, rows)
    by_row = zip(*told.values(), strict=True)
    return [{name: text for name, text in zip(told, row, strict=True) if text is not None} for row in by_row]


def _is_told(texts: Column) -> bool:
    if isinstance(texts, Constant):
        return texts.value is not None
    return any(text is not None for text in texts)


def _became(original: Original | None) -> str | None:
    if original is None:
        return None
    return "resolved" if original.raw is not None else original.why_not


def _deaths(texts: Column, topics: Column) -> Column:
    """Return where each died (`Origin`, None), but for the partition and offset there."""
    if isinstance(texts, Maps):
        texts = texts.with_names(TELL_THE_PLACE)
    return map_columns(died_at, texts, topics)


def _origin_texts(texts: Column, deaths: Column, name_of: Callable[[OriginHeaders], str]) -> Column:
    """Return what the framework that tells of a letter's death says under the name that it has for it."""
    if isinstance(deaths, Constant):
        return deaths if deaths.value is None else values_of(texts, name_of(deaths.value.told_by))
    rows = zip(deaths, texts, strict=True)
    return [died and texts_of_one.get(name_of(died.told_by)) for died, texts_of_one in rows]


def _times(
    letters: Letters, deaths: Column, texts: Column, originals: Mapping[int, Original]
) -> tuple[Column, Column]:
    """Return when each letter was published, and when it died; what is not told is not known."""
    stored = [_micros(time) for time in letters.timestamps]
    told = map_distinct(from_millis, _origin_texts(texts, deaths, lambda names: names.timestamp))
    if originals:
        told = [*told]
        for number, original in originals.items():
            if original.raw is not None and told[number] is None:
                told[number] = _micros(original.raw.timestamp)
    is_own = map_columns(_is_own_time, deaths, letters.is_log_append)
    return choose(is_own, stored, told), choose(is_own, Constant(None, len(stored)), stored)


def _micros(millis: int) -> int | None:
    return datable(millis * 1000) if millis >= 0 else None


def _is_own_time(died: Origin | None, is_log_append: bool) -> bool:
    """Return whether the record has the time of the one that died."""
    return died is not None and died.told_by.keeps_time and not is_log_append
