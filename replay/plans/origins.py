"""Whether anything but the letter says where it came from.

A header tells the origin, and whoever may write into a dead-letter queue can write that, too: so a letter may
choose where a replay goes. What pulls learned of a source's broker may bear it out.
"""

from dlq.archive import topology as of_pull
from dlq.archive.storage.store import Store
from dlq.connectors.base import Target
from dlq.core.headers.rocketmq_topics import DEAD_LETTERS
from dlq.core.record import Record


class Origins:
    """What the newest pulls of each source learned of its broker."""

    def __init__(self, store: Store) -> None:
        """Take the origins of an archive. Raises ArchiveError, FormatTooNew."""
        self._newest = of_pull.newest(store).of_pulls

    def are_borne_out(self, record: Record, target: Target) -> bool:
        """Return whether a queue's dead-letter exchange, an address' settings, or the name of the group's own
        dead-letter topic says that what died in the target comes to where this letter lay."""
        learned, place = self._newest.get(record.source, {}), record.dead_letter_queue
        if target.kind == "group":
            return place == f"{DEAD_LETTERS}{target.name}"
        address = target.name.partition("::")[0]
        settings = (learned.get("places_of_the_dead") or {}).get(address, ())
        exchanges = learned.get("dead_letter_exchanges") or {}
        return place in settings or (target.kind == "queue" and target.name in exchanges)
