"""Records kept column by column: for a batch of thousands half as dear as one record after another.

They read like a list of records, which come into being when somebody looks at them. The archive does
not: it takes the columns as they are, and what all letters share only once.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import repeat
from typing import Any, overload

from dlq.core.record import COLUMNS, Record


class Same:
    """A column of which every row holds the same value."""

    def __init__(self, value: Any, rows: int) -> None:
        self.value, self._rows = value, rows

    def __len__(self) -> int:
        """How many rows."""
        return self._rows

    def __iter__(self) -> Iterator[Any]:
        """The value, again and again."""
        return repeat(self.value, self._rows)


class Packed:
    """A column as an Arrow array; its values come into being when somebody looks at them."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __len__(self) -> int:
        """How many rows."""
        return len(self.array)

    def __iter__(self) -> Iterator[Any]:
        """The values, as Python has them."""
        return iter(self.array.to_pylist())


class Maps:
    """A column of maps that all have the same names in the same order; the values of a name are a column."""

    def __init__(self, columns: Mapping[str, "Column"], rows: int) -> None:
        self.columns, self._rows = columns, rows

    def __len__(self) -> int:
        """How many rows."""
        return self._rows

    def __iter__(self) -> Iterator[dict[str, str]]:
        """A map of each row's own."""
        rows = zip(*self.columns.values(), strict=True) if self.columns else repeat((), self._rows)
        return (dict(zip(self.columns, row, strict=True)) for row in rows)


Column = Sequence[Any] | Same | Packed | Maps


class Columns(Sequence[Record]):
    """A batch of records, given as one column for each field of `Record`, in that order."""

    def __init__(self, columns: Sequence[Column]) -> None:
        """`columns` are all of the same length."""
        self.columns = columns

    @cached_property
    def _rows(self) -> list[Record]:
        return list(map(Record._make, zip(*self.columns, strict=True)))

    def __len__(self) -> int:
        """How many records."""
        return len(self.columns[0])

    def __iter__(self) -> Iterator[Record]:
        """The records in order."""
        return iter(self._rows)

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> list[Record]: ...
    def __getitem__(self, index: int | slice) -> Record | list[Record]:
        """One record, or some."""
        return self._rows[index]


def column(records: Sequence[Record], name: str) -> list[Any]:
    """One field of all the records; those of `Columns` do not come into being for it."""
    at = COLUMNS.index(name)
    return list(records.columns[at]) if isinstance(records, Columns) else [record[at] for record in records]


def same(values: Sequence[Any]) -> Column:
    """The values, once where they are all equal."""
    return Same(values[0], len(values)) if values.count(values[0]) == len(values) else values


def each(function: Callable[[Any], Any], values: Column) -> Column:
    """What `function` makes of each value; it is called once where they are all the same."""
    return Same(function(values.value), len(values)) if isinstance(values, Same) else [*map(function, values)]
