"""What an analysis keeps for the next one, and what makes it judge again; each on its way through small archives."""

import json
from collections.abc import Mapping
from typing import Any

import pyarrow.parquet as pq
import pytest
from support.analyzers.letters import died, record
from support.archives import write_segment

from dlq.analyzers.analysis import analyze, still_holds
from dlq.analyzers.rules import BROKEN
from dlq.archive.analyses import Analysis
from dlq.archive.store import LocalStore
from dlq.core.errors import ConfigError, UsageError
from dlq.core.record import Record
from dlq.core.settings import Evidence, Replay, Rule, Settings

ASKING = Settings(evidence={"dedup": Evidence("dedup", "rocketmq-dedup", "sqlite:///dedup.db", ("*",))})
EASYNETQ = b'{"Exception": "System.TimeoutException: no answer\\r\\n   at Shop.Pay.Run()", "Queue": "pay"}'


def rejected(number: int, **columns: Any) -> Record:
    return died(("rejected", "orders", 1), record_id=f"{number:032x}", captured_at=number, **columns)


def verdicts(store: LocalStore, of: Analysis) -> dict[int, Mapping[str, Any]]:
    files = (pq.read_table(store.parquet(name)).to_pylist() for name in of.tables["verdicts"])
    return {int(row["record_id"], 16): row for file in files for row in file}


def stems(analysis: Analysis) -> list[list[str]]:
    return [sorted(part["stems"]) for part in analysis.extra["parts"]]


@pytest.fixture
def store(tmp_path: Any) -> LocalStore:
    """Its path has what a pattern would have."""
    return LocalStore(str(tmp_path / "my [archive] {1}*"))


def test_new_segments_are_classified_until_terms_vary(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited = died(("delivery_limit", "orders", 1), record_id=f"{3:032x}", captured_at=3)
    in_body = record(
        record_id=f"{2:032x}", dead_letter_queue="EasyNetQ_Default_Error_Queue", body=EASYNETQ, captured_at=2
    )
    write_segment(
        store, "p-0", [rejected(1, message_id="m", body_size=1, body_sha256="aa"), in_body, limited]
    )

    # Facts of no known type make a rule fail: its letter is unknown, and nothing else suffers.
    monkeypatch.setattr("dlq.archive.topology.read", lambda _name, data: json.loads(data))
    topology = {"format": 1, "source": "orders", "delivery_limits": {"orders": "many"}}
    store.put("topology/20261118T110000-0001.json", json.dumps(topology).encode())
    first = analyze(store, Settings())
    assert (first.records, dict(first.causes)) == (3, {"poison_ack": 1, "application_error": 1, "unknown": 1})
    assert first.extra["broken"] == 1
    said = verdicts(store, first)
    assert (said[3]["rule"], said[3]["cause"]) == (BROKEN, "unknown")
    assert said[3]["evidence"].startswith("the rule delivery-limit failed on it: TypeError")
    assert (said[2]["rule"], said[2]["exception_class"], said[2]["origin"]) == (
        "easynetq", "System.TimeoutException", "pay",
    )  # fmt: skip
    assert still_holds(store, Settings()) == first

    # The same letter under a second source is a letter of its own, and no duplicate of its own verdict.
    write_segment(store, "p-1", [rejected(1, message_id="m", body_size=1, body_sha256="aa", source="again")])
    assert still_holds(store, Settings()) is None
    second = analyze(store, Settings())
    assert stems(second) == [["p-0"], ["p-1"]]
    assert second.extra["parts"][0] == first.extra["parts"][0]
    assert second.extra["broken"] == 1
    assert still_holds(store, Settings()) == second
    for other in (Settings(replay=Replay(max_laps=1)), Settings(rules=(Rule("mine", "false"),)), ASKING):
        assert still_holds(store, other) is None
    assert dict(second.causes) == {"poison_ack": 2, "application_error": 1, "unknown": 1}
    assert second.extra["changed"]["causes"] == {"poison_ack": 1}
    assert second.extra["changed"]["new_fingerprints"] == 0
    third = analyze(store, Settings(replay=Replay(max_laps=1)), since=2)
    assert third.rules_digest != second.rules_digest
    assert {part["file"] for part in third.extra["parts"]}.isdisjoint(
        p["file"] for p in second.extra["parts"]
    )
    assert third.records == 2
    assert still_holds(store, Settings(replay=Replay(max_laps=1))) is None


def test_what_cannot_be_analyzed_is_said(store: LocalStore) -> None:
    with pytest.raises(UsageError, match="the archive is empty"):
        analyze(store, Settings())
    write_segment(store, "p-0", [rejected(1)])
    for where, why in (
        ("no_such_column = 1", "where = 'no_such_column = 1' is no condition"),
        ("java_method('java.lang.System', 'exit', 0) is null", "where uses java_method; a rule may use"),
        ("REFLECT('a', 'b') = 'c'", "where uses REFLECT; a rule may use"),
    ):
        with pytest.raises(ConfigError, match=f"rule 'mine': {why}"):
            analyze(store, Settings(rules=(Rule("mine", where, "expired"),)))
