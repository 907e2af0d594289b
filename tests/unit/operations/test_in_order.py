"""A plan in order: of each key one letter after the other, on the embedded broker, with a consumer that does
its work whenever somebody asks how far it is."""

import json
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import pytest
from support import preloaded
from support.archives import change_body
from support.builders import in_file, memory_sources
from support.waiting import eventually

from dlq.cli.app import run
from dlq.cli.context import Context
from dlq.connectors.base import Connector
from dlq.connectors.memory import MemoryConnector, broker_at
from dlq.core.errors import UsageError
from dlq.operations.analysis import AnalysisWanted, analyze_archive
from dlq.operations.brokers.pulling import PullWanted, pull_sources
from dlq.operations.outcome import ExitCode
from dlq.operations.reading.selecting import Selection
from dlq.operations.replays import in_order
from dlq.operations.replays.applying import apply_plan, reconcile_plan
from dlq.operations.replays.in_order import apply_in_order
from dlq.operations.replays.plans import PlanWanted, make_plan
from dlq.operations.workspace import Notes, Workspace, open_workspace
from dlq.replay import dismissals, ledger
from dlq.replay.plans import planfile
from dlq.replay.plans.wanted import Wanted
from dlq.replay.runs import ordering

Document = dict[str, Any]


def version(text: str) -> Document:
    """A message that is named by its key and the version that it has of it; sent at that second."""
    key, number = text[:-1], text[-1]
    death = {"reason": "rejected", "queue": "orders", "exchange": "", "count": 1}
    headers: Document = {"x-death": [death], "x-first-death-queue": "orders"}
    if key:
        headers["order"] = key
    properties = {"message_id": text, "timestamp": f"2026-11-02T03:00:0{number}Z"}
    told = {"message_id": text, "headers": headers, "properties": properties, "body_text": text}
    return {"broker_kind": "rabbitmq", **told}


class Shop:
    """An archive, a queue `orders`, and its consumer."""

    def __init__(self, folder: Path) -> None:
        self.notes, self.folder = Notes(), folder
        self.broker = broker_at(in_file(folder))
        for queue in ("orders", "orders.dlq"):
            self.broker.declare(queue)
        self.seen: list[str] = []
        self.fails: Callable[[str], bool] = lambda _text: False
        self.takes = 1_000

    @property
    def workspace(self) -> Workspace:
        return open_workspace(Context().settings, self.notes)

    def dead(self, *texts: str) -> None:
        """Capture these."""
        self.broker.put("orders.dlq", *map(version, texts))
        assert pull_sources(self.workspace, PullWanted()).code is ExitCode.DONE

    def plan(self, where: str | None = None, **wanted: Any) -> Document:
        how = Wanted(any_advice=True, **{"in_order": "consumed", **wanted})
        return make_plan(self.workspace, PlanWanted((), Selection(where), how)).document

    def planned(self, *texts: str) -> str:
        """A plan of these."""
        self.dead(*texts)
        return str(self.plan()["plan"])

    def consume(self) -> None:
        """Take what lies there; what fails dies again."""
        for number, text in self.broker.sql("SELECT number, document FROM letters WHERE queue = 'orders'"):
            document = json.loads(text)
            if len(self.seen) < self.takes:
                self.seen.append(document["body_text"])
                self.broker.sql("DELETE FROM letters WHERE number = ?", [number])
                if self.fails(document["body_text"]):
                    document["headers"] |= version(document["body_text"])["headers"]
                    self.broker.put("orders.dlq", document)

    def apply(self, plan: str, *release: str) -> Document:
        return apply_in_order(self.workspace, plan, None, release).document

    def stops(self, plan: str, *release: str) -> list[str]:
        """Apply it: why keys stopped."""
        return [one["why"] for one in self.apply(plan, *release)["stopped_keys"]]

    def lines(self) -> dict[str, str]:
        """Key -> the versions that the consumer got, in that order."""
        found: dict[str, str] = {}
        for text in self.seen:
            found[text[:-1]] = found.get(text[:-1], "") + text[-1]
        return found


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.chdir(tmp_path)
    more = 'mode = "drain"\nkey = "header:order"\n'
    wait = '[replay]\nramp_wait = "10ms"\n[analysis]\nafter_pull = false\n'
    (tmp_path / "dlq.toml").write_text(memory_sources(in_file(tmp_path), "orders", more=more) + wait)
    shop = Shop(tmp_path)
    real = in_order.read_standing

    def consume_and_tell(brokers: Any, places: Collection[Any]) -> Any:
        shop.consume()
        return real(brokers, places)

    monkeypatch.setattr(in_order, "read_standing", consume_and_tell)
    return shop


