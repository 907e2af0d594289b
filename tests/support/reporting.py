"""An archive to report on."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.archives import MINUTE, letter, write_analysis, write_segment

from dlq.archive.schema import REPLAYS
from dlq.archive.storage.store import LocalStore
from dlq.reports import report

HOSTILE = "\x1b[31m<img src=x onerror=alert(1)>`|[x](http://evil)\u202e @all"
CANARY = "jane.doe@example.com"
EARLIER, LATEST = "20260101T000000", "20260102T000000"


def an_id(number: int) -> str:
    return letter(number).record_id


def verdict(number: int, cause: str, advice: str, **values: Any) -> dict[str, Any]:
    return {"record_id": an_id(number), "cause": cause, "advice": advice, **values}


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    """Seven letters of two sources: three failures of one kind, two duplicates, one expired, one without
    a verdict."""
    store = LocalStore(str(tmp_path / "archive"))
    failure = {
        "fingerprint": "f1", "exception_class": "com.shop.Boom", "exception_message": f"{HOSTILE} {CANARY}",
        "incident_id": "i1",
    }  # fmt: skip
    group = {"duplicate_group": "g", "duplicate_kind": "message_id"}
    write_segment(store, "p-0", [letter(n, body_size=10) for n in range(1, 7)])
    write_segment(store, "p-1", [letter(70, source="pay|ments", body_size=5)])
    verdicts = [
        *(verdict(n, "application_error", "fix_first", **failure) for n in (1, 2, 3)),
        verdict(4, "poison_ack", "replay", **group),
        verdict(5, "poison_ack", "replay", **group),
        verdict(70, "expired", "replay", source="pay|ments"),
    ]
    write_analysis(store, EARLIER, [verdict(1, "unknown", "check_first"), verdict(4, "poison_ack", "replay")])
    incident = {
        "incident_id": "i1", "start": MINUTE, "end": 3 * MINUTE, "size": 3, "first_record_id": an_id(1),
        "ongoing": True, "new": False,
    }  # fmt: skip
    write_analysis(
        store,
        LATEST,
        verdicts,
        incidents=[{**incident, "sources": ["orders"], "causes": ["application_error"]}],
    )
    return store


def ledger(*states: tuple[int, str]) -> pa.Table:
    rows = [{"record_id": an_id(n), "plan": "p", "state": state, "updated_at": 1} for n, state in states]
    return pa.Table.from_pylist(rows, REPLAYS)


def rendered(name: str, store: LocalStore, **options: Any) -> str:
    return report.FORMATS[name](report.make(store, with_letters=name == "html", **options))
