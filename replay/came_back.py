"""Letters of a plan that died again: the archive holds them with the id of their replay."""

from contextlib import closing
from typing import TYPE_CHECKING

from dlq.archive import views
from dlq.archive.store import Store
from dlq.core.settings import Settings
from dlq.replay import ledger as ledgers
from dlq.replay.letters import REPLAY_ID

if TYPE_CHECKING:
    import duckdb

_BACK = f"""
    FROM replays p
    JOIN (
        SELECT *, coalesce(headers['{REPLAY_ID}'], properties['{REPLAY_ID}']) AS replay_id FROM records
    ) r ON r.replay_id = p.key
    WHERE p.plan = ?"""
_COUNT = f"SELECT count(DISTINCT p.key) {_BACK}"
_NEWEST = f"SELECT r.record_id {_BACK} ORDER BY r.captured_at DESC, r.record_id LIMIT ?"


def came_back(store: Store, settings: Settings, plan: str) -> int:
    """How many replays of `plan` the archive holds as dead letters again."""
    with closing(views.connect(store, ledgers.as_arrow(settings.ledger, store))) as connection:
        row = connection.execute(_COUNT, [plan]).fetchone()
    return int(row[0]) if row else 0


def newest(connection: "duckdb.DuckDBPyConnection", plan: str, most: int) -> list[str]:
    """The ids under which the last of them lie in the archive."""
    return [record_id for (record_id,) in connection.execute(_NEWEST, [plan, most]).fetchall()]
