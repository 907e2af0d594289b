"""An archive that is filled from the embedded broker, and kept small."""

from pathlib import Path
from typing import Any

import pyarrow as pa

from dlq.archive import housekeeping, manifests, segments
from dlq.archive.housekeeping import Work
from dlq.archive.manifests import Manifest
from dlq.archive.storage.store import LocalStore
from dlq.capture.pull import PullOptions, pull
from dlq.connectors.memory import MemoryBroker, MemoryConnector, broker_at
from dlq.core.settings import Broker, Retain, Settings, Source
from dlq.replay.verify import Books, verify

SOURCE = Source("orders", "shop", queue="orders.dlq")


AT_ONCE = Retain(max_age="0s")


class Shop:
    """An embedded broker with one dead-letter queue, and an archive."""

    def __init__(self, name: str, folder: Path) -> None:
        self.broker: MemoryBroker = broker_at(f"memory:{name}")
        self.broker.declare("orders.dlq")
        self.connector = MemoryConnector(Broker("shop", "memory", f"memory:{name}"))
        self.store = LocalStore(str(folder / "archive"))
        self.replays: pa.Table | None = None

    def put(self, *bodies: str) -> None:
        self.broker.put("orders.dlq", *({"broker_kind": "rabbitmq", "body_text": body} for body in bodies))

    def take(self, mode: Any = "drain") -> Any:
        return pull(self.store, self.connector, SOURCE, PullOptions(mode))

    def runs(self, *batches: tuple[str, ...]) -> None:
        for batch in batches:
            self.put(*batch)
            self.take()

    def ledger_says(self, state: str, *record_ids: str) -> None:
        rows = [{"record_id": i, "state": state} for i in record_ids]
        table = pa.Table.from_pylist(rows, pa.schema([("record_id", pa.string()), ("state", pa.string())]))
        self.replays = table if self.replays is None else pa.concat_tables([self.replays, table])

    def look(self, rules: Retain = AT_ONCE, compact: bool = False) -> Work:
        return housekeeping.look(self.store, rules, self.replays, compact)

    def retain(self, rules: Retain = AT_ONCE, compact: bool = False) -> Work:
        work = self.look(rules, compact)
        housekeeping.do(self.store, work, lambda: self.replays)
        return work

    @property
    def committed(self) -> list[Manifest]:
        return sorted(
            manifests.list_committed(self.store, "orders"), key=lambda manifest: manifest.created_at
        )

    @property
    def ids(self) -> list[str]:
        return [i for m in self.committed for i in segments.record_ids(self.store, m).to_pylist()]

    @property
    def books(self) -> Books:
        (books,) = verify(self.store, Settings())
        return books

    @property
    def files(self) -> list[str]:
        return self.store.list("segments/")
