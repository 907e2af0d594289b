"""A team whose profile `nightly` is run in this process, on the embedded broker."""

import json
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.archives import write_analysis
from support.builders import memory_sources

from dlq.archive import analyses, manifests, segments
from dlq.archive.storage.store import LocalStore, Store
from dlq.cli import app
from dlq.connectors.memory import MemoryBroker, broker_at

SECRET_BODY = "card 4111-1111-1111-1111"


@dataclass
class Done:
    """One run: exit code, the JSON on stdout, the lines on stderr."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.err.splitlines()]


class Team:
    """A configuration with two sources on one broker, and one that is not there."""

    def __init__(self, folder: Path, name: str, capfd: pytest.CaptureFixture[str]) -> None:
        self.folder, self.url, self._capfd = folder, f"memory:{name}", capfd
        self.broker: MemoryBroker = broker_at(self.url)
        self.store = LocalStore(str(folder / "archive"))
        for queue in ("orders.dlq", "bills.dlq"):
            self.broker.declare(queue)

    def profile(self, text: str = "", sources: str = '["orders", "bills"]') -> None:
        text = text if "mode" in text else f'{text}\nmode = "drain"'
        (self.folder / "dlq.toml").write_text(
            memory_sources(self.url, "orders", "bills", "gone")
            + f"[profiles.nightly]\nsources = {sources}\n{text}\n"
        )

    def put(self, count: int, queue: str = "orders.dlq") -> None:
        letters = ({"broker_kind": "rabbitmq", "body_text": f"{SECRET_BODY} {n}"} for n in range(count))
        self.broker.put(queue, *letters)

    def run(self, *words: str) -> Done:
        code = app.run(["-o", "json", "run", "nightly", *words])
        captured = self._capfd.readouterr()
        return Done(code, captured.out, captured.err)


def classified(store: Store, *_arguments: Any, **_options: Any) -> analyses.Analysis:
    """In place of Spark: every letter is unknown."""
    ids = [i for m in manifests.list_committed(store) for i in segments.record_ids(store, m).to_pylist()]
    name = f"{time.time_ns()}"
    write_analysis(store, name, [{"record_id": i, "cause": "unknown", "advice": "hold"} for i in ids])
    return replace(analyses.load(store, name), records=len(ids))


def last_success(team: Team) -> float:
    """As the monitoring reads it."""
    text = (team.folder / "dlq.prom").read_text()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    return float(families["dlq_last_success_timestamp_seconds"].samples[0].value)
