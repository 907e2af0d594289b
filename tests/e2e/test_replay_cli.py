"""`dlq replay` and `dlq verify` as a user types them, on the embedded broker."""

import json
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.builders import in_file, memory_sources
from support.rows import each_row
from support.waiting import UNHURRIED, eventually

from dlq.connectors.memory import MemoryBroker

Dlq = Callable[..., Any]
LETTERS = 12
DEATH = {"queue": "orders", "reason": "rejected", "exchange": "", "routing-keys": ["orders"], "count": 1}
DIED = {"x-death": [DEATH], "x-first-death-queue": "orders"}


class Workspace:
    """A configuration with the embedded broker, and the command."""

    def __init__(self, folder: Path, dlq: Dlq, mode: str = "drain") -> None:
        self.folder, self._dlq = folder, dlq
        self.broker = MemoryBroker(str(folder / "broker.db"))
        text = memory_sources(in_file(folder), "orders", more='mode = "drain"\n[replay]\nramp_wait = "2s"\n')
        (folder / "dlq.toml").write_text(text)
        letter = {"broker_kind": "rabbitmq", "headers": {**DIED, "app": "shop"}}
        self.broker.put("orders.dlq", *({**letter, "body_text": f"order {n}"} for n in range(LETTERS)))
        self.broker.declare("orders")
        assert self("pull", "--mode", mode).code == 0

    def __call__(self, *words: str) -> Any:
        return self._dlq(*words, "-o", "json")

    def say(self, *words: str) -> Any:
        return self._dlq(*words, "-o", "table", "--no-color")

    def plan(self, *words: str) -> str:
        done = self("replay", "plan", "--any-advice", *words)
        assert done.code == 0, done.err
        return str(done.json["plan"])

    def exported(self) -> list[dict[str, Any]]:
        assert self("export", "letters.jsonl").code == 0
        return [json.loads(line) for line in (self.folder / "letters.jsonl").read_text().splitlines()]

    def write(self, name: str, lines: list[dict[str, Any]]) -> None:
        (self.folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.fixture
def workspace(tmp_path: Path, dlq: Dlq) -> Workspace:
    return Workspace(tmp_path, dlq)


def test_plan_apply_status_and_verify_have_the_keys_of_the_design(workspace: Workspace) -> None:
    made = workspace("replay", "plan", "--any-advice", "--where", "source = 'orders'")
    assert made.code == 0
    assert made.json["selected"] == LETTERS
    assert made.json["targets"] == {"queue:orders": LETTERS}
    assert made.json["left_out"] == {}
    assert len(made.json["digest"]) == 64
    plan = made.json["plan"]
    waiting = workspace("replay", "status", plan)
    assert (waiting.code, waiting.json["states"]["planned"]) == (0, LETTERS)
    applied = workspace("replay", "apply", plan)
    zero = dict.fromkeys(("planned", "sending", "returned", "refused", "in_doubt", "held"), 0)
    assert applied.code == 0
    assert applied.json["states"] == {**zero, "confirmed": LETTERS}
    assert (applied.json["plan"], applied.json["sent"], applied.json["skipped"]) == (plan, LETTERS, 0)
    assert workspace.broker.depth("orders") == LETTERS
    again = workspace("replay", "apply", plan[:-2])
    assert (again.code, again.json["sent"], again.json["skipped"]) == (0, 0, LETTERS)
    books = workspace("verify")
    assert (books.code, books.json["balanced"]) == (0, True)
    [source] = books.json["sources"]
    assert (source["captured"], source["replayed"], source["waiting"]) == (LETTERS, LETTERS, 0)


def test_a_damaged_plan_is_named_and_hides_no_other(workspace: Workspace) -> None:
    plans = [workspace.plan(), workspace.plan("--limit", "1"), workspace.plan("--limit", "2")]
    (workspace.folder / "archive" / "plans" / f"{plans[1]}.jsonl").write_text("{")
    listed = workspace("replay", "status")
    assert [row["plan"] for row in listed.json] == [plans[0], plans[2]]
    assert f"plans/{plans[1]}.jsonl" in listed.err
    assert listed.code == 3


def test_letters_are_named_by_the_beginning_of_their_ids(workspace: Workspace) -> None:
    [first, second, *_] = workspace("ls").json
    made = workspace("replay", "plan", first["record_id"][:12], second["record_id"])
    assert (made.json["selected"], made.json["left_out"]) == (2, {})
    wrong = workspace("replay", "plan", "00000000")
    assert (wrong.code, "no letter has the id 00000000" in wrong.err) == (2, True)
    both = workspace("replay", "plan", first["record_id"], "--where", "true")
    assert (both.code, "use one of the two" in both.err) == (2, True)


def test_a_masked_export_is_no_edit_and_no_import(workspace: Workspace) -> None:
    assert workspace("export", "--mask", "masked.jsonl.gz").code == 0
    edit = workspace("replay", "plan", "--edit", "masked.jsonl.gz")
    assert (edit.code, "masked.jsonl.gz, line 1: it is masked" in edit.err) == (2, True)
    done = workspace("import", "masked.jsonl.gz", "--source", "study")
    assert (done.code, done.json["records"], done.json["refused"]) == (3, 0, LETTERS)


def test_what_arrives_carries_where_it_came_from_and_no_death_history(workspace: Workspace) -> None:
    workspace("replay", "apply", workspace.plan("--limit", "1"))
    [letter] = workspace.broker.letters("orders")
    assert letter["body_text"] == "order 0"
    assert letter["headers"]["dlq_replay_lap"] == "1"
    assert {"dlq_replay_id", "dlq_replay_of", "app"} <= letter["headers"].keys()
    assert not any(name.startswith("x-") for name in letter["headers"])


def test_plans_are_listed_with_their_progress_and_targets(workspace: Workspace) -> None:
    workspace.plan("--where", "false")
    first = workspace.plan("--limit", "5")
    second = workspace.plan()
    workspace("replay", "apply", first)
    listed = workspace("replay", "status").json
    assert [row["plan"] for row in listed] == [first, second]
    assert [(row["confirmed"], row["planned"], row["targets"]) for row in listed] == [
        (5, 0, "queue:orders"),
        (5, 7, "queue:orders"),
    ]
    shown = workspace.say("replay", "status").out
    assert "5 confirmed, 7 planned" not in shown.splitlines()[1]
    assert re.search(rf"{second} +\d+.*s +12 .*7 planned", shown)


def test_plan_and_apply_are_one_step_with_somebody_s_consent(workspace: Workspace) -> None:
    words = ("replay", "plan", "--any-advice", "--apply")
    asked = workspace(*words)
    assert (asked.code, asked.out) == (2, "")
    assert "--apply asks before it sends, and no terminal can answer: add --yes" in asked.err
    assert workspace("replay", "status").json == []
    done = workspace(*words, "--yes")
    assert (done.code, done.json["selected"], done.json["sent"]) == (0, LETTERS, LETTERS)
    assert {"plan", "digest", "left_out", "targets", "states", "skipped", "seconds"} <= done.json.keys()


class Consumer:
    """Takes what comes to the queue orders; with `fails`, each letter dies of that again."""

    def __init__(self, broker: MemoryBroker) -> None:
        self.broker, self.taken, self.fails = broker, 0, ""

    def run(self, ended: threading.Event) -> None:
        while not ended.wait(0.05):
            for number, text in self.broker.sql(
                "SELECT number, document FROM letters WHERE queue = 'orders'"
            ):
                if self.fails:
                    letter = json.loads(text)
                    letter["headers"] |= {**DIED, "x-exception-message": self.fails}
                    letter.pop("queue", None)
                    self.broker.put("orders.dlq", letter)
                self.broker.sql("DELETE FROM letters WHERE number = ?", [number])
                self.taken += 1


@pytest.fixture
def consumer(workspace: Workspace) -> Iterator[Consumer]:
    here, ended = Consumer(workspace.broker), threading.Event()
    thread = threading.Thread(target=here.run, args=[ended])
    thread.start()
    yield here
    ended.set()
    thread.join()


def test_a_ramp_without_a_consumer_sends_one_letter_and_says_what_to_do(workspace: Workspace) -> None:
    plan = workspace.plan()
    done = workspace.say("replay", "apply", plan, "--ramp")
    assert (done.code, workspace.broker.depth("orders")) == (3, 1)
    assert "stopped: nothing shows that the letters of this step are consumed: 1 wait in orders" in done.err
    assert f"Next: dlq replay apply {plan} --ramp   # when the consumer runs: sends the 11 left" in done.out


def test_a_harmful_ramp_names_what_came_back_and_is_offered_again(
    workspace: Workspace, consumer: Consumer
) -> None:
    consumer.fails = "no \x1b[31msuch order"
    config = workspace.folder / "dlq.toml"
    config.write_text(config.read_text().replace('ramp_wait = "2s"', f'ramp_wait = "{UNHURRIED}"'))
    plan = workspace.plan()
    done = workspace.say("replay", "apply", plan, "--ramp")
    assert (done.code, eventually(lambda: consumer.taken)) == (3, 1)
    assert "stopped: 1 of the last 1 letters died again" in done.err
    [came_back] = workspace("ls", "--where", "headers['dlq_replay_id'] is not null").json
    short = came_back["record_id"][:12]
    for shown in (done.out, workspace.say("replay", "status", plan).out):
        assert re.search(rf"came back, the newest\n  {short}  .*no \S*such order", shown)
        assert f"Next: dlq show {short} --explain" in shown
        assert f"dlq replay apply {plan} --ramp   # then send the 11 left" in shown
        assert "\x1b[31m" not in shown


def test_an_edit_is_shown_and_sent(workspace: Workspace) -> None:
    line = workspace.exported()[0]
    line["body_text"] = "mended"
    line["headers"]["app"] = "\x1b[31mshop 2"
    workspace.write("edits.jsonl", [line])
    where = ("--where", f"record_id = '{line['record']['record_id']}'", "--edit", "edits.jsonl")
    shown = workspace.say("replay", "plan", *where)
    assert "+mended" in shown.out
    assert "\x1b[31m" not in shown.out
    workspace("replay", "apply", workspace("replay", "plan", *where).json["plan"])
    [sent] = workspace.broker.letters("orders")
    assert (sent["body_text"], sent["headers"]["app"]) == ("mended", "\x1b[31mshop 2")


def test_people_are_told_what_happens_and_what_to_type_next(workspace: Workspace) -> None:
    shown = workspace.say("replay", "plan", "--any-advice").out
    assert "queue:orders" in shown
    assert "x-death" in shown
    plan = shown.split("Next: dlq replay apply ")[1].strip()
    applied = workspace.say("replay", "apply", plan).out
    assert f"{LETTERS}  confirmed" in applied
    assert "Next: dlq verify" in applied
    assert plan in workspace.say("replay", "status").out
    assert "balanced" in workspace.say("verify").out


def test_copied_letters_are_said_to_lie_in_their_queue_until_a_drain(tmp_path: Path, dlq: Dlq) -> None:
    workspace = Workspace(tmp_path, dlq, mode="copy")
    lie = f"{LETTERS} still lie in orders.dlq"
    shown = workspace.say("replay", "plan", "--any-advice").out
    assert f"{lie}: no pull has taken them out; a replay leaves them there" in shown
    plan = shown.split("Next: dlq replay apply ")[1].strip()
    for word in ("apply", "status"):
        assert f"Next: dlq pull orders --mode drain   # {lie}" in workspace.say("replay", word, plan).out
    verified = workspace.say("verify")
    assert verified.code == 0
    assert f"{lie}: no pull has taken them out; next: dlq pull orders" in verified.err
    drained = workspace("pull", "orders", "--mode", "drain").json["sources"][0]
    assert (drained["captured"], drained["recaptured"]) == (0, LETTERS)
    assert workspace.broker.depth("orders.dlq") == 0
    assert "Next: dlq verify" in workspace.say("replay", "status", plan).out
    assert workspace("verify").err == ""


def test_a_file_that_is_imported_chooses_no_broker_and_a_plan_shows_which_was_named(
    workspace: Workspace,
) -> None:
    config = workspace.folder / "dlq.toml"
    config.write_text(config.read_text() + '[brokers.prod]\nkind = "memory"\nurl = "memory:prod"\n')
    lines = workspace.exported()
    for line in lines:
        line["record"]["broker"] = "prod"
    workspace.write("letters.jsonl", lines)

    def imported(source: str, *named: str) -> tuple[str | None, str, Any]:
        done = workspace("import", "letters.jsonl", "--source", source, *named)
        [row] = workspace("query", f"select distinct broker from records where source = '{source}'").json
        plan = workspace("replay", "plan", "--any-advice", "--source", source).json
        return done.json["broker"], row["broker"], plan

    chosen, kept, plan = imported("nobody")
    assert (chosen, kept, plan["targets"], plan["left_out"]) == (None, "prod", {}, {"no_broker": LETTERS})
    chosen, kept, plan = imported("somebody", "--broker", "shop")
    assert (chosen, kept, plan["targets"]) == ("shop", "shop", {"queue:orders": LETTERS})
    assert plan["target_brokers"] == {"queue:orders": ["shop"]}
    assert "queue:orders  on shop, read by orders" in workspace.say("replay", "plan", "--any-advice").out
    for named, why in (
        ("shpo", "did you mean 'shop'"),
        ("prod", "source orders is configured on broker shop"),
    ):
        refused = workspace("import", "letters.jsonl", "--source", "orders", "--broker", named)
        assert (refused.code, why in refused.err) == (2, True)
    shown = workspace.say("import", "letters.jsonl", "--source", "none", "--no-analyze").out
    assert "no broker is named for them, so no plan takes them: configure [sources.none], or import" in shown


@each_row(("words", "text"), [
    (("replay", "apply", "nonsense"), "no plan"),
    (("replay", "status", "nonsense"), "no plan"),
    (("replay", "stop", "nonsense"), "no plan"),
    (("replay", "reconcile", "nonsense"), "no plan"),
    (("replay", "plan", "--where", "nonsens = 1"), "nonsens"),
    (("replay", "plan", "--to", "topic:x"), "--to"),
    (("replay", "plan", "--rate", "0"), "rate"),
    (("replay", "plan", "--edit", "missing.jsonl"), "missing.jsonl"),
])  # fmt: skip
def test_mistakes_are_one_line_and_exit_2(workspace: Workspace, words: tuple[str, ...], text: str) -> None:
    done = workspace(*words)
    assert done.code == 2
    assert text in done.err
    assert done.err.count("\n") == 1


def test_reconcile_words_exclude_each_other(workspace: Workspace) -> None:
    done = workspace("replay", "reconcile", workspace.plan(), "--all-sent", "--all-not-sent")
    assert done.code == 2
    assert "give only one of" in done.err
