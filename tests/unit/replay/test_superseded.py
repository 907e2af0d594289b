"""A plan leaves out what something newer of its key has replaced, and says where nobody could look."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.archives import letter
from support.planning import Planning, ids
from support.replaying import Replaying, brokers, judge, settings
from support.rows import each_row

from dlq.archive import segments
from dlq.connectors.newer import Newer, NewerProof, NewerSearch
from dlq.core.clock import now
from dlq.core.errors import Unreachable
from dlq.core.headers.provenance import REPLAY_ID, REPLAY_LAP, REPLAY_OF
from dlq.core.settings import Settings
from dlq.replay.plans import planfile, superseded
from dlq.replay.plans.plan import make
from dlq.replay.plans.wanted import Wanted

OLD, NEW = letter(0).record_id, letter(1).record_id
LIVES = Newer("orders-0", 18, 1_000_000, "billing", True)
WHY = "orders-0 holds a newer one of its key at offset 18, sent 1970-01-01T00:00:01Z; billing has consumed it"
CHECKED = Wanted(check_superseded=True)


@pytest.fixture
def config(tmp_path: Path) -> Settings:
    """A source whose letters have a business key."""
    return settings(tmp_path / "archive", source={"key": "header:entity"})


class Log:
    """Of a broker: the answer that it gives, and what it was asked."""

    def __init__(self, newer: dict[int, Newer] | None = None, unlooked: dict[int, str] | None = None) -> None:
        self.proof = NewerProof(newer or {}, unlooked or {})
        self.asked: list[tuple[str, bool]] | None = None
        self.died: set[tuple[str | None, str]] = set()

    def __call__(self, search: NewerSearch) -> NewerProof:
        self.asked = [(one.record.record_id, one.is_asked) for one in search.letters]
        self.died = {*search.died}
        search.begin(700)
        return self.proof


def given(plan: Planning | Replaying, *rows: dict[str, Any]) -> None:
    """Letters, each with its fields and the advice of its verdict, which is to replay it."""
    letters = [letter(n, origin_kind="queue", **{"key": "a", **row}) for n, row in enumerate(rows)]
    advice = {one.record_id: "replay" for one in letters}
    segments.commit(plan.store, "orders", "pull", 0, "drain", letters, {}, settled=True)
    judge(plan.store, advice)


def test_what_the_log_shows_to_be_replaced_is_left_out_with_its_proof(plan: Planning) -> None:
    given(plan, {"message_id": "m0", "origin_group": "billing"}, {"message_id": "m1"}, {"key": None})
    plan.queue.log = log = Log({0: LIVES})
    header = plan(CHECKED)
    assert (header.letters, header.left_out) == (2, {"superseded": 1})
    assert header.superseded == {OLD: WHY}
    assert log.asked == [(OLD, True), (NEW, True)]
    assert log.died == {("billing", "m0"), (None, "m1")}
    assert header.not_looked_at == {"it has no business key": 1}


def test_what_its_advice_leaves_out_is_not_looked_for(plan: Planning) -> None:
    given(plan, {}, {"key": "b"})
    judge(plan.store, {OLD: "never", NEW: "fix_first"})
    plan.queue.log = log = Log({0: LIVES})
    assert plan(CHECKED).left_out == {"never": 1, "fix_first": 1}
    assert plan(replace(CHECKED, fixed=True)).left_out == {"never": 1, "superseded": 1}
    assert log.asked == [(NEW, True)]


def test_how_much_is_looked_at_is_said_before(plan: Planning) -> None:
    given(plan, {})
    said: list[str] = []
    plan.queue.log = Log()
    with brokers(plan.config, plan.queue) as opened:
        make(plan.store, plan.config, CHECKED, opened, said.append)
    assert said == ["looks for newer messages: at up to 700 of shop, for at most 2m"]


@each_row("word, wanted, goes, count", [
    ("check_first", {}, [], 1),
    ("check_first", {"any_advice": True}, [OLD], 0),
    ("never", {"any_advice": True}, [], 1),
    ("never", {"where": f"record_id = '{OLD}'"}, [OLD], 0),
])  # fmt: skip
def test_its_id_takes_it_in_and_any_advice_unless_its_source_says_never(
    plan: Planning, word: str, wanted: dict[str, Any], goes: list[str], count: int
) -> None:
    source = replace(plan.config.sources["orders"], superseded=word)
    plan.config = replace(plan.config, sources={"orders": source})
    if not list(plan.store.list("segments/")):
        given(plan, {})
    plan.queue.log = Log({0: LIVES})
    header = plan(replace(CHECKED, **wanted))
    assert (ids(plan, header), header.left_out.get("superseded", 0)) == (goes, count)
    assert any("it may overwrite something newer" in warning for warning in header.warnings) == bool(goes)


@each_row("log, goes, why", [
    (Log({2: LIVES}, {1: "retention took it"}), 2, {"retention took it": 1}),
    (lambda _search: unreachable(), 3, {"shop does not answer": 3}),
    (lambda _search: None, 3, {"shop keeps no log": 3}),
])  # fmt: skip
def test_where_nobody_could_look_the_letter_goes_and_that_is_said(
    plan: Planning, log: Any, goes: int, why: dict[str, int]
) -> None:
    if not list(plan.store.list("segments/")):
        given(plan, {}, {"key": "b"}, {"key": "c"})
    plan.queue.log = log
    header = plan(CHECKED)
    assert (header.letters, header.not_looked_at) == (goes, why)


def unreachable() -> NewerProof:
    raise Unreachable("shop does not answer")


def test_too_many_letters_and_none_are_not_looked_for(
    plan: Planning, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(superseded, "MOST", 1)
    plan.queue.log = log = Log({0: LIVES})
    assert (plan(CHECKED).letters, log.asked) == (0, None)
    given(plan, {}, {"key": "b"}, {"key": "c"})
    header = plan(CHECKED)
    assert (header.letters, header.not_looked_at) == (2, {"it is one of more than 1: choose fewer": 2})


def test_it_looks_by_itself_only_where_a_source_names_a_key_and_its_broker_has_a_log(
    plan: Planning, monkeypatch: pytest.MonkeyPatch
) -> None:
    given(plan, {})
    plan.queue.log = Log({0: LIVES})
    assert plan().letters == 1, "it has no log"
    monkeypatch.setattr(superseded, "plugin_of", lambda _kind: type("Plugin", (), {"keeps_letters": True}))
    assert plan().letters == 0
    assert plan(Wanted(check_superseded=False)).letters == 1
    source = replace(plan.config.sources["orders"], key="message_id")
    plan.config = replace(plan.config, sources={"orders": source})
    assert plan().letters == 1, "it names no key"


HOUR = 3_600_000_000
PAIRS: list[tuple[dict[str, Any], bool]] = [
    ({"published_at": 2 * HOUR}, True),
    ({"published_at": HOUR}, False),
    ({"published_at": None}, False),
    ({"published_at": 2 * HOUR, "origin": "bills"}, False),
    ({"published_at": 2 * HOUR, "origin_group": "audit"}, False),
]
"""A letter of the same key as one that was published after an hour -> whether it replaces that one."""


def test_a_newer_letter_of_the_key_that_goes_along_replaces_an_older_one_unless_they_go_in_order(
    plan: Planning,
) -> None:
    rows = [{"key": f"{n}", **other} for n, (other, _) in enumerate(PAIRS)]
    given(plan, *({"key": f"{n}", "published_at": HOUR} for n in range(len(PAIRS))), *rows)
    plan.queue.log = Log()
    why = f"letter {letter(5).record_id[:12]} of its key is newer, and is chosen for this plan, too"
    assert plan(CHECKED).superseded == {OLD: why}
    assert plan(replace(CHECKED, in_order="sent")).superseded == {}


def test_that_another_source_goes_in_order_changes_nothing_for_this_one(plan: Planning) -> None:
    stock = replace(plan.config.sources["orders"], name="stock", in_order=True)
    plan.config = replace(plan.config, sources={**plan.config.sources, "stock": stock})
    given(plan, {"published_at": HOUR}, {"published_at": 2 * HOUR})
    plan.queue.log = Log()
    assert ids(plan, plan(CHECKED)) == [NEW]


@pytest.mark.parametrize("where", [None, f"record_id IN ('{OLD}', '{NEW}')"])
def test_whatever_is_said_the_newest_of_one_ledger_key_goes(plan: Planning, where: str | None) -> None:
    given(plan, {"published_at": HOUR}, {"published_at": 2 * HOUR})
    plan.queue.log = Log()
    header = plan(replace(CHECKED, where=where, any_advice=True))
    assert (ids(plan, header), header.left_out) == ([NEW], {"superseded": 1})


def test_any_advice_takes_in_an_older_one_of_another_ledger_key(plan: Planning) -> None:
    given(plan, {"published_at": HOUR, "headers": {REPLAY_LAP: "1"}}, {"published_at": 2 * HOUR})
    plan.queue.log = Log()
    assert len(plan(CHECKED).superseded) == 1
    assert ids(plan, plan(replace(CHECKED, any_advice=True))) == [OLD, NEW]


def test_in_one_log_its_order_tells_what_is_newer_whatever_the_clocks(plan: Planning) -> None:
    given(plan, {"published_at": HOUR}, {"published_at": 2 * HOUR})
    plan.queue.log = log = Log()
    log.proof.places |= {0: ("orders-0", 9), 1: ("orders-0", 8)}
    assert ids(plan, plan(CHECKED)) == [OLD]


def test_a_newer_letter_that_was_replayed_replaces_an_older_one_unless_it_came_back(
    replay: Replaying,
) -> None:
    """At another target: at the same one the ledger keeps the older one back by itself."""
    given(replay, {"published_at": HOUR}, {"published_at": 2 * HOUR})
    replay.queue.log = log = Log()
    replay.apply(replay.plan(where=f"record_id = '{NEW}'", check_superseded=False))
    wanted = {"to": "queue:bills", "check_superseded": True}
    header = planfile.load(replay.store, replay.plan(**wanted))
    assert log.asked == [(OLD, True), (NEW, False)]
    assert header.superseded == {
        OLD: f"letter {NEW[:12]} of its key is newer, and was replayed and did not come back"
    }
    [replay_id] = replay.queue.arrived()
    back = letter(7, headers={REPLAY_ID: replay_id}, captured_at=now())
    segments.commit(replay.store, "orders", "again", 0, "drain", [back], {}, settled=True)
    assert planfile.load(replay.store, replay.plan(**wanted)).superseded == {}


@pytest.mark.parametrize(
    ("origin", "of", "first", "is_replaced"),
    [
        ("orders", OLD, ("m0", HOUR), True),
        ("bills", OLD, ("m7", 3 * HOUR), False),
        ("bills", "f" * 32, (None, 3 * HOUR), False),
    ],
)
def test_a_letter_that_came_back_is_as_old_as_its_message_was_at_first(
    replay: Replaying, origin: str, of: str, first: tuple[str | None, int], is_replaced: bool
) -> None:
    """Its replay lies behind what was newer already; where it went elsewhere, it was first there."""
    given(replay, *({"message_id": f"m{n}", "published_at": (n + 1) * HOUR} for n in range(2)))
    replay.apply(replay.plan(where=f"record_id = '{OLD}'", check_superseded=False))
    [replay_id] = replay.queue.arrived()
    marks = {REPLAY_ID: replay_id, REPLAY_OF: of, "dlq_replay_lap": "1"}
    told = {"key": "a", "message_id": "m7", "published_at": 3 * HOUR, "origin": origin}
    back = letter(7, origin_kind="queue", headers=marks, captured_at=now(), **told)
    segments.commit(replay.store, "orders", "again", 0, "drain", [back], {}, settled=True)
    judge(replay.store, dict.fromkeys((OLD, NEW, back.record_id), "replay"))
    asked: dict[str, tuple[str | None, int | None]] = {}

    def log(search: NewerSearch) -> None:
        asked.update((one.record.record_id, (one.record.message_id, one.record.published_at))
                     for one in search.letters)  # fmt: skip

    replay.queue.log = log
    header = planfile.load(replay.store, replay.plan(to="queue:bills", check_superseded=True))
    assert asked[back.record_id] == first
    why = f"letter {NEW[:12]} of its key is newer, and is chosen for this plan, too"
    assert header.superseded == ({back.record_id: why} if is_replaced else {})
