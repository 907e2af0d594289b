"""Of which version of their application letters died, where a failure was resolved in a version."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from dlq.archive import brief
from dlq.archive.user_sql import run
from dlq.core.failures import Deaths, Event, find_fix
from dlq.core.settings import Settings
from dlq.core.text import sql_literal
from dlq.core.values.json_paths import parse_path
from dlq.core.values.versions import LONGEST

if TYPE_CHECKING:
    import duckdb

_SQL = f"""
    SELECT fingerprint, left({{version}}, {LONGEST + 1}) AS version, max(died)
    FROM (SELECT source, record_id, fingerprint, {brief.DIED} AS died FROM _brief
          WHERE replay_state IS DISTINCT FROM 'dismissed' AND {brief.IS_LETTER})
    JOIN (SELECT unnest($1::VARCHAR[]) AS fingerprint, unnest($2::BIGINT[]) AS since) USING (fingerprint)
    LEFT JOIN _stored USING (source, record_id)
    WHERE died > since GROUP BY 1, 2"""


def add_versions(
    connection: "duckdb.DuckDBPyConnection",
    settings: Settings,
    said_of: Mapping[str, Sequence[Event]],
    deaths: Mapping[str, Deaths],
) -> Mapping[str, Deaths]:
    """Return deaths by fingerprint, with `by_version` where a failure was resolved in a version and letters
    of it died since: the letters of no other failure are read."""
    places = [(one.name, _place(one.version)) for one in settings.sources.values() if one.version]
    fixes = [(one, fix, died) for one, (_, died, _) in deaths.items() if (fix := find_fix(said_of[one]))]
    since = {one: fix.at for one, fix, died in fixes if (died or 0) > fix.at}
    if not places or not since:
        return deaths
    cases = " ".join(f"WHEN {sql_literal(source)} THEN {place}" for source, place in places)
    sql = _SQL.format(version=f"CASE source {cases} END")
    found: defaultdict[str, dict[str | None, int]] = defaultdict(dict)
    for fingerprint, version, died in run(connection, sql, [[*since], [*since.values()]]).rows:
        found[fingerprint][version] = died
    return {**deaths, **{one: deaths[one]._replace(by_version=found[one]) for one in since}}


def _place(spec: str) -> str:
    """Return where a message says what `dlq.core.keys` reads by this, in SQL."""
    kind, _, name = spec.partition(":")
    return _PLACES[kind](name)


def _in_json(path: str) -> str:
    steps = (str(one).replace("~", "~0").replace("/", "~1") for one in parse_path(path))
    pointer = "".join(f"/{one}" for one in steps)
    return f"json_extract_string(try_cast(try(decode(body)) AS JSON), {sql_literal(pointer)})"


_PLACES: Mapping[str, Callable[[str], str]] = {
    "message_id": lambda _: "message_id",
    "header": lambda name: f"headers[{sql_literal(name)}]",
    "property": lambda name: f"properties[{sql_literal(name)}]",
    "json": _in_json,
}
