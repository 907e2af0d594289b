"""What `dlq replay plan` shows of letters that something newer of their key has replaced."""

import json
from pathlib import Path

from support.archives import letter, write_segment
from support.builders import Dlq, memory_sources
from support.replaying import judge

from dlq.archive.storage.store import LocalStore
from dlq.connectors.memory import broker_at

SOURCE = memory_sources("memory:superseded", "orders", more='key = "header:entity"\n')


def test_a_plan_counts_them_apart_and_says_what_proves_it(
    dlq: Dlq, store: LocalStore, tmp_path: Path
) -> None:
    """The embedded broker has no log, so that a newer letter of the key alone is proof."""
    (tmp_path / "dlq.toml").write_text(SOURCE)
    broker_at("memory:superseded").declare("orders")
    two = [letter(n, origin_kind="queue", key="a", published_at=n + 1) for n in range(2)]
    write_segment(store, "p", two)
    judge(store, {one.record_id: "replay" for one in two})
    _, text, _ = dlq("-o", "table", "replay", "plan", "--check-superseded")
    assert "1  superseded  a newer one of its key replaced it" in text
    first, second = (one.record_id[:12] for one in two)
    assert f"\nsuperseded\n  {first}  letter {second} of its key is newer" in text
    assert "unknown whether something newer replaced them\n          1  shop keeps no log" in text
    told = json.loads(dlq("-o", "json", "replay", "plan", "--check-superseded")[1])
    assert (told["superseded"], [*told["superseded_by"]]) == (1, [two[0].record_id])
    assert told["not_looked_at"] == {"shop keeps no log": 1}
    assert json.loads(dlq("-o", "json", "replay", "plan", "--no-check-superseded")[1])["superseded"] == 0
