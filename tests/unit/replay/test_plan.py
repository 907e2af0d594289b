"""Making a plan: who is taken, and who is left out and why."""

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from support.archives import letter
from support.planning import Planning, ids
from support.replaying import fill, judge, settings
from support.rows import each_row

from dlq.archive import segments
from dlq.connectors.base import Consumption, Target
from dlq.core.causes import ADVICE
from dlq.core.errors import NotFound, Unreachable, UsageError
from dlq.core.record import Record
from dlq.replay import dismissals
from dlq.replay.ledger.contract import Ledger, Result
from dlq.replay.plans import planfile
from dlq.replay.plans.destinations import is_allowed, target_named
from dlq.replay.plans.letters import Letter, lap_of
from dlq.replay.plans.picking import FIX_FIRST
from dlq.replay.plans.wanted import Wanted, condition_of_ids


def test_a_plan_names_its_letters_in_the_order_of_capture(plan: Planning) -> None:
    known = [one.record_id for one in fill(plan.store, 5)]
    header = plan()
    assert (ids(plan, header), ids(plan, plan(Wanted(limit=2)))) == (known, known[:2])
    assert (header.letters, header.targets, header.left_out) == (5, {"queue:orders": 5}, {})
    assert header.stripped == {"x-death": 5}
    assert header.audience == {"queue:orders": ("orders",)}


def test_a_queue_that_nobody_consumes_is_read_by_nobody(plan: Planning) -> None:
    fill(plan.store, 1)
    for consumers, readers in ((0, ()), (1, ("orders",)), (None, ("orders",))):
        plan.queue.consumed = {Target("queue", "orders"): [Consumption("orders", 3, consumers)]}
        assert plan().audience == {"queue:orders": readers}


@pytest.mark.parametrize("advice", [*ADVICE, None])
def test_advice_leaves_letters_out(plan: Planning, advice: str | None) -> None:
    """`--fixed` takes in what waited for a mended cause alone, `--any-advice` all."""
    fill(plan.store, 2, advice)
    for wanted, goes in ((Wanted(), {"replay"}), (Wanted(fixed=True), {"replay", "fix_first"})):
        header = plan(wanted)
        left_out = {} if advice in goes else {advice or "no_verdict": 2}
        assert (header.letters, header.left_out) == (2 if advice in goes else 0, left_out)
        assert header.warnings == {}
    header = plan(Wanted(any_advice=True))
    assert (header.letters, header.warnings) == (2, {FIX_FIRST: 2} if advice == "fix_first" else {})


NAMED = f"record_id in ('{0:032x}', '{1:032x}')"


@each_row("where, names_them", [
    (NAMED, True), (f"(RECORD_ID IN ('{0:032x}'))", True), (f"record_id = '{0:032x}'", True),
    ("record_id not in ('x')", False), ("not record_id in ('x')", False), ("record_id like '0%'", False),
    (f"{NAMED} or true", False), ("source = 'orders'", False), (None, False),
])  # fmt: skip
def test_only_naming_record_ids_takes_them_in(plan: Planning, where: str | None, names_them: bool) -> None:
    if not list(plan.store.list("segments/")):
        fill(plan.store, 2, "never")
    header = plan(Wanted(where=where))
    assert (bool(header.letters), bool(header.left_out)) == (names_them, not names_them)


@pytest.fixture
def sent(plan: Planning, ledger: Ledger) -> list[Letter]:
    """Seven letters, of which six were sent, and became all that a letter can become."""
    fill(plan.store, 7)
    first = list(planfile.letters(plan.store, plan().plan))
    ledger.claim("first", first[:6])
    states = ("confirmed", "returned", "refused", "in_doubt", "planned")
    ledger.record_results([Result(one.key, state) for one, state in zip(first, states, strict=False)])
    return first


def test_letters_that_the_ledger_knows_are_left_out_by_their_state(
    plan: Planning, sent: list[Letter]
) -> None:
    header = plan()
    assert header.left_out == {"replayed": 1, "returned": 1, "refused": 1, "in_doubt": 1, "sending": 1}
    assert ids(plan, header) == [sent[4].record_id, sent[6].record_id]
    named = condition_of_ids(one.record_id for one in sent)
    for insisting in (Wanted(any_advice=True), Wanted(named)):
        assert plan(insisting).left_out == {"replayed": 1, "in_doubt": 1, "sending": 1}