def test_versions_go_in_the_order_of_sending_and_keys_side_by_side(shop: Shop) -> None:
    shop.dead("b2", "a3", "a1", "b1", "a2", "c1")
    made = shop.plan()
    assert (made["in_order"], made["unkeyed"]) == ("consumed", 0)
    done = shop.apply(made["plan"])
    assert shop.lines() == {"a": "123", "b": "12", "c": "1"}
    assert [step["sent"] for step in done["steps"]] == [3, 2, 1]
    assert (done["sent"], done["states"]["confirmed"], done["stopped_keys"]) == (6, 6, [])
    again = shop.apply(made["plan"])
    assert (again["sent"], again["skipped"]) == (0, 6)


def test_one_that_dies_again_stops_its_key_alone_until_that_is_released(shop: Shop) -> None:
    plan = shop.planned("a1", "a2", "a3", "b1", "b2")
    shop.fails = lambda text: text in ("a1", "a2")
    applied = apply_in_order(shop.workspace, plan)
    [stopped] = applied.document["stopped_keys"]
    assert applied.code is ExitCode.PARTLY
    assert (stopped["key"], stopped["why"], len(stopped["left"])) == ("a", "died_again", 2)
    assert applied.document["states"]["planned"] == 2
    assert shop.lines() == {"a": "1", "b": "12"}
    assert [one["key"] for one in shop.apply(plan, "a")["stopped_keys"]] == ["a"], "the next one died, too"
    shop.fails = lambda _text: False
    assert shop.apply(plan)["sent"] == 0, "a release is of what had died by then"
    assert shop.stops(plan, "a") == []
    assert shop.lines() == {"a": "123", "b": "12"}


def test_a_new_plan_puts_what_came_back_where_it_was_first_sent(shop: Shop) -> None:
    first = shop.planned("a2", "a1", "a3")
    shop.fails = lambda text: text == "a1"
    shop.apply(first)
    shop.fails = lambda _text: False
    shop.apply(shop.plan()["plan"])
    assert shop.lines() == {"a": "1123"}


def test_a_consumer_that_is_not_there_stops_all_until_what_was_sent_is_proven(shop: Shop) -> None:
    plan = shop.planned("a1", "a2", "b1", "b2")
    shop.takes = 1
    applied = apply_in_order(shop.workspace, plan)
    assert (applied.document["stopped_by"], applied.document["sent"]) == ("no_evidence", 2)
    assert applied.code is ExitCode.PARTLY
    assert any("1 wait in orders" in text for text in shop.notes.problems)
    assert shop.apply(plan)["sent"] == 0
    shop.takes = 9
    assert shop.apply(plan)["sent"] == 2
    assert shop.lines() == {"a": "12", "b": "12"}


def test_without_a_key_it_goes_at_any_time_and_is_counted(shop: Shop) -> None:
    shop.dead("1", "2", "a1", "a2")
    made = shop.plan()
    assert made["unkeyed"] == 2
    assert any("no key" in text for text in made["warnings"])
    assert [step["sent"] for step in shop.apply(made["plan"])["steps"]] == [3, 1]


def test_a_rate_is_kept_from_wave_to_wave(shop: Shop) -> None:
    shop.dead("a1", "a2", "a3", "a4")
    plan = shop.plan(in_order="sent", rate=5.0)["plan"]
    begun = time.monotonic()
    assert shop.apply(plan)["sent"] == 4
    assert time.monotonic() - begun >= 0.5, "three times a fifth of a second, and a burst of a tenth"


def test_growing_waves_stop_at_harm(shop: Shop) -> None:
    plan = shop.planned(*(f"{key}{number}" for key in "abcdefghijklmno" for number in (1, 2)))
    shop.fails = lambda text: text[0] != "a"
    done = apply_in_order(shop.workspace, plan, 0.1).document
    assert done["stopped_by"] == "harm"
    assert [step["sent"] for step in done["steps"]] in ([1, 10], [1])


@pytest.mark.parametrize(("in_order", "texts"), [("sent", ["a1", "a2", "b1", "c1"]), ("consumed", "1234")])
def test_a_ramp_watches_also_what_waits_for_no_evidence_or_has_no_key(
    shop: Shop, in_order: str, texts: Sequence[str]
) -> None:
    shop.dead(*texts)
    shop.fails = lambda _text: True
    plan = shop.plan(in_order=in_order)["plan"]
    done = apply_in_order(shop.workspace, plan, 0.1).document
    assert ([step["sent"] for step in done["steps"]], done["stopped_by"]) == ([1], "harm")
    assert len(shop.seen) == 1
    shop.fails = lambda _text: False
    assert apply_in_order(shop.workspace, plan, 0.1).document["stopped_by"] is None
    assert len(shop.seen) == (3 if in_order == "sent" else 4), "the key of what died stays where it is"


