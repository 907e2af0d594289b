"""Letters that were sent to another target, or may have been: the ledger's key, which keeps what is sent from
being sent twice, is of a letter and its target."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from dlq.archive.schema import REPLAYS

_SENT = pa.array(["confirmed", "sending", "in_doubt", "held"])

Elsewhere = Mapping[str, Sequence[tuple[str, str]]]
"""Id of a letter -> the key of each replay of it that was sent, or may have been, and that in words."""


def list_sent(replays: pa.Table | None) -> pa.Table:
    """Of the ledger's replays those that were sent, or may have been."""
    known = REPLAYS.empty_table() if replays is None else replays
    return known.filter(pc.is_in(known["state"], _SENT)).select(["record_id", "key", "state", "target"])


def find_sent(sent: pa.Table, record_ids: Collection[str]) -> Elsewhere:
    """What of `list_sent` is of these letters."""
    found: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
    chosen = sent.filter(pc.is_in(sent["record_id"], pa.array(record_ids, pa.string())))
    for row in chosen.to_pylist():
        found[row["record_id"]].append((row["key"], f"{row['state'].replace('_', ' ')} at {row['target']}"))
    return found


def describe_sent(found: Elsewhere, record_id: str, key: str) -> str | None:
    """Where else a letter was sent than by the replay of this key, in words; None: nowhere."""
    others = {words for other, words in found.get(record_id, ()) if other != key}
    return ", ".join(sorted(others)) or None