@pytest.mark.usefixtures("sent")
def test_what_was_sent_to_another_target_is_left_out(plan: Planning) -> None:
    for named in (None, condition_of_ids(f"{number:032x}" for number in range(7))):
        other = plan(Wanted(where=named, to="queue:elsewhere"))
        assert (other.letters, other.left_out) == (4, {"sent_elsewhere": 3})
        assert {where for where in other.warnings if where.startswith("left out")} == {
            f"left out: {state} at queue:orders; --again sends it to this target, too"
            for state in ("confirmed", "in doubt", "sending")
        }
        again = plan(Wanted(where=named, to="queue:elsewhere", again=True))
        assert (again.letters, again.left_out) == (7, {})
        assert again.warnings["it goes once more: confirmed at queue:orders"] == 1


def test_dismissed_letters_are_left_out_whatever_is_said(plan: Planning, ledger: Ledger) -> None:
    first, _ = fill(plan.store, 2)
    dismissals.dismiss(ledger, [first.record_id], "stale")
    for wanted in (
        Wanted(),
        Wanted(any_advice=True),
        Wanted(condition_of_ids(f"{n:032x}" for n in range(2))),
    ):
        header = plan(wanted)
        assert (header.letters, header.left_out) == (1, {"dismissed": 1})


def commit(plan: Planning, *letters: Record, source: str = "orders") -> None:
    segments.commit(plan.store, source, "p", 0, "copy", [*letters], {})


def test_a_letter_without_origin_has_no_target(plan: Planning) -> None:
    commit(plan, letter(1, origin=None))
    assert plan(Wanted(any_advice=True)).left_out == {"no_target": 1}
    assert plan(Wanted(any_advice=True, to="queue:elsewhere")).targets == {"queue:elsewhere": 1}


@pytest.mark.parametrize(("odd", "left_out"), [
    ({"origin": "q" * 2**20}, "no_target"),
    *(({"record_id": odd}, "risky") for odd in ("f" * 65, "feedface\n", "feedface\x1b[2J")),
])  # fmt: skip
def test_an_odd_name_leaves_out_its_letter(plan: Planning, odd: dict[str, str], left_out: str) -> None:
    commit(plan, letter(1), letter(2, **odd))
    header = plan(Wanted(any_advice=True))
    assert (header.left_out, ids(plan, header)) == ({left_out: 1}, [letter(1).record_id])
    told = "left out: the name of its target is longer than any can be (65,536 characters)"
    assert (told in header.warnings) == (left_out == "no_target")
    assert planfile.load_checked(plan.store, header.plan).letters == 1


def test_a_plan_that_could_not_be_read_is_not_made(plan: Planning, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planfile, "LARGEST", 4096)
    known = [letter(n, origin=f"orders.{n}.{'x' * 100}") for n in range(40)]
    commit(plan, *known)
    with pytest.raises(UsageError, match="a plan of 40 letters to 40 different targets is too large"):
        plan(Wanted(any_advice=True))
    assert planfile.ids(plan.store) == []
    assert plan(Wanted(any_advice=True, limit=1)).letters == 1


@pytest.mark.parametrize("advice", [*ADVICE, None])
def test_advice_is_asked_before_the_way_back(plan: Planning, advice: str | None) -> None:
    lost = letter(1, source="gone", broker="gone")
    commit(plan, lost, source="gone")
    assert plan(Wanted(any_advice=True)).left_out == {"no_broker": 1}
    if advice is not None:
        judge(plan.store, {lost.record_id: advice}, "gone")
    goes = advice == "replay"
    assert plan().left_out == {"no_broker" if goes else advice or "no_verdict": 1}


def test_a_risky_letter_is_found_before_it_harms_the_others(plan: Planning) -> None:
    fill(plan.store, 2, body=b"x" * 101, body_size=101)
    header = plan(Wanted(any_advice=True))
    assert header.left_out == {"risky": 2}
    assert header.warnings == {"left out as risky: the body is too large": 2}


BY_ID = condition_of_ids([f"{0:032x}"])
TO_ORDERS = Wanted(to="queue:orders", any_advice=True)


def test_what_must_be_named_is_left_out(plan: Planning) -> None:
    fill(plan.store, 1)
    for what, wanted, sent in (
        ("letter", Wanted(any_advice=True), 0), ("letter", TO_ORDERS, 0), ("letter", Wanted(BY_ID), 1),
        ("target", Wanted(any_advice=True), 0), ("target", TO_ORDERS, 1), ("target", Wanted(BY_ID), 0),
    ):  # fmt: skip
        plan.queue.unless_named = {what: "it deletes a key"}
        header = plan(wanted)
        assert (header.letters, header.left_out.get("risky", 0)) == (sent, 1 - sent), (what, wanted)
        assert any("it deletes a key; name" in warning for warning in header.warnings) == (not sent)