def test_a_ramp_in_the_order_of_sending_goes_by_what_comes_back_where_nothing_tells_more(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_order, "read_standing", lambda _brokers, _places: shop.consume() or {})
    shop.dead("a1", "a2", "b1")
    done = apply_in_order(shop.workspace, shop.plan(in_order="sent")["plan"], 0.1).document
    assert (done["stopped_by"], {step["evidence"] for step in done["steps"]}) == (None, {"unknown"})
    assert shop.lines() == {"a": "12", "b": "1"}


def test_a_newer_one_that_was_consumed_is_said_before_anything_is_sent(shop: Shop) -> None:
    shop.dead("a1", "a2", "a3")
    newest = "message_id = 'a3'"
    plan = shop.plan(where="message_id <> 'a3'")["plan"]
    newer = shop.plan(where=newest)
    assert any("an older letter of their key" in text for text in newer["warnings"])
    shop.apply(newer["plan"])
    assert any("a newer message of their key" in text for text in shop.plan()["warnings"])
    shop.notes.problems.clear()
    shop.apply(plan)
    assert shop.notes.problems[0].startswith("2 letters: a newer message of their key was sent again")


def test_a_source_in_order_needs_no_flag_and_others_stay_as_they_are(shop: Shop) -> None:
    config = shop.folder / "dlq.toml"
    config.write_text(config.read_text().replace('key = "', 'in_order = true\nkey = "'))
    shop.dead("a2", "a1")
    assert shop.plan(in_order=None)["in_order"] == "consumed"
    with pytest.raises(UsageError, match="--limit may leave out the first"):
        shop.plan(in_order=None, limit=1)
    config.write_text(config.read_text().replace("in_order = true", "in_order = false"))
    assert shop.plan(in_order=None, limit=1)["in_order"] is None


def test_no_plan_in_order_goes_in_any_order(shop: Shop) -> None:
    plan = shop.planned("a2", "a1")
    with pytest.raises(UsageError, match="key by key, and this would send it in any order"):
        apply_plan(shop.workspace, plan)
    with pytest.raises(UsageError, match="has that key"):
        shop.apply(plan, "z")
    with pytest.raises(UsageError, match="was made without --in-order"):
        shop.apply(shop.plan(in_order=None)["plan"], "a")
    assert shop.seen == []


def test_versions_are_no_duplicates_where_their_key_is_that_of_an_entity(shop: Shop) -> None:
    shop.dead("a1", "a2", "b1", "a3")
    analyze_archive(shop.workspace, AnalysisWanted())
    chosen = Selection("message_id <> 'a3'")
    in_order = Wanted(fixed=True, in_order="consumed")
    unordered = make_plan(shop.workspace, PlanWanted((), chosen, Wanted(fixed=True))).document
    assert unordered["left_out"] == {"check_first": 1}
    made = make_plan(shop.workspace, PlanWanted((), chosen, in_order)).document
    assert (made["selected"], made["left_out"]) == (3, {})
    shop.apply(made["plan"])
    made = make_plan(shop.workspace, PlanWanted(how=in_order)).document
    assert (made["selected"], made["left_out"]) == (1, {"replayed": 3})


def test_where_nothing_tells_of_consumers_the_order_of_sending_is_what_there_is(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ordering, "read_standing", lambda _brokers, _places: {})
    shop.dead("a2", "b1", "a1")
    with pytest.raises(UsageError, match="whether letters for queue:orders on shop are consumed"):
        shop.plan()
    plan = shop.plan(in_order="sent")["plan"]
    assert shop.apply(plan)["sent"] == 3
    shop.consume()
    assert shop.lines()["a"] == "12"


def test_what_was_changed_or_the_broker_refused_stops_its_key(shop: Shop) -> None:
    plan = shop.planned("a1", "a2", "b1", "b2", "c1")
    first = next(planfile.letters(shop.workspace.store, plan))
    change_body(shop.workspace.store, first.record_id, b"somebody else's")
    shop.broker.faults.refuse = lambda letter: letter.record.body == b"b1"
    done = apply_in_order(shop.workspace, plan, 1.0)
    assert [one["why"] for one in done.document["stopped_keys"]] == ["refused", "refused"]
    assert (shop.lines(), done.code) == ({"c": "1"}, ExitCode.IN_DOUBT)
    assert any(first.record_id in said for said in shop.notes.problems)
    shop.broker.faults.refuse = lambda _letter: False
    assert shop.stops(plan, "a", "b") == []
    assert shop.lines() == {"c": "1", "a": "2", "b": "2"}


