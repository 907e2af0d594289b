"""What an analysis says has changed since the one before."""

from pathlib import Path

from support.archives import letter, write_analysis, write_segment

from dlq.analyzers.analysis import changed_since
from dlq.archive import analyses
from dlq.archive.store import LocalStore

# fingerprints with their former ones, and how many are new after "f1" and "f2"
NEW = [
    ([("f1", None), ("f2", None)], 0),
    ([("f1", None), ("f3", None)], 1),
    ([("n1", "f1"), ("n2", "f2")], 0),  # a later version of fingerprints
    ([("n1", "f1"), ("n1", "o9"), ("n3", "o3")], 1),  # a failure that was two, one of them known
    ([(None, None), ("n1", None)], 1),
]


def test_a_failure_that_a_later_version_renames_is_not_new(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    ids = [letter(number).record_id for number in range(3)]
    write_segment(store, "p-0", [letter(number) for number in range(3)])
    before = [{"record_id": one, "fingerprint": which} for one, which in zip(ids, ("f1", "f2"), strict=False)]
    write_analysis(store, "20260101T000000", before)
    found = []
    for day, (named, _) in enumerate(NEW, 2):
        verdicts = [
            {"record_id": one, "fingerprint": name, "former_fingerprint": former}
            for one, (name, former) in zip(ids, named, strict=False)
        ]
        write_analysis(store, f"2026010{day}T000000", verdicts)
        files = analyses.load(store, f"2026010{day}T000000").tables["verdicts"]
        changed = changed_since(store, analyses.load(store, "20260101T000000"), {}, files)
        found.append(changed["new_fingerprints"])
    assert found == [expected for _, expected in NEW]
