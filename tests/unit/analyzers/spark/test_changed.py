"""What an analysis says has changed since the one before."""

from pathlib import Path

from support.archives import letter, write_analysis, write_segment

from dlq.analyzers.analysis import changed_since
from dlq.archive import analyses
from dlq.archive.store import LocalStore

# fingerprints, and how many are new after "f1" and "f2"
NEW = [(["f1", "f2"], 0), (["f1", "f3"], 1), (["n1", "n1", "n3"], 2), ([None, "n1"], 1)]


def test_a_failure_is_new_that_the_analysis_before_had_not(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    ids = [letter(number).record_id for number in range(3)]
    write_segment(store, "p-0", [letter(number) for number in range(3)])
    before = [{"record_id": one, "fingerprint": which} for one, which in zip(ids, ("f1", "f2"), strict=False)]
    write_analysis(store, "20260101T000000", before)
    found = []
    for day, (named, _) in enumerate(NEW, 2):
        verdicts = [{"record_id": one, "fingerprint": name} for one, name in zip(ids, named, strict=False)]
        write_analysis(store, f"2026010{day}T000000", verdicts)
        files = analyses.load(store, f"2026010{day}T000000").tables["verdicts"]
        changed = changed_since(store, analyses.load(store, "20260101T000000"), {}, files)
        found.append(changed["new_fingerprints"])
    assert found == [expected for _, expected in NEW]