def test_what_another_plan_has_sent_elsewhere_or_is_about_to_stops_its_key(shop: Shop) -> None:
    plan = shop.planned("a1", "a2", "b1", "c1", "c2")
    shop.broker.declare("repairs")
    sent, begun = (
        shop.plan(f"message_id = '{one}'", to="queue:repairs", in_order=None)["plan"] for one in ("a1", "c1")
    )
    apply_plan(shop.workspace, sent)
    with shop.workspace.store.lock(f"plan-{begun}"):
        done = shop.apply(plan)
    assert [(one["key"], one["why"]) for one in done["stopped_keys"]] == [
        ("a", "sent_elsewhere"), ("c", "sent_elsewhere"),
    ]  # fmt: skip
    assert (done["sent_elsewhere"], shop.lines()) == (2, {"b": "1"})
    assert shop.stops(plan) == ["sent_elsewhere"], "until that has ended"
    assert shop.stops(plan, "a") == []
    assert shop.lines() == {"b": "1", "c": "12", "a": "2"}


def test_what_is_in_doubt_stops_its_key_and_cannot_be_released(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = shop.planned("a1", "a2")
    shop.takes, shop.broker.faults.cut_publishing_after = 0, 1
    with monkeypatch.context() as silent:
        silent.setattr(MemoryConnector, "find", Connector.find)
        assert shop.stops(plan) == ["in_doubt"]
        with pytest.raises(UsageError, match="is in doubt; run dlq replay reconcile"):
            shop.apply(plan, "a")
        first = next(planfile.letters(shop.workspace.store, plan))
        with ledger.opened(shop.workspace.settings.ledger, shop.workspace.store) as book:
            dismissals.dismiss(book, [first.record_id], "by who began before it was sent")
        assert shop.stops(plan) == ["in_doubt"]
    reconcile_plan(shop.workspace, plan)
    shop.takes = 9
    assert shop.stops(plan) == []
    assert shop.lines() == {"a": "12"}


def test_what_went_to_the_same_target_by_another_key_goes_never_again(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.dead("a1", "b1")
    by_business_key, late = shop.plan(in_order=None)["plan"], shop.plan(again=True)["plan"]
    monkeypatch.setattr(MemoryConnector, "find", Connector.find)
    shop.broker.faults.cut_publishing_after = 1
    apply_plan(shop.workspace, by_business_key)
    for again in (False, True):
        made = shop.plan(again=again)
        assert (made["selected"], made["left_out"]) == (0, {"replayed": 1, "in_doubt": 1})
    done = shop.apply(late)
    assert (done["sent"], done["sent_elsewhere"]) == (0, 2)
    shop.consume()
    assert shop.lines() == {"a": "1", "b": "1"}


def test_the_command_line_tells_who_waits_and_how_they_go_on(
    shop: Shop, capfd: pytest.CaptureFixture[str]
) -> None:
    shop.dead("a1", "a2", "b1")
    shop.fails = lambda text: text == "a1"
    run(["-o", "json", "replay", "plan", "--any-advice", "--in-order"])
    plan = json.loads(capfd.readouterr().out)["plan"]
    assert run(["replay", "status", plan]) == ExitCode.DONE
    assert run(["-o", "table", "replay", "apply", plan]) == ExitCode.PARTLY
    told = capfd.readouterr().out
    assert "died again, 1 wait: " in told
    assert f"dlq replay apply {plan} --release a" in told
    assert run(["-o", "table", "replay", "status", plan]) == ExitCode.PARTLY
    assert "died again, 1 wait: " in capfd.readouterr().out
    assert run(["replay", "apply", plan, "--release", "a"]) == ExitCode.DONE
    assert run(["replay", "plan", "--in-order=any"]) == ExitCode.USAGE
    assert "'any' is not one of 'consumed', 'sent'" in capfd.readouterr().err


def test_after_kill_minus_nine_the_next_apply_goes_on_and_nothing_goes_twice_or_too_early(shop: Shop) -> None:
    """It is killed in the second wave."""
    shop.dead(*(f"{key}{number}" for key in "abcdefghij" for number in (3, 1, 2)))
    plan = shop.plan(rate=40.0)["plan"]
    shop.fails = lambda text: text in ("a1", "b1", "c1")
    killed = preloaded.start(["replay", "apply", plan], shop.folder)
    assert eventually(lambda: shop.consume() or len(shop.seen) >= 14)
    killed.kill()
    killed.wait()
    applied = preloaded.start(["replay", "apply", plan], shop.folder)
    assert eventually(lambda: shop.consume() or applied.poll() is not None)
    shop.consume()
    assert len(shop.seen) == len(set(shop.seen)), "nothing goes twice"
    assert all("123".startswith(numbers) for numbers in shop.lines().values()), "nothing goes too early"
    assert [shop.lines()[key] for key in "abc"] == ["1"] * 3
    assert sum(numbers == "123" for numbers in shop.lines().values()) >= 6, "but for one in doubt at most"
