"""`dlq doctor`: a line per source, each explanation once, and 3 where a pull would be refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.archives import letter, write_segment
from support.builders import memory_sources, rows
from support.rows import each_row

from dlq.archive import losses
from dlq.archive.storage.store import LocalStore
from dlq.cli.app import run
from dlq.connectors.base import Inspection
from dlq.connectors.memory import MemoryConnector
from dlq.core.clock import now
from dlq.core.errors import HarmRefused, Unreachable
from dlq.core.settings import Ledger, Source
from dlq.replay import dismissals
from dlq.replay.ledger import opened

HOUR = 3_600_000_000
CHANGES = {"copy": "a copy marks them redelivered", "drain": "a drain removes them"}
WELL = Inspection("1.0", 3, {"queue type": "classic", "limits": {"max": 5}}, CHANGES, {}, ["drain soon"])
HARMED = Inspection("1.0", 3, {}, CHANGES, {"copy": "looking kills"}, ["drain soon"])
STREAM = Inspection("1.0", 3, {}, CHANGES, dict.fromkeys(CHANGES, "a stream"), ["a stream"])
AWAY = Unreachable("shop (host:1): no connection")
Doctor = Callable[..., tuple[int, str, str]]


@pytest.fixture
def doctor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Doctor:
    """`dlq doctor` where each source's finding is given; `modes` are those that are configured."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    found: dict[str, Any] = {}

    def inspect(_self: MemoryConnector, source: Source) -> Inspection:
        if isinstance(found[source.name], Exception):
            raise found[source.name]
        return found[source.name]

    monkeypatch.setattr(MemoryConnector, "inspect", inspect)

    def look(findings: dict[str, Any], *words: str, modes: str = "copy") -> tuple[int, str, str]:
        found.update(findings)
        text = memory_sources("memory:doctor", *findings, queue="{}", more=f'mode = "{modes}"\n')
        Path("dlq.toml").write_text(text)
        code = run(["doctor", *words])
        return code, *capfd.readouterr()

    return look


@each_row(("findings", "mode", "expected"), [
    ({"a": WELL}, "copy", 0), ({"a": HARMED}, "copy", 3), ({"a": HARMED}, "drain", 0),
    ({"a": STREAM}, "drain", 3), ({"a": WELL, "b": HARMED}, "copy", 3), ({"a": WELL, "b": AWAY}, "copy", 3),
    ({"a": AWAY, "b": AWAY}, "copy", 4), ({"a": HarmRefused("no")}, "copy", 2),
])  # fmt: skip
def test_the_exit_code_says_whether_a_pull_as_configured_would_work(
    doctor: Doctor, findings: dict[str, Any], mode: str, expected: int
) -> None:
    assert doctor(findings, "-o", "json", modes=mode)[0] == expected


def test_several_sources_have_a_line_each_and_every_explanation_stands_once(doctor: Doctor) -> None:
    _code, out, err = doctor({"a": WELL, "b": WELL, "c": HARMED, "d": AWAY, "e": AWAY}, "-o", "table")
    assert out.splitlines()[:6] == [
        "source  broker  version    messages  pulled by  copy     drain",
        "a       shop    1.0        3         copy       yes      yes",
        "b       shop    1.0        3         copy       yes      yes",
        "c       shop    1.0        3         copy       refused  yes",
        "d       shop    not known            copy",
        "e       shop    not known            copy",
    ]
    assert [out.count(text) for text in (*CHANGES.values(), "looking kills", "drain soon")] == [1] * 4
    assert "copy: a, b\n" in out
    assert "copy is refused: c\n" in out
    assert err.splitlines()[:2] == [
        f"dlq: d, e: {AWAY}; check the url, and that the broker runs",
        "dlq: c: a pull as configured (copy) would be refused",
    ]
    assert "no connection" not in out


def test_facts_are_shown_of_one_source(doctor: Doctor) -> None:
    for sources, words, shown in (("a", [], True), ("ab", [], False), ("ab", ["-v"], True)):
        _code, out, err = doctor(dict.fromkeys(sources, WELL), "-o", "table", *words)
        assert ("limits" in out and "max: 5" in out) == shown
        assert ("dlq doctor SOURCE" in err) != shown


def test_a_mode_that_is_refused_changes_nothing_and_what_a_broker_says_steers_no_terminal(
    doctor: Doctor,
) -> None:
    _code, out, _err = doctor({"a": STREAM}, "-o", "table")
    assert not any(text in out for text in (*CHANGES.values(), "warning"))
    hostile = Inspection("\x1b[2J", 3, {"\x1b[2J": "\x1b[2J"}, {"copy": "\x1b[2J"}, {}, ["\x1b[2J"])
    assert "\x1b" not in doctor({"a": hostile}, "-o", "table")[1]


def test_scripts_get_every_finding_in_full(doctor: Doctor) -> None:
    _code, out, _err = doctor({"a": HARMED, "b": AWAY}, "-o", "jsonl")
    harmed, away = rows(out)
    assert harmed["harm"] == {"copy": "looking kills"}
    assert away == {"source": "b", "error": str(AWAY)}


def test_the_age_of_the_oldest_letter_that_waits_is_a_column(doctor: Doctor) -> None:
    store = LocalStore("archive")
    write_segment(store, "p-0", [letter(n, source="a", dead_at=now() - n * HOUR) for n in (2, 5, 30)])
    with opened(Ledger(), store) as book:
        dismissals.dismiss(book, [f"{30:032x}"], "test traffic")
    _code, out, _err = doctor({"a": WELL, "b": WELL}, "-o", "table")
    assert out.splitlines()[0].endswith("drain  oldest")
    assert [line.split()[7:8] for line in out.splitlines()[1:3]] == [["5h"], []]
    _code, out, _err = doctor({"a": WELL, "b": WELL}, "-o", "jsonl")
    assert ["oldest" in row for row in rows(out)] == [True, False]


def test_a_letter_of_which_nothing_says_when_it_died_waits_since_it_was_captured(doctor: Doctor) -> None:
    store = LocalStore("archive")
    undated = letter(1, source="b", dead_at=None, captured_at=now() - 3 * HOUR)
    write_segment(store, "p-0", [undated, letter(2, source="a", dead_at=now() - HOUR)])
    _code, out, _err = doctor({"a": WELL, "b": WELL}, "-o", "table")
    assert [line.split()[7:8] for line in out.splitlines()[1:3]] == [["1h"], ["3h"]]
    assert run(["analyze", "--engine", "plain"]) == 0
    assert [run(["report", "--fail-on", f"oldest > {bound}"]) for bound in ("2h", "4h")] == [5, 0]


def test_what_is_lost_of_a_source_is_said_until_somebody_dismisses_it(doctor: Doctor) -> None:
    store = LocalStore("archive")
    for source in ("a", "b", "other"):
        losses.keep(store, source, [losses.Missing(f"{source}-0", 0, 300)])
    losses.dismiss(store, "b", "known", "ann")
    _code, out, err = doctor({"a": WELL, "b": WELL}, "-o", "jsonl")
    mine, others = rows(out)
    assert (mine["lost"], mine["losses"][0]["place"], "lost" in others) == (300, "a-0", False)
    assert [line.partition(" at most")[0] for line in err.splitlines()] == ["dlq: a: 300 letters"]
    losses.reopen(store, "b", "ann")
    assert "dlq: b: 300 letters at most are lost: b-0" in doctor({"a": AWAY, "b": AWAY}, "-o", "table")[2]
    store.put("losses/odd.json", b"[]")
    code, _out, err = doctor({"a": WELL}, "-o", "json")
    assert (code, "losses/odd.json" in err) == (3, True)
