"""dlq incidents and the report's second section: what to look at first, and the way to its letters."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.archives import MINUTE, letter, write_analysis, write_segment
from support.builders import Dlq

from dlq.archive import views
from dlq.archive.schema import REPLAYS
from dlq.archive.storage.store import LocalStore
from dlq.reports import incidents, report

NAMES = ("old-large", "new-small", "ongoing")


def incident(number: int, **values: Any) -> dict[str, Any]:
    """The incident that begins with letter `number`; its letters are the ten from there on."""
    known = {
        "incident_id": NAMES[number // 10], "start": number * MINUTE, "peak": (number + 1) * MINUTE,
        "end": (number + 2) * MINUTE, "size": 99, "sources": ["orders"], "causes": ["application_error"],
        "first_record_id": letter(number).record_id, "fingerprint": "f", "ongoing": False, "new": False,
    }  # fmt: skip
    return known | values


@pytest.fixture
def store(store: LocalStore) -> LocalStore:
    """Three incidents: ten letters, ten of a new failure, and five of one that still goes on."""
    write_segment(store, "p-0", [letter(n, origin=f"q{n % 5}") for n in range(1, 26)])
    verdicts = [
        {
            "record_id": letter(n).record_id, "cause": "application_error", "origin": f"q{n % 5}",
            "advice": "replay", "fingerprint": f"f{n % 2}", "incident_id": NAMES[n // 10],
            "exception_class": "shop.Boom", "exception_message": "no \x1b[31mstock",
        }
        for n in range(1, 26)
    ]  # fmt: skip
    rows = [incident(1), incident(10, new=True), incident(20, ongoing=True)]
    write_analysis(store, "20260101T000000", verdicts[:12])
    write_analysis(store, "20260102T000000", verdicts, incidents=rows)
    return store


@pytest.fixture
def dlq(dlq: Dlq, store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> Dlq:
    monkeypatch.setenv("COLUMNS", "100")
    return dlq


@pytest.mark.parametrize(
    ("start", "said"),
    [(MINUTE, "expired (time of death unknown, these are times of publishing)"),
     (None, "expired (time of death unknown)")],
)  # fmt: skip
def test_an_incident_without_times_of_death_says_so(tmp_path: Path, start: int | None, said: str) -> None:
    store = LocalStore(str(tmp_path / "archive"))
    write_segment(store, "p-0", [letter(1, dead_at=None, published_at=start)])
    verdicts = [{"record_id": letter(1).record_id, "cause": "expired", "incident_id": NAMES[0]}]
    times = dict.fromkeys(("start", "peak", "end"), start)
    write_analysis(store, "20260103T000000", verdicts, incidents=[incident(1, **times)])
    document = report.make(store, with_letters=True)
    assert incidents.describe(document["incidents"][0]) == said
    assert "since" not in incidents.next_step(document["incidents"][0])["why"]
    for name in ("terminal", "markdown", "html"):
        assert "unknown to" not in report.FORMATS[name](document)


def test_what_goes_on_counts_ten_times_and_then_the_number_that_waits_decides(
    store: LocalStore, tmp_path: Path
) -> None:
    found = incidents.gather(views.connect(store))
    assert [row["incident_id"] for row in found] == ["ongoing", "new-small", "old-large"]
    sent = [
        {"record_id": letter(n).record_id, "plan": "p", "state": "confirmed", "updated_at": 1}
        for n in range(10, 20)
    ]
    found = incidents.gather(views.connect(store, pa.Table.from_pylist(sent, REPLAYS)))
    assert [(row["incident_id"], row["waiting"]) for row in found] == [
        ("ongoing", 6), ("old-large", 9), ("new-small", 0),
    ]  # fmt: skip
    other = LocalStore(str(tmp_path / "other"))  # where one that goes on is very small
    write_segment(other, "p-0", [letter(n) for n in range(1, 103)])
    verdicts = [
        {"record_id": letter(n).record_id, "cause": "expired", "incident_id": NAMES[2 if n < 3 else 0]}
        for n in range(1, 103)
    ]
    write_analysis(other, "20260103T000000", verdicts, incidents=[incident(1), incident(20, ongoing=True)])
    assert [row["incident_id"] for row in incidents.gather(views.connect(other))] == ["old-large", "ongoing"]


def test_an_incident_is_named_for_its_most_frequent_failure(store: LocalStore) -> None:
    known = {"cause": "application_error", "incident_id": NAMES[0], "exception_message": "away"}
    verdicts = [
        {"record_id": letter(n).record_id, "fingerprint": name, "exception_class": f"shop.{name}", **known}
        for n, name in enumerate(("Rare", "Often", "Often", "Often", "Rare"), 1)
    ]
    write_analysis(store, "20260103T000000", verdicts, incidents=[incident(1)])
    row = incidents.gather(views.connect(store))[0]
    assert incidents.describe(row) == "shop.Often: away, and 1 more failure"


def test_it_tells_the_services_that_were_hit_and_how_many_failures(store: LocalStore) -> None:
    row = incidents.gather(views.connect(store), 1)[0]
    assert (row["services"], row["failures"]) == (["q0", "q1", "q2", "q3", "q4"], 2)
    assert incidents.describe(row) == "shop.Boom: no \x1b[31mstock, and 1 more failure"
    assert incidents.places_of(row) == "q0, q1, q2 and 2 more; letters of orders"


def test_json_is_one_object_and_a_size_is_what_ls_lists(dlq: Dlq) -> None:
    code, out, _err = dlq("-o", "json", "incidents")
    listed = json.loads(out)["incidents"]
    assert code == 0
    assert list(listed[0])[:9] == [
        "incident_id", "start", "peak", "end", "size", "sources", "causes", "ongoing", "new",
    ]  # fmt: skip
    for row in listed:
        where = f"incident_id = '{row['incident_id']}'"
        assert len(dlq("ls", "--where", where)[1].splitlines()) == row["size"]


def test_the_table_marks_what_is_special_and_names_the_next_command(dlq: Dlq) -> None:
    _code, out, err = dlq("-o", "table", "incidents")
    assert len(dlq("incidents")[1].splitlines()) == 3, "a pipe gets a line an incident"
    assert out.index("ongoing shop.Boom") < out.index("new shop.Boom")
    assert "\x1b" not in out
    assert err == "next: dlq ls --incident ongoing\n"


def test_without_incidents_or_an_analysis_it_says_so(
    dlq: Dlq, store: LocalStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write_analysis(store, "20260103T000000", [])
    assert dlq("-o", "json", "incidents")[1] == '{\n  "incidents": []\n}\n'
    assert "no incidents: no burst stands out" in dlq("-o", "table", "incidents")[2]
    monkeypatch.setenv("DLQ_ARCHIVE", str(tmp_path / "none"))
    assert dlq("incidents")[0::2] == (2, "dlq: no analysis yet: run dlq analyze\n")


@pytest.mark.parametrize("name", ["terminal", "markdown", "html"])
def test_the_report_has_them_right_after_the_answer(store: LocalStore, name: str) -> None:
    text = report.FORMATS[name](report.make(store, with_letters=name == "html"))
    causes = 'id="causes">' if name == "html" else "Causes\n"
    assert text.index("Incidents") < text.index("ongoing") < text.index(causes)


def test_a_comparison_tells_new_incidents(store: LocalStore) -> None:
    compared = report.make(store, before="20260101T000000")["compare"]["incidents"]
    assert {row["incident_id"]: row["change"] for row in compared} == {"new-small": "more", "ongoing": "new"}
