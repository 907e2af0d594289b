"""Parquet files of an archive, which others may have written: bounded before anything of them is unpacked.

A file of a few kilobytes can unpack to any size: by compression, by a dictionary whose entry is named a
million times, by lists of nothing. The footer says how much there is of each, and is itself bounded before it
is read.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from dlq.core.errors import ArchiveError

_LARGEST = 4 * 2**30
"""Bytes that a file may unpack to: a letter of 1 GiB, and what is archived with it, fits."""
MOST_ROWS = 10_000_000
_LARGEST_FOOTER = 64 * 2**20
_END = 8
"""Bytes: the length of the footer, and four letters."""
_ENTRY = 16
"""Bytes that a value costs at least, be it of a list that has none."""


def open_parquet(
    source: "pa.NativeFile | IO[bytes]",
    most_rows: int = MOST_ROWS,
    most: int = _LARGEST,
    columns: Collection[str] | None = None,
    **options: Any,
) -> pq.ParquetFile:
    """Return a Parquet file of which `columns` (None: all) do not unpack to more than `most` bytes, with
    `most_rows` rows at most.

    `options` are those of `pyarrow.parquet.ParquetFile`. Raises OSError, pa.ArrowException.
    """
    _check_footer(source)
    file = pq.ParquetFile(source, **options)
    if file.metadata.num_rows > most_rows:
        raise pa.ArrowInvalid(f"it has {file.metadata.num_rows} rows, and may have {most_rows} at most")
    chunks = _chunks(file.metadata, columns)
    if _most_bytes(chunks) > most and _bytes(source, file, chunks, most) > most:
        raise pa.ArrowInvalid(f"it unpacks to more than {most >> 20} MiB")
    return file


@contextmanager
def readable(name: str) -> Iterator[None]:
    """Turn what goes wrong in reading this Parquet file of the archive into an ArchiveError that names it."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        reason = (getattr(error, "strerror", None) or str(error)).partition("\n")[0]
        way = "dlq analyze makes it anew" if name.startswith("analyses/") else "dlq verify shows the damage"
        raise ArchiveError(f"cannot read {name} in the archive: {reason}; {way}") from error


def native(file: IO[bytes]) -> pa.NativeFile:
    """Return an open file as Arrow reads it without Python's help, however it is named by now."""
    return pa.OSFile(f"/proc/self/fd/{file.fileno()}")


def _check_footer(source: "pa.NativeFile | IO[bytes]") -> None:
    size = source.seek(0, 2)
    source.seek(max(0, size - _END))
    length = int.from_bytes(source.read(_END)[:4], "little")
    source.seek(0)
    if length > _LARGEST_FOOTER:
        raise pa.ArrowInvalid(f"its footer is larger than {_LARGEST_FOOTER >> 20} MiB")


def _chunks(metadata: pq.FileMetaData, columns: Collection[str] | None) -> Sequence[Any]:
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    every = (group.column(place) for group in groups for place in range(group.num_columns))
    return [one for one in every if columns is None or one.path_in_schema.partition(".")[0] in columns]


def _is_packed(chunk: Any) -> bool:
    """Return whether values are entries of a dictionary."""
    return bool(chunk.has_dictionary_page) or any("DICTIONARY" in name for name in chunk.encodings)


def _most_bytes(chunks: Iterable[Any]) -> int:
    """Return what they unpack to at most: of a dictionary, every value could be the whole of it."""
    named = ((chunk, chunk.num_values if _is_packed(chunk) else 1) for chunk in chunks)
    return sum(
        int(chunk.num_values * _ENTRY + chunk.total_uncompressed_size * times) for chunk, times in named
    )


def _bytes(
    source: "pa.NativeFile | IO[bytes]", file: pq.ParquetFile, chunks: Sequence[Any], most: int
) -> int:
    """Return what they unpack to: an entry of a dictionary counts as often as it is named."""
    total = sum(int(chunk.num_values * _ENTRY + chunk.total_uncompressed_size) for chunk in chunks)
    packed = sorted({chunk.path_in_schema for chunk in chunks if _is_packed(chunk)})
    if total > most:
        return total
    source.seek(0)
    as_named = pq.ParquetFile(source, read_dictionary=packed)
    # Arrow cannot read nested columns so where a batch is of two row groups.
    for number in range(file.num_row_groups):
        for batch in as_named.iter_batches(row_groups=[number], columns=packed):
            total += sum(map(_count_bytes, batch.columns))
    return total


def _count_bytes(column: Any) -> int:
    """Return the bytes of all entries that a column names, also within lists and structs."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        if not pa.types.is_binary(kind.value_type) and not pa.types.is_string(kind.value_type):
            return int(column.nbytes)
        import pyarrow.compute as pc  # as long as all of the rest takes to import, and needed for a few files

        lengths = pc.binary_length(column.dictionary).take(column.indices)
        return int(pc.sum(lengths).as_py() or 0)
    if pa.types.is_map(kind):
        return _count_bytes(column.keys) + _count_bytes(column.items)
    if pa.types.is_list(kind):
        return _count_bytes(column.values)
    if pa.types.is_struct(kind):
        return sum(_count_bytes(column.field(place)) for place in range(kind.num_fields))
    return int(column.nbytes)
