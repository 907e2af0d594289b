"""Letters that bring a resolved failure back: by when they died, and by the version they died of."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.archives import letter, letters_in, write_analysis, write_segment

from dlq.archive import views
from dlq.archive.storage.store import LocalStore
from dlq.core.failures import Event
from dlq.core.settings import Settings, Source
from dlq.reports.failures import states

SECOND = 1_700_000_000_000_000


@pytest.mark.parametrize(
    ("died", "captured", "state"),
    [(0, 3_000_000, "regressed"), (0, 700_000, "regressed"), (0, 400_000, "resolved"),
     (-1_000_000, 3_000_000, "resolved"), (400_000, 3_000_000, "resolved"),
     (600_000, 3_000_000, "regressed")],
)  # fmt: skip
def test_what_may_have_died_after_it_was_resolved_has_come_back(
    tmp_path: Path, died: int, captured: int, state: str
) -> None:
    store = LocalStore(str(tmp_path / "archive"))
    one = letter(1, dead_at=SECOND + died, captured_at=SECOND + captured)
    write_segment(store, "p-0", [one])
    write_analysis(store, "a", [{"record_id": one.record_id, "cause": "expired", "fingerprint": "f"}])
    resolved = Event("1", SECOND + 500_000, "ann", "f", "resolve", "", "")
    with views.connect(store) as connection:
        assert states(connection, [resolved], SECOND + 9_000_000, Settings()) == {"f": state}


ORDERS = Source("orders", "shop", version="header:app-version")
PLACES: list[tuple[str | None, dict[str, Any], str]] = [
    # the version setting of a source, what its letter has -> how a failure stands that was resolved in 2.4.1
    (ORDERS.version, {"headers": {"app-version": "2.4.0"}}, "resolved"),
    (ORDERS.version, {"headers": {"app-version": "2.10.0"}}, "regressed"),
    (ORDERS.version, {"headers": {"app-version": "0" + ".0" * 50}}, "regressed"),
    (ORDERS.version, {}, "regressed"),
    ("header:it's", {"headers": {"it's": "2.4.0"}}, "resolved"),
    ("property:APP", {"properties": {"APP": "2.4.0"}}, "resolved"),
    ("property:APP", {"headers": {"APP": "2.4.0"}}, "regressed"),
    ("json:$.by[1]['a/b~c']", {"body": b'{"by": [0, {"a/b~c": "2.4.0"}]}'}, "resolved"),
    ("json:$.by", {"body": b'{"by": 2.3}'}, "resolved"),
    ("json:$.by", {"body": b'{"by": {"a": "2.4.0"}}'}, "regressed"),
    ("json:$.by", {"body": b'{"by": null}'}, "regressed"),
    ("json:$.by", {"body": b'\xff{"by": "2.4.0"'}, "regressed"),
    ("message_id", {"message_id": "2.4.0"}, "resolved"),
    (None, {"headers": {"app-version": "2.4.0"}}, "regressed"),
]


def test_the_version_stands_where_its_source_says_and_one_that_is_not_found_may_have_the_fix(
    tmp_path: Path,
) -> None:
    store = LocalStore(str(tmp_path))
    told = {f"s{n:02}": row for n, row in enumerate(PLACES)}
    for source, (_, has, _) in told.items():
        write_segment(store, f"p-{source}", [letter(1, source=source, dead_at=SECOND + 9_000_000, **has)])
    sources = {source: Source(source, "shop", version=place) for source, (place, _, _) in told.items()}
    assert stand(store, sources, list(sources)) == {source: state for source, (_, _, state) in told.items()}


def test_versions_of_letters_that_died_before_or_of_another_failure_say_nothing(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    told = [("2.4.1", -9, "f"), ("2.4.0", 9, "f"), ("2.4.1", 9, "g")]
    letters = [
        letter(n, dead_at=SECOND + at * 1_000_000, headers={"app-version": version})
        for n, (version, at, _) in enumerate(told)
    ]
    write_segment(store, "p-0", letters)
    found = stand(store, {"orders": ORDERS}, [one for _, _, one in told])
    assert found == {"f": "resolved", "g": "regressed"}


def stand(store: LocalStore, sources: Mapping[str, Source], failures: Sequence[str]) -> Mapping[str, str]:
    """How failures stand that were all resolved in 2.4.1. `failures`: of each letter."""
    verdicts = [
        {"record_id": one.record_id, "source": one.source, "cause": "expired", "fingerprint": failure}
        for one, failure in zip(letters_in(store), failures, strict=True)
    ]
    write_analysis(store, "a", verdicts)
    said = [Event(one, SECOND, "ann", one, "resolve", "2.4.1", "") for one in set(failures)]
    with views.connect(store) as connection:
        return states(connection, said, SECOND + 9_000_000, Settings(sources=sources))
