"""Which letters of a plan are the same replay: business keys, transactions, laps."""

from pathlib import Path

import pytest
from support.planning import Planning
from support.replaying import fill, settings

from dlq.replay import planfile
from dlq.replay.ledger.contract import Ledger, Result
from dlq.replay.wanted import Wanted


def test_a_message_resent_under_a_new_id_is_the_same_business_message(plan: Planning, tmp_path: Path) -> None:
    fill(plan.store, 3, key="order-17")
    assert plan().letters == 3, "message ids are no business keys"
    plan.config = settings(tmp_path / "archive", source={"key": "header:order"})
    header = plan()
    assert (header.letters, header.left_out) == (1, {"same_key": 2})


HALF_MESSAGE = {
    "broker_kind": "rocketmq",
    "dead_letter_queue": "RMQ_SYS_TRANS_HALF_TOPIC",
    "message_id": "7F01",
    "properties": {"UNIQ_KEY": "7F01"},
}


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


@pytest.mark.parametrize(("text", "lap"), [("2", 3), ("", 1), ("x", 1), ("-1", 1), ("٣", 1), ("9" * 40, 1)])
def test_a_letter_that_died_again_is_a_new_lap_unless_forged(plan: Planning, text: str, lap: int) -> None:
    fill(plan.store, 1, headers={"dlq_replay_lap": text})
    [one] = planfile.letters(plan.store, plan().plan)
    assert one.lap == lap


def test_the_key_depends_on_broker_target_lap_and_message(plan: Planning) -> None:
    fill(plan.store, 2)
    fill(plan.store, 1, start=5, headers={"dlq_replay_lap": "1"})
    keys = [
        one.key
        for to in ("origin", "queue:other")
        for one in planfile.letters(plan.store, plan(Wanted(to=to, any_advice=True)).plan)
    ]
    again = [one.key for one in planfile.letters(plan.store, plan(Wanted(any_advice=True)).plan)]
    assert len(set(keys)) == 6
    assert again == keys[:3]
