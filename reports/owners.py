"""What the owners of consumers say of the letters that are still open (`[consumers.NAME]`)."""

from typing import TYPE_CHECKING

from dlq.archive.user_sql import run
from dlq.core.documents import Document
from dlq.core.settings import Settings
from dlq.replay.plans.owners import TIMES, Owners, describe

if TYPE_CHECKING:
    import duckdb

_OPEN = f"""
    SELECT count(*),
           count(*) FILTER ($1 IS NOT NULL AND coalesce(epoch_us(least({", ".join(TIMES)})) < $1, true))
    FROM letters
    WHERE source IN (SELECT unnest($2::VARCHAR[])) AND ($3 IS NULL OR fingerprint = $3)
          AND coalesce(replay_state, '') NOT IN ('confirmed', 'dismissed')"""
"""Letters of some sources that are still open, and how many of them are older than a time."""


def gather(
    connection: "duckdb.DuckDBPyConnection", settings: Settings, failure: str | None = None
) -> list[Document]:
    """Return a row for each consumer with letters (of that fingerprint): its name, and what its owner `says`
    in a sentence."""
    if not settings.consumers:
        return []
    owners = Owners(settings)
    sources = [source for (source,) in run(connection, "SELECT DISTINCT source FROM letters").rows]
    found = []
    for consumer in settings.consumers.values():
        mine = [source for source in sources if consumer in owners.find(source)]
        asked = [owners.oldest_held(consumer), mine, failure]
        letters, older = next(run(connection, _OPEN, asked).rows)
        if letters:
            found.append({"consumer": consumer.name, "says": describe(consumer, letters, older)})
    return found
