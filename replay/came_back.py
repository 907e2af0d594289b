"""Letters of a plan that died again: the archive holds them with the id of their replay."""

from collections import Counter
from collections.abc import Collection, Iterator
from collections.abc import Set as AbstractSet
from contextlib import closing
from typing import TYPE_CHECKING

from dlq.archive import user_sql, views
from dlq.archive.manifests import BY_IMPORT
from dlq.archive.storage.store import Store
from dlq.core.headers.provenance import REPLAY_ID
from dlq.core.settings import Settings
from dlq.replay import ledger as ledgers
from dlq.replay.ledger.contract import Entry, Ledger
from dlq.replay.plans import planfile
from dlq.replay.states import State

if TYPE_CHECKING:
    import duckdb

_BACK = f"""
    FROM replays p
    JOIN (
        SELECT *, coalesce(headers['{REPLAY_ID}'], properties['{REPLAY_ID}']) AS replay_id FROM records
    ) r ON r.replay_id = p.key
    WHERE p.plan = ?"""
_COUNT = f"SELECT p.target, count(DISTINCT p.key) {_BACK} GROUP BY p.target"
_NEWEST = f"SELECT r.record_id {_BACK} ORDER BY r.captured_at DESC, r.record_id LIMIT ?"

_AMONG = f"""
    SELECT DISTINCT coalesce(headers['{REPLAY_ID}'], properties['{REPLAY_ID}']) AS id FROM records
    WHERE captured_at >= make_timestamptz(?) AND id IN (SELECT unnest(?))"""
_UNPROVEN: AbstractSet[State] = {"in_doubt", "held", "planned"}
_PULLED = f"AND mode IS DISTINCT FROM '{BY_IMPORT}'"


def count(store: Store, settings: Settings, plan: str) -> Counter[str]:
    """Return target -> how many replays of `plan` the archive holds as dead letters again. Raises
    ArchiveError."""
    with closing(views.connect(store, ledgers.as_arrow(settings.ledger, store))) as connection:
        return Counter(dict(user_sql.run(connection, _COUNT, [plan]).rows))


def newest(connection: "duckdb.DuckDBPyConnection", plan: str, most: int) -> list[str]:
    """Record ids of the letters that came back of `plan`, at most so many, the newest first. `connection` has
    the views of the archive and the ledger."""
    return [record_id for (record_id,) in user_sql.run(connection, _NEWEST, [plan, most]).rows]


def confirm(store: Store, ledger: Ledger, plan: str, keys: Collection[str] | None = None) -> int:
    """Confirm letters of a plan that a pull has brought back: they were sent, whatever was concluded. Return
    how many. Of what another plan had sent those with these `keys` are looked for; None: all that this plan
    has. What was given back unsent, of which nothing is said, is not looked for."""
    entries = list(_list_unproven(store, ledger, plan, keys))
    if not entries:
        return 0
    since = min(entry.sent_at for entry in entries)
    back = find_among(store, {entry.key for entry in entries}, since, by_import=False)
    return ledger.resolve(sorted(back), "confirmed", "it came back to a dead-letter queue")


def _list_unproven(store: Store, ledger: Ledger, plan: str, keys: Collection[str] | None) -> Iterator[Entry]:
    states = (
        (of, state) for of, known in ledger.counts_of_all().items() for state in _UNPROVEN & known.keys()
    )
    found = [entry for of, state in states for entry in ledger.entries(of, state)]
    found = [entry for entry in found if entry.detail or entry.state != "planned"]
    others = {entry.key for entry in found if entry.plan != plan}
    if others and keys is None:
        keys = {key for key, _ in planfile.names(store, plan) if key in others}
    mine = others.intersection(keys or ())
    return (entry for entry in found if entry.plan == plan or entry.key in mine)


def find_among(store: Store, replay_ids: Collection[str], since: int, by_import: bool = True) -> set[str]:
    """Return those of the replay ids that were sent: a letter captured after `since` (microseconds since the
    epoch) carries them; without `by_import` one that a pull has brought: a file may say anything. Raises
    ArchiveError where the archive can't be searched."""
    with closing(views.connect(store)) as connection:
        asked = _AMONG if by_import else f"{_AMONG} {_PULLED}"
        rows = user_sql.run(connection, asked, [since, sorted(replay_ids)]).rows
        return {replay_id for (replay_id,) in rows}
