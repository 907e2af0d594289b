"""What nobody reads any more goes: old analyses, temporaries, outdated facts."""

import os
from pathlib import Path

from support.retaining import Shop

from dlq.archive import analyses
from dlq.archive.analyses import Analysis
from dlq.archive.storage.store import LocalStore
from dlq.core.settings import Retain


def write_analysis(store: LocalStore, name: str, uses: str) -> None:
    """An analysis with a table and rows of stage 1, which uses those of another analysis as well."""
    own = [f"analyses/{name}/{file}" for file in ("verdicts/v.parquet", "classified/j.parquet")]
    for file in own:
        store.put(file, b"")
    parts = [{"file": own[1], "stems": []}, {"file": f"analyses/{uses}/classified/j.parquet", "stems": []}]
    tables = {"verdicts": (own[0],)}
    analyses.commit(store, Analysis(name, 0, {}, 0.0, "", "", tables, extra={"parts": parts}))


def test_old_analyses_go_but_not_what_a_kept_one_uses(shop: Shop) -> None:
    names = [f"20261120T00000{number}-000000" for number in range(3)]
    for name in names:
        write_analysis(shop.store, name, uses=names[1])
    shop.store.put("analyses/20200101T000000-000000/verdicts/half.parquet", b"")
    shop.retain(Retain(analyses=1))
    assert shop.store.list("analyses/") == [
        "analyses/20261120T000001-000000/classified/j.parquet",
        "analyses/20261120T000002-000000/analysis.json",
        "analyses/20261120T000002-000000/classified/j.parquet",
        "analyses/20261120T000002-000000/verdicts/v.parquet",
    ]


def test_temporaries_of_a_crash_go_when_they_are_old(shop: Shop) -> None:
    shop.runs(("a",))
    root = Path(shop.store.location)
    spilled = root / ".tmp-duckdb-1"
    spilled.mkdir()
    (spilled / "block").write_bytes(b"x")
    old, fresh = root / "manifests" / ".tmp-1-x.json", root / "manifests" / ".tmp-2-y.json"
    for path in (old, fresh):
        path.write_bytes(b"")
    for path in (old, spilled):
        os.utime(path, (1, 1))
    shop.retain()
    assert (old.exists(), spilled.exists(), fresh.exists()) == (False, False, True)
    assert len(shop.ids) == 1


def test_of_what_a_store_outside_said_the_newest_stays_also_beside_one_of_a_clock_that_was_ahead(
    shop: Shop,
) -> None:
    names = [f"evidence/pay/{day}T000000-000000.json" for day in (20261101, 20261102, 20991103)]
    for name in names:
        shop.store.put(name, b"{}")
    shop.retain()
    assert shop.store.list("evidence/") == names[1:]


def test_of_what_pulls_learned_only_the_newest_stays(shop: Shop) -> None:
    for name, text in (
        ("20261101T000000-aaaa", '{"format": 1, "source": "pay", "brokers": {"a": {}, "b": {}}}'),
        ("20261102T000000-aaaa", '{"format": 1, "source": "pay", "brokers": {"a": {}}}'),
        ("20261103T000000-aaaa", '{"format": 1, "source": "pay", "brokers": {"a": {}}}'),
        ("20261103T000001-aaaa", '{"format": 1, "source": "orders"}'),
    ):
        shop.store.put(f"topology/{name}.json", text.encode())
    shop.retain()
    assert [name[9:17] for name in shop.store.list("topology/")] == ["20261101", "20261103", "20261103"]
