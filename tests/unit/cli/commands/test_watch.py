"""`dlq watch`: depth and rates of every source, again and again, and the replays that go on meanwhile."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.builders import Dlq, in_file, memory_sources, rows
from support.rows import each_row

from dlq.archive import losses
from dlq.archive.storage.store import LocalStore
from dlq.cli.app import run
from dlq.cli.commands import watch
from dlq.connectors.base import Consumption, Gauge, gauge_of
from dlq.connectors.memory import MemoryBroker, broker_at
from dlq.operations.brokers.watching import measure_rates

LETTER = {"broker_kind": "rabbitmq", "body_text": "a", "origin": "orders"}


@pytest.fixture
def dlq(dlq: Dlq, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Dlq:
    """`dlq` where the source a has two letters, and the queue of the source gone is not there."""
    monkeypatch.setenv("COLUMNS", "80")
    broker = at(tmp_path)
    for queue in ("a.dlq", "orders"):
        broker.declare(queue)
    broker.put("a.dlq", LETTER, LETTER)
    (tmp_path / "dlq.toml").write_text(memory_sources(in_file(tmp_path), "a", "gone"))
    return dlq


def at(folder: Path) -> MemoryBroker:
    return broker_at(in_file(folder))


@each_row(("first", "last", "expected"), [
    (Gauge(5, 1, 10), Gauge(7, 1, 14), (0.6, 0.4)),  # 4 went, and yet there are 2 more
    (Gauge(5, 1, 10), Gauge(3, 1, 12), (0.0, 0.2)),
    (Gauge(5, 1, 10), Gauge(3, 1, 11), (0.0, 0.1)),  # counted late: nothing less than nothing came
    (Gauge(5, 1, 10), Gauge(7, 1, 2), (None, None)),  # the broker was started anew
    (Gauge(5), Gauge(7), (0.2, 0.0)),
    (Gauge(7), Gauge(5), (0.0, 0.2)),
    (Gauge(5, 1, None), Gauge(5, 1, 9), (0.0, 0.0)),
    (Gauge(None), Gauge(5), (None, None)),
    (Gauge(5), Gauge(None), (None, None)),
])  # fmt: skip
def test_rates_are_told_from_depth_and_acknowledgements(
    first: Gauge, last: Gauge, expected: tuple[float | None, float | None]
) -> None:
    assert measure_rates([(0.0, first), (10.0, last)]) == expected


def test_one_look_or_acknowledgements_that_are_counted_late_make_no_early_rate() -> None:
    late = [(0.0, Gauge(5, 1, 10)), (9.0, Gauge(7, 1, 14))]
    for seen in ([], [(0.0, Gauge(5))], [(1.0, Gauge(5)), (1.0, Gauge(6))], late):
        assert measure_rates(seen) == (None, None), seen


def test_a_pattern_is_the_sum_of_its_queues() -> None:
    one, other = Consumption("a", 3, 1, 5), Consumption("b", 4, 2, 6)
    assert gauge_of([], []) == Gauge(0, 0, 0)
    assert gauge_of([one, other], [9, 7]) == Gauge(7, 3, 11, 7)
    assert gauge_of([one, Consumption("b", 4)], []) == Gauge(7)


def test_each_look_is_a_line_of_json(dlq: Dlq, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def later(_seconds: float) -> None:
        for _ in range(3):
            at(tmp_path).put("a.dlq", LETTER)

    monkeypatch.setattr(watch, "sleep", later)
    code, out, err = dlq("watch", "a", "--count", "2", "-o", "jsonl")
    first, second = rows(out)
    assert (code, err) == (0, "")
    assert set(first) == {"at", "sources", "replays"}
    unknown = ("consumers", "in_per_second", "out_per_second", "oldest_at", "note", "error")
    assert first["sources"] == [{"source": "a", "depth": 2, **dict.fromkeys(unknown)}]
    assert second["sources"][0]["depth"] == 5
    assert second["sources"][0]["in_per_second"] > 0


def test_a_source_that_cannot_be_asked_stops_no_other(dlq: Dlq) -> None:
    code, out, _err = dlq("watch", "--count", "1", "-o", "table")
    assert code == 3
    assert "a       2      ?          ?     ?      ?" in out.splitlines()
    assert any(line.startswith("gone: ") and "gone.dlq" in line for line in out.splitlines())
    assert "\x1b" not in out
    assert dlq("watch", "gone", "--count", "1")[0] == 4


@each_row(("words", "reason"), [
    (("nowhere",), "unknown source 'nowhere'"), (("--every", "soon"), "not a duration"),
    (("--every", "0"), "give more, like 5m"), (("--count", "0"), "--count"),
])  # fmt: skip
def test_what_makes_no_sense_is_refused(dlq: Dlq, words: tuple[str, ...], reason: str) -> None:
    code, _out, err = dlq("watch", *words)
    assert (code, reason in err) == (2, True)


def test_a_replay_that_goes_on_meanwhile_is_shown(dlq: Dlq, monkeypatch: pytest.MonkeyPatch) -> None:
    dlq("pull", "a")
    _, out, _ = dlq("replay", "plan", "--any-advice", "--to", "queue:orders", "-o", "json")
    plan = json.loads(out)["plan"]

    _, out, _ = dlq("watch", "a", "--count", "2", "--every", "0.01", "-o", "jsonl")
    assert [one["replays"] for one in rows(out)] == [[], []], "what does not move is not shown"
    apply = ["replay", "apply", plan, "-q", "-o", "json"]
    monkeypatch.setattr(watch, "sleep", lambda _seconds: run(apply))
    _, out, _ = dlq("watch", "a", "--count", "2", "-o", "jsonl")
    before, after = (json.loads(line) for line in out.splitlines() if line.startswith('{"at"'))
    assert before["replays"] == []
    [shown] = after["replays"]
    assert (shown["plan"], shown["states"]["confirmed"], shown["came_back"]) == (plan, 2, 0)


def test_a_dead_broker_is_asked_again(dlq: Dlq, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "sleep", lambda _seconds: at(tmp_path).declare("gone.dlq"))
    _, out, _ = dlq("watch", "gone", "--count", "2", "-o", "jsonl")
    seen: list[dict[str, Any]] = [one["sources"][0] for one in rows(out)]
    assert [(one["depth"], one["error"] is None) for one in seen] == [(None, False), (0, True)]


def test_what_is_lost_is_in_the_note_until_somebody_dismisses_it(dlq: Dlq, tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path / "archive"))
    for source in ("a", "gone", "other"):
        losses.keep(store, source, [losses.Missing(f"{source}.dlq", 0, 300)])
    _, out, _ = dlq("watch", "--count", "1", "-o", "jsonl")
    here, gone = json.loads(out)["sources"]
    assert here["note"].startswith("300 letters at most are lost: a.dlq: offsets 0 to 299")
    assert gone["note"].startswith("300 letters at most are lost: gone.dlq")
    _, out, _ = dlq("watch", "--count", "1", "-o", "table")
    told = [
        line.partition(": ")[0] for line in out.splitlines() if ": 300 letters at most are lost: " in line
    ]
    assert told == ["a", "gone"]
    losses.dismiss(store, "a", "known", "ann")
    _, out, _ = dlq("watch", "a", "--count", "1", "-o", "jsonl")
    assert json.loads(out)["sources"][0]["note"] is None