def test_what_no_plan_can_be_made_of_is_a_usage_error(plan: Planning) -> None:
    fill(plan.store, 1)
    for wanted, said in (
        *((Wanted(rate=rate), "rate") for rate in (0.0, -1.0, float("nan"), float("inf"))),
        *((Wanted(where=sql), ".") for sql in ("nonsense = 1", "1 = 1) or (1 = 1", "true; drop table x", "")),
        (Wanted(to="topic:orders"), "queues only"),
    ):
        with pytest.raises(UsageError, match=said):
            plan(wanted)


@each_row("setting, against, is_left, said", [
    (False, [], False, []),
    (True, [], True, []),
    (True, ["no management"], True, ["shop: no management"]),
    ("auto", [], True, []),
    ("auto", ["no management"], False, ["shop: no witness is left: no management"]),
    ("auto", None, False, []),
])  # fmt: skip
def test_a_witness_is_left_where_the_settings_say_so_and_by_auto_where_it_proves_something(
    plan: Planning, setting: bool | str, against: list[str] | None, is_left: bool, said: list[str]
) -> None:
    """`against`: what would keep a witness from proving anything; None: the broker needs none."""
    if not list(plan.store.list("segments/")):
        fill(plan.store, 1)
    plan.queue.against_witness = against
    broker = replace(plan.config.brokers["shop"], witness=setting)
    plan.config = replace(plan.config, brokers={"shop": broker})
    header = plan()
    assert (header.leaves_witness("shop"), list(header.warnings)) == (is_left, said)
    assert not header.leaves_witness("another")
    assert plan(Wanted(witness=True)).leaves_witness("shop"), "when it is asked for"


def test_letters_whose_queue_is_gone_are_left_out_and_a_named_queue_must_be_there(plan: Planning) -> None:
    fill(plan.store, 3)
    plan.queue.not_there = {"orders", "ordres"}
    header = plan()
    assert (header.letters, header.left_out) == (0, {"not_there": 3})
    assert "left out: there is no queue orders on shop" in next(iter(header.warnings))
    with pytest.raises(NotFound, match="--to queue:ordres: there is no queue ordres on shop"):
        plan(Wanted(to="queue:ordres"))


def test_a_letter_from_another_kind_of_broker_has_no_target_until_one_is_named(plan: Planning) -> None:
    """A file with letters of several kinds comes in by `dlq import --broker`."""
    fill(plan.store, 2, broker_kind="rocketmq")
    header = plan()
    assert (header.letters, header.left_out) == (0, {"no_target": 2})
    assert plan(Wanted(to="queue:orders")).letters == 2
    with pytest.raises(UsageError, match="--to group: this broker has queues only"):
        plan(Wanted(to="group"))


