"""What the letters of a failure have in common: a version, a host, a header's values, each with its share."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from dlq.archive import brief, views
from dlq.archive.user_sql import run
from dlq.core.headers.failure_headers import strip_failure

if TYPE_CHECKING:
    import duckdb

_SEGMENTS, _LOOKED_AT = 8, 500
"""Those with most of the letters, as each is a file to read; and letters of these."""
_COLUMNS = {
    "dead_letter_queue": "queue", "broker_version": "broker", "broker_node": "node",
    "consumer_id": "consumer",
    "producer_id": "producer", "content_type": "content type", "attempts": "attempts",
}  # fmt: skip
_LEAST_SHARE = 0.2
"""Of the most frequent value: what is rarer everywhere is no trait."""
_LONGEST = 80
_MOST_VALUES, _MOST = 3, 12
_IDS = f"""
    SELECT segment_file, list(record_id)[:{_LOOKED_AT}] FROM _of_failure
    GROUP BY 1 ORDER BY count(*) DESC, 1 LIMIT {_SEGMENTS}"""
_SQL = f"""
    SELECT {", ".join(f"{'o' if name in brief.OF_FAILURE else 'r'}.{name}" for name in _COLUMNS)}, r.headers
    FROM (FROM _stored WHERE {{}}) r JOIN _of_failure o USING (segment_file, record_id)
    ORDER BY record_id LIMIT {_LOOKED_AT}"""


class Trait(NamedTuple):
    """What a column or a header says in many of the letters: values with their share, the most frequent
    first."""

    name: str
    is_header: bool
    values: Sequence[tuple[str, float]]


def gather(connection: "duckdb.DuckDBPyConnection") -> list[Trait]:
    """Return what is the same in most letters of the failure that is held (`brief.of_failure`) first. What it
    left on them itself tells nothing more."""
    page = {file: {*some} for file, some in run(connection, _IDS).rows}
    rows = [*run(connection, _SQL.format(views.on_page(page))).rows]
    counted: dict[tuple[str, bool], Counter[str]] = defaultdict(Counter)
    for *values, headers in rows:
        for name, is_header, value in _fields(values, dict(headers or {})):
            counted[name, is_header][value] += 1
    found = [_trait(*named, values, len(rows)) for named, values in counted.items()]
    often = [one for one in found if one.values[0][1] >= _LEAST_SHARE and len(rows) > 1]
    return sorted(often, key=lambda one: -one.values[0][1])[:_MOST]


def _fields(values: Sequence[Any], headers: Mapping[str, str]) -> Iterator[tuple[str, bool, str]]:
    for name, value in zip(_COLUMNS.values(), values, strict=True):
        if value is not None:
            yield name, False, str(value)
    for name, text in strip_failure(headers)[0].items():
        if text and len(text) <= _LONGEST:
            yield name, True, text


def _trait(name: str, is_header: bool, values: Counter[str], letters: int) -> Trait:
    return Trait(name, is_header, [(value, n / letters) for value, n in values.most_common(_MOST_VALUES)])
