"""What commands say that letters died of, and which of them nobody could say."""

import errno
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.archives import letter, write_segment
from support.builders import Dlq, rows
from support.running import classified

from dlq.analyzers import analysis
from dlq.archive.storage.folder import Folder
from dlq.archive.storage.store import LocalStore
from dlq.core.errors import ArchiveError
from dlq.operations import triage


def line(name: str, **headers: Any) -> str:
    return json.dumps(
        {"broker_kind": "rabbitmq", "queue": "orders.dlq", "message_id": name, "headers": headers}
    )


def dead(number: int, reason: str) -> str:
    return line(f"m{number}", **{"x-death": [{"reason": reason, "queue": "orders", "count": 1}]})


THROWN = {"x-exception-message": "out of \x1b[2Jstock\nand more", "x-original-exchange": "shop"}
HOSTILE = line("h", **THROWN)
CAUSES = {"poison_ack": 2, "expired": 1, "application_error": 1}
LINES = [dead(1, "rejected"), dead(2, "rejected"), dead(3, "expired"), HOSTILE]


@pytest.fixture
def dlq(dlq: Dlq) -> Dlq:
    Path("letters.jsonl").write_text("\n".join(LINES))
    Path("more.jsonl").write_text("\n".join([*LINES, dead(9, "maxlen")]))
    return dlq


def test_an_import_says_what_its_letters_died_of_the_most_frequent_first(dlq: Dlq) -> None:
    _code, out, _err = dlq("-o", "table", "import", "letters.jsonl")
    told = [row.split(maxsplit=2) for row in out.splitlines()[3:]]
    assert [row[:2] for row in told] == [["2", "poison_ack"], ["1", "expired"], ["1", "application_error"]]
    assert told[0][2].startswith("rejected from orders, 1 x")
    assert "out of \\x1b[2Jstock" in out
    assert "\x1b" not in out
    assert "and more" not in out


@pytest.mark.parametrize("spark_from", [None, 3])
def test_a_program_gets_the_causes_of_the_new_letters_alone_and_all_have_verdicts(
    dlq: Dlq, spark_from: int | None
) -> None:
    first = json.loads(dlq("import", "letters.jsonl")[1])
    if spark_from:  # the new ones are few, and classified without Spark
        Path("dlq.toml").write_text(f"[analysis]\nspark_from = {spark_from}\n")
    second = json.loads(dlq("import", "more.jsonl")[1])
    assert first["causes"] == CAUSES
    assert (second["known"], second["causes"]) == (4, {"overflow": 1})
    found = rows(dlq("ls")[1])
    assert {row["cause"] for row in found} == {*CAUSES, "overflow"}
    assert None not in {row["analysis"] for row in found}


@pytest.mark.parametrize("how", [("--no-analyze",), ()])
def test_who_wants_no_analysis_gets_none_and_hears_what_each_letter_says(dlq: Dlq, how: tuple[str]) -> None:
    if not how:
        Path("dlq.toml").write_text("[analysis]\nafter_pull = false\n")
    assert json.loads(dlq("import", "letters.jsonl", *how)[1])["causes"] == CAUSES
    assert {row["analysis"] for row in rows(dlq("ls")[1])} == {None}
    Path("dlq.toml").unlink(missing_ok=True)
    assert json.loads(dlq("import", "letters.jsonl")[1])["records"] == 4
    assert None not in {row["cause"] for row in rows(dlq("ls")[1])}, (
        "the next command classifies what is left"
    )


def test_letters_for_spark_are_classified_alone_as_far_as_they_are_few(
    dlq: Dlq, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("dlq.toml").write_text("[analysis]\nspark_from = 3\n")
    assert json.loads(dlq("import", "letters.jsonl")[1])["causes"]["poison_ack"] == 2
    monkeypatch.setattr(triage, "MOST_LETTERS", 0)
    code, out, err = dlq("-o", "table", "import", "more.jsonl")
    assert (code, len(out.splitlines())) == (0, 1)
    assert err == "letters not classified yet: 1; run dlq analyze\n"


def test_an_analysis_that_fails_loses_no_import(dlq: Dlq, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **_more: object) -> None:
        raise ArchiveError("gone")

    monkeypatch.setattr(analysis, "analyze", fails)
    code, out, err = dlq("import", "letters.jsonl")
    assert (code, json.loads(out)["causes"]) == (3, None)
    assert "archived, but not classified: gone; dlq analyze classifies them" in err


@pytest.mark.parametrize("folder", ["classified", "verdicts"])
def test_an_analysis_that_finds_no_room_loses_no_import(
    dlq: Dlq, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    replacing = Folder.replacing

    def full(of: Folder, name: str, *how: Any, **more: Any) -> Any:
        if folder in name:
            raise OSError(errno.ENOSPC, "no room")
        return replacing(of, name, *how, **more)

    monkeypatch.setattr(Folder, "replacing", full)
    code, out, err = dlq("import", "letters.jsonl")
    assert (code, json.loads(out)["records"]) == (3, 4)
    assert "archived, but not classified: cannot write analyses/" in err
    assert "no room; check its path, its rights and the room there" in err


SEE = "see dlq query \"SELECT record_id, evidence FROM verdicts WHERE rule = 'broken-rule'\""


@pytest.mark.parametrize(("broken", "code", "said"), [
    (0, 0, ""),
    (1, 3, f"dlq: 1 letter made a rule fail and is unknown; {SEE}\n"),
    (1234, 3, f"dlq: 1,234 letters made a rule fail and are unknown; {SEE}\n"),
])  # fmt: skip
def test_letters_that_made_a_rule_fail_are_counted(
    dlq: Dlq, store: LocalStore, monkeypatch: pytest.MonkeyPatch, broken: int, code: int, said: str
) -> None:
    def done(*arguments: Any, **options: Any) -> Any:
        return replace(classified(*arguments, **options), extra={"broken": broken, "parts": []})

    write_segment(store, "p-0", [letter(1)])
    monkeypatch.setattr(analysis, "analyze", done)
    assert dlq("-o", "json", "analyze")[::2] == (code, said)
