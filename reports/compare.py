"""What changed since an earlier analysis: causes; incidents and fingerprints new, gone or growing."""

from contextlib import closing
from typing import TYPE_CHECKING, Any

from dlq.archive import views
from dlq.archive.brief import IS_LETTER
from dlq.archive.user_sql import list_objects, run
from dlq.core.documents import Document

if TYPE_CHECKING:
    import duckdb

    from dlq.archive.storage.store import Store

_TOP = 10
_CAUSES = f"""
    SELECT coalesce(b.cause, n.cause) AS cause, coalesce(b.letters, 0) AS before,
           coalesce(n.letters, 0) AS now, coalesce(n.letters, 0) - coalesce(b.letters, 0) AS change
    FROM (SELECT cause, count(*)::BIGINT AS letters FROM verdicts_before WHERE {IS_LETTER} GROUP BY 1) b
    FULL JOIN (SELECT cause, count(*)::BIGINT AS letters FROM verdicts WHERE {IS_LETTER} GROUP BY 1) n
    ON n.cause IS NOT DISTINCT FROM b.cause
    ORDER BY abs(change) DESC, cause"""
_FINGERPRINTS = f"""
    SELECT coalesce(b.fingerprint, n.fingerprint) AS fingerprint, coalesce(b.letters, 0) AS before,
           coalesce(n.letters, 0) AS now, coalesce(n.example, b.example) AS example,
           coalesce(n.exception_class, b.exception_class) AS exception_class,
           coalesce(n.exception_message, b.exception_message) AS exception_message,
           CASE WHEN b.letters IS NULL THEN 'new' WHEN n.letters IS NULL THEN 'gone'
                WHEN n.letters > b.letters THEN 'more' ELSE 'fewer' END AS change
    FROM (SELECT fingerprint, count(*)::BIGINT AS letters, min(record_id) AS example,
                 any_value(exception_class) AS exception_class,
                 any_value(exception_message) AS exception_message
          FROM verdicts_before WHERE fingerprint IS NOT NULL GROUP BY 1) b
    FULL JOIN (SELECT fingerprint, count(*)::BIGINT AS letters, min(record_id) AS example,
                      any_value(exception_class) AS exception_class,
                      any_value(exception_message) AS exception_message
               FROM verdicts WHERE fingerprint IS NOT NULL GROUP BY 1) n ON n.fingerprint = b.fingerprint
    WHERE n.letters IS DISTINCT FROM b.letters
    ORDER BY b.letters IS NULL DESC, abs(now - before) DESC, fingerprint LIMIT {_TOP}"""
_INCIDENTS = f"""
    SELECT coalesce(b.incident_id, n.incident_id) AS incident_id, coalesce(b.letters, 0) AS before,
           coalesce(n.letters, 0) AS now,
           CASE WHEN b.letters IS NULL THEN 'new' WHEN n.letters IS NULL THEN 'gone'
                WHEN n.letters > b.letters THEN 'more' ELSE 'fewer' END AS change
    FROM (SELECT incident_id, count(*)::BIGINT AS letters FROM verdicts_before
          WHERE incident_id IS NOT NULL GROUP BY 1) b
    FULL JOIN (SELECT incident_id, count(*)::BIGINT AS letters FROM verdicts
               WHERE incident_id IS NOT NULL GROUP BY 1) n ON n.incident_id = b.incident_id
    WHERE n.letters IS DISTINCT FROM b.letters
    ORDER BY b.letters IS NULL DESC, abs(now - before) DESC, 1 DESC LIMIT {_TOP}"""
_CHANGED = """
    SELECT count(*)::BIGINT AS letters FROM verdicts_before b JOIN verdicts n USING (source, record_id)
    WHERE n.cause IS DISTINCT FROM b.cause"""


def gather(connection: "duckdb.DuckDBPyConnection", before: str) -> dict[str, Any]:
    """Return the differences to the analysis `before`, whose verdicts are the view verdicts_before."""
    causes: list[Document] = list_objects(connection, _CAUSES)
    return {
        "analysis": before,
        "before": sum(row["before"] for row in causes),
        "now": sum(row["now"] for row in causes),
        "causes": [row for row in causes if row["change"]],
        "incidents": list_objects(connection, _INCIDENTS),
        "fingerprints": list_objects(connection, _FINGERPRINTS),
        "reclassified": list_objects(connection, _CHANGED)[0]["letters"],
    }


def differing_verdicts(store: "Store", before: str) -> list[str]:
    """Return the records of which the analysis `before` and the latest do not say the same in every
    column."""
    each = ("verdicts", "verdicts_before")
    sql = " UNION ".join(f"(FROM {one} EXCEPT FROM {other})" for one, other in (each, each[::-1]))
    with closing(views.connect(store, before=before)) as connection:
        found = run(connection, f"SELECT DISTINCT record_id FROM ({sql}) ORDER BY 1")
        return [record_id for (record_id,) in found.rows]