def test_a_broker_that_says_nothing_hinders_no_plan(plan: Planning, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing_targets(targets: list[Target]) -> None:
        raise Unreachable("no connection")

    fill(plan.store, 3)
    monkeypatch.setattr(plan.queue, "missing_targets", missing_targets)
    why = "whether its target is there is not proven: no connection"
    assert (plan().letters, plan().warnings) == (3, {why: 1})


def test_the_configuration_limits_where_letters_go(plan: Planning) -> None:
    fill(plan.store, 2)
    for pattern, goes in (("ord*", True), ("queue:orders", True), ("orders", True), ("pay*", False)):
        plan.config = replace(plan.config, replay=replace(plan.config.replay, targets=("other", pattern)))
        assert plan().left_out == ({} if goes else {"not_allowed": 2})
        refused = pytest.raises(UsageError, match=r"allows only other, pay\*")
        with nullcontext() if goes else refused:
            plan(Wanted(to="queue:orders"))


@each_row(
    ("name", "patterns", "goes"),
    [
        ("queue:orders,payments.execute", ["orders*"], False),
        ("queue:orders,payments.execute", ["orders*", "queue:payments.*"], True),
        ("queue:orders,payments.execute", ["orders,payments.execute"], True),
        ("queue:orders , orders.eu,", ["orders*"], True), ("queue:orders, payments", ["orders*"], False),
        ("queue:orders,topic://payments", ["orders*", "queue:*"], False),
        ("queue:orders,topic://payments", ["orders*", "topic:payments"], True),
        ("topic:orders,queue://payments", ["topic:*"], False),
        ("queue:orders,/topic/payments", ["queue:*"], False),
        ("queue:orders,/remote-temp-queue/x", ["orders*"], False),
        ("queue:topic://payments", ["queue:*"], False), ("queue:payments?x=.orders", ["*.orders"], False),
        ("queue:orders?x=y", ["orders*"], True), ("queue:orders.*", ["orders.?"], False),
        ("queue:*", ["orders*"], False), ("queue:orders.>", ["orders.*"], True),
        ("queue:,", ["orders*"], False), ("queue:orders::orders.eu", ["orders*"], True),
        ("exchange:shop/a,b.*", ["exchange:shop/a*"], True),
    ],
)  # fmt: skip
def test_each_member_of_a_composite_has_to_be_allowed(name: str, patterns: list[str], goes: bool) -> None:
    assert is_allowed(target_named(name), patterns) is goes


def test_an_origin_that_only_the_letter_tells_is_said(plan: Planning) -> None:
    fill(plan.store, 1)
    for learned, told in (
        ({}, {"queue:orders": 1}),
        ({"dead_letter_exchanges": {"orders": ""}}, {}),
        ({"dead_letter_exchanges": {"pay": ""}}, {"queue:orders": 1}),
        ({"places_of_the_dead": {"orders": ["orders.dlq", None]}}, {}),
        ({"places_of_the_dead": {"orders": ["elsewhere", None]}}, {"queue:orders": 1}),
    ):
        known = {"source": "orders", "format": 1, **learned}
        plan.store.put("topology/p.json", json.dumps(known).encode())
        assert plan().told_by_letters == told, learned
        assert plan(Wanted(to="queue:orders")).told_by_letters == {}


def test_a_message_resent_under_a_new_id_is_the_same_business_message(plan: Planning) -> None:
    fill(plan.store, 3, key="order-17")
    assert plan().letters == 3, "message ids are no business keys"
    plan.config = settings(Path(plan.store.location), source={"key": "header:order"})
    header = plan()
    assert (header.letters, header.left_out) == (1, {"same_key": 2})


def test_a_letter_that_lies_under_two_sources_is_sent_once(plan: Planning) -> None:
    renamed = [one._replace(source="renamed") for one in fill(plan.store, 2)]
    segments.commit(plan.store, "renamed", "pull9", 0, "import", renamed, {}, settled=True)
    header = plan(Wanted(any_advice=True))
    assert (header.letters, header.left_out) == (2, {"same_key": 2})


def test_what_is_left_out_keeps_no_other_letter_of_its_business_message_back(plan: Planning) -> None:
    fill(plan.store, 1, key="order-17", body=b"x" * 101, body_size=101)
    fill(plan.store, 2, start=1, key="order-17")
    judge(plan.store, {letter(number).record_id: "replay" for number in range(3)})
    plan.config = settings(Path(plan.store.location), source={"key": "header:order"})
    header = plan()
    assert (ids(plan, header), header.left_out) == ([letter(1).record_id], {"risky": 1, "same_key": 1})


HALF_MESSAGE = {
    "broker_kind": "rocketmq", "dead_letter_queue": "RMQ_SYS_TRANS_HALF_TOPIC", "message_id": "7F01",
    "properties": {"UNIQ_KEY": "7F01"},
}  # fmt: skip


def test_copies_of_one_transaction_are_sent_once(plan: Planning) -> None:
    fill(plan.store, 3, **HALF_MESSAGE)
    header = plan(Wanted(to="origin"))
    assert (header.letters, header.left_out) == (1, {"same_key": 2})


@pytest.mark.parametrize("to", ["origin", "queue:elsewhere"])
def test_a_transaction_is_not_sent_again_anyhow(plan: Planning, ledger: Ledger, to: str) -> None:
    fill(plan.store, 1, **HALF_MESSAGE)
    [one] = planfile.letters(plan.store, plan(Wanted(to="origin")).plan)
    ledger.claim("first", [one])
    ledger.record_results([Result(one.key, "confirmed")])
    given_up = {**HALF_MESSAGE, "dead_letter_queue": "TRANS_CHECK_MAX_TIME_TOPIC"}
    fill(plan.store, 1, start=5, **given_up, headers={"dlq_replay_lap": "1"})
    header = plan(Wanted(where="dead_letter_queue like 'TRANS%'", to=to))
    assert (header.letters, header.left_out) == (0, {"replayed": 1})


@each_row("text, lap", [("2", 3), ("", 1), ("x", 1), ("-1", 1), ("٣", 1), ("9" * 40, 1)])
def test_a_letter_that_died_again_is_a_new_lap_unless_forged(text: str, lap: int) -> None:
    assert lap_of(letter(1, headers={"dlq_replay_lap": text})) == lap
