"""What is in doubt is resolved by proof first, then by an operator's decision, and who made it is kept."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from support.archives import letter
from support.replaying import Replaying, brokers
from support.rows import each_row

from dlq.archive import segments
from dlq.connectors.base import Target
from dlq.core.clock import now
from dlq.core.errors import ArchiveError, Busy, Unreachable, UsageError
from dlq.core.headers.provenance import REPLAY_ID
from dlq.replay.actor import system_user
from dlq.replay.plans.letters import Letter
from dlq.replay.runs.apply import applying
from dlq.replay.runs.load import Loader
from dlq.replay.runs.pace import Stop
from dlq.replay.states import State


@pytest.fixture
def doubtful(replay: Replaying) -> str:
    """A plan of 20 letters; the first 5 are in doubt, and only the first 5 were sent."""
    plan = replay.planned(20)
    replay.queue.dies_at = 5
    replay.apply(plan)
    replay.queue.dies_at = None
    assert replay.states(plan) == {"in_doubt": 5, "planned": 15}
    return plan


def record_ids(replay: Replaying, plan: str) -> list[str]:
    return [entry.record_id for entry in replay.ledger.entries(plan, "in_doubt")]


def keys_in_doubt(replay: Replaying, plan: str) -> list[str]:
    return [entry.key for entry in replay.ledger.entries(plan, "in_doubt")]


def test_without_evidence_or_word_all_stay_in_doubt(replay: Replaying, doubtful: str) -> None:
    assert replay.reconcile(doubtful) == {"sent": 0, "not_sent": 0, "unknown": 5}
    assert replay.notes == ["shop: no witness was left"]
    assert replay.states(doubtful) == {"in_doubt": 5, "planned": 15}


def test_the_witness_proves_sent_and_not_sent(replay: Replaying, doubtful: str) -> None:
    replay.queue.witnesses.append(doubtful)
    kept = replay.queue.path.read_text().splitlines()[:3]
    replay.queue.path.write_text("\n".join(kept) + "\n")
    assert replay.reconcile(doubtful) == {"sent": 3, "not_sent": 2, "unknown": 0}
    assert replay.states(doubtful) == {"confirmed": 3, "planned": 17}


def test_a_letter_that_came_back_is_proven_sent_but_not_by_a_file_or_an_older_capture(
    replay: Replaying, doubtful: str
) -> None:
    first, second, third, fourth, _ = keys_in_doubt(replay, doubtful)
    for mode, number, told in (
        ("drain", 100, {"headers": {REPLAY_ID: first}}), ("drain", 101, {"properties": {REPLAY_ID: second}}),
        ("drain", 102, {"headers": {REPLAY_ID: "somebody else's"}}),
        ("drain", 103, {"headers": {REPLAY_ID: third}, "captured_at": now() - 3_600_000_000}),
        ("import", 104, {"headers": {REPLAY_ID: fourth}}),
    ):  # fmt: skip
        back = letter(number, **{"captured_at": now(), "mode": mode, **told})
        segments.commit(replay.store, "orders", f"later{number}", 0, mode, [back], {})
    assert replay.reconcile(doubtful) == {"sent": 2, "not_sent": 0, "unknown": 3}
    assert [entry.key for entry in replay.ledger.entries(doubtful, "confirmed")] == [first, second]


def bring_back(replay: Replaying, keys: Sequence[str]) -> None:
    """A pull brings letters that died again."""
    back = [letter(100 + n, headers={REPLAY_ID: key}, captured_at=now()) for n, key in enumerate(keys)]
    segments.commit(replay.store, "orders", "later", 0, "drain", back, {})


@pytest.mark.parametrize("way", ["apply", "reconcile", "plan"])
@pytest.mark.parametrize("word", ["planned", "held"])
def test_what_came_back_was_sent_whatever_the_operator_has_said(
    replay: Replaying, doubtful: str, way: str, word: State
) -> None:
    keys, arrived = keys_in_doubt(replay, doubtful), replay.queue.arrived()
    replay.reconcile(doubtful, rest=word)
    bring_back(replay, keys)
    if way == "plan":
        replay.apply(replay.plan(any_advice=True))
    elif way == "apply":
        replay.apply(doubtful)
        assert replay.states(doubtful) == {"confirmed": 20}
    else:
        assert replay.reconcile(doubtful) == {"sent": 5, "not_sent": 0, "unknown": 0}
    sent = Counter(replay.queue.arrived()) - Counter(arrived)
    assert sent.keys().isdisjoint(keys)
    assert len(sent) == {"apply": 15, "reconcile": 0, "plan": 20}[way]


@pytest.mark.parametrize("is_begun", [False, True])
def test_what_came_back_since_another_plan_was_made_or_begun_is_not_sent_by_that(
    replay: Replaying, doubtful: str, is_begun: bool
) -> None:
    keys, arrived = keys_in_doubt(replay, doubtful), replay.queue.arrived()
    replay.reconcile(doubtful, rest="planned")
    other = replay.plan()
    if not is_begun:
        bring_back(replay, keys)
    with (
        brokers(replay.config, replay.queue) as opened,
        applying(
            replay.store, replay.config, other, opened, replay.ledger, Stop(replay.store, other)
        ) as send,
    ):
        if is_begun:
            bring_back(replay, keys)
        assert send(None).sent == 15
    assert (Counter(replay.queue.arrived()) - Counter(arrived)).keys().isdisjoint(keys)
    assert replay.states(other) == {"confirmed": 20}


def test_the_operators_word_counts_per_letter_and_is_kept(replay: Replaying, doubtful: str) -> None:
    one, two, three, *_ = record_ids(replay, doubtful)
    resolved = replay.reconcile(doubtful, sent=(one,), not_sent=(two,), hold=(three,))
    assert resolved == {"sent": 1, "not_sent": 1, "unknown": 2}
    assert replay.states(doubtful) == {"confirmed": 1, "planned": 16, "held": 1, "in_doubt": 2}
    [entry] = replay.ledger.entries(doubtful, "confirmed")
    assert entry.detail is not None
    assert entry.detail.startswith(f"decided by {system_user()}@")


@pytest.mark.parametrize(("state", "count"), [("confirmed", 5), ("planned", 20), ("held", 5)])
def test_one_word_for_all_the_rest(replay: Replaying, doubtful: str, state: str, count: int) -> None:
    ids = record_ids(replay, doubtful)
    replay.reconcile(doubtful, rest=state)
    assert "in_doubt" not in replay.states(doubtful)
    assert replay.states(doubtful)[state] == count
    if state == "planned":
        assert replay.apply(doubtful).sent == 20
        assert replay.states(doubtful) == {"confirmed": 20}
    if state == "held":  # what was set aside can be resolved later
        replay.reconcile(doubtful, sent=(ids[0],))
        assert replay.states(doubtful) == {"held": 4, "confirmed": 1, "planned": 15}


@each_row("wrong", ["00000000", "0" * 31, "abc", "f" * 32])
def test_an_id_that_names_no_doubt_is_a_usage_error(replay: Replaying, doubtful: str, wrong: str) -> None:
    with pytest.raises(UsageError):
        replay.reconcile(doubtful, sent=(wrong,))
    assert replay.states(doubtful) == {"in_doubt": 5, "planned": 15}


@pytest.mark.parametrize("why", ["no connection", "not in the configuration", "a segment is damaged"])
def test_what_cannot_be_asked_does_not_silence_the_operator_but_who_applies_does(
    replay: Replaying, doubtful: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_arguments: object) -> None:
        raise Unreachable(why) if why == "no connection" else ArchiveError(why)

    if why == "not in the configuration":
        replay.config = replace(replay.config, brokers={})
    else:
        monkeypatch.setattr(
            *((replay.queue, "find") if why == "no connection" else (Loader, "records")), fail
        )
    with replay.store.lock(f"plan-{doubtful}"), pytest.raises(Busy):
        replay.reconcile(doubtful, rest="confirmed")
    assert replay.reconcile(doubtful, rest="confirmed") == {"sent": 5, "not_sent": 0, "unknown": 0}
    assert why in replay.notes[0]


def test_a_broker_is_told_where_its_targets_ended_before(replay: Replaying, doubtful: str) -> None:
    sent_before = len(replay.queue.arrived())
    assert sent_before > 0
    replay.reconcile(doubtful)
    assert replay.queue.before == {"queue:orders": 0}
    replay.reconcile(doubtful, rest="planned")
    replay.apply(doubtful)
    replay.reconcile(doubtful)
    assert replay.queue.before == {"queue:orders": 0}, "a second apply does not forget the first"


def test_what_is_in_doubt_is_proven_by_no_later_bounds_than_its_own(replay: Replaying, doubtful: str) -> None:
    """Whatever was sent before the bounds would not lie behind them."""
    [kept] = Path(replay.store.location, "plans").glob("*.bounds.json")
    kept.unlink()
    with pytest.raises(
        UsageError, match=r"has 5 letter\(s\) in doubt on shop, and plans/.*\.shop\.bounds\.json,"
    ):
        replay.apply(doubtful)
    assert not kept.exists()
    assert replay.states(doubtful) == {"in_doubt": 5, "planned": 15}
    replay.reconcile(doubtful, rest="held")
    assert replay.apply(doubtful).sent == 15
    assert kept.exists()


def test_nothing_is_noted_any_more_of_a_target_with_letters_in_doubt(
    replay: Replaying, doubtful: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a broker did not show when it was asked first would be noted behind them."""
    asked: list[set[Target]] = []
    monkeypatch.setattr(replay.queue, "bounds", lambda targets: asked.append({*targets}) or {"late": 9})
    replay.apply(doubtful)
    replay.reconcile(doubtful)
    assert (asked, replay.queue.before) == ([], {"queue:orders": 0})
    replay.reconcile(doubtful, rest="planned")
    replay.apply(doubtful)
    assert asked == [{Target("queue", "orders")}]


@pytest.fixture
def half(replay: Replaying) -> str:
    """A plan of 20 letters, of which the broker confirmed 15; the last 5 are in doubt, and were sent."""
    plan = replay.planned(20)
    replay.queue.fate = lambda number: "confirmed" if number < 15 else "in_doubt"
    replay.apply(plan)
    replay.queue.witnesses.append(plan)
    assert replay.states(plan) == {"confirmed": 15, "in_doubt": 5}
    return plan


SHOWN = [
    (range(20), {"sent": 5, "not_sent": 0, "unknown": 0}),
    (range(17), {"sent": 2, "not_sent": 3, "unknown": 0}),
    (range(14), {"sent": 0, "not_sent": 0, "unknown": 5}),
    (range(1, 17), {"sent": 2, "not_sent": 0, "unknown": 3}),
    ((), {"sent": 0, "not_sent": 0, "unknown": 5}),
]


@pytest.mark.parametrize(("there", "resolved"), SHOWN, ids=map(str, range(5)))
def test_a_broker_that_shows_nothing_of_what_it_had_confirmed_proves_nothing_else(
    there: Sequence[int], resolved: dict[str, int], replay: Replaying, half: str
) -> None:
    arrived = replay.queue.arrived()
    replay.queue.path.write_text("".join(f"{arrived[number]}\n" for number in there))
    assert replay.reconcile(half) == resolved
    assert any("which it had confirmed" in note for note in replay.notes) == (resolved["unknown"] > 0)


def test_what_an_operator_called_sent_is_no_evidence_against_a_broker(replay: Replaying, half: str) -> None:
    replay.queue.path.write_text("".join(f"{one}\n" for one in replay.queue.arrived()[:15]))
    replay.reconcile(half, sent=tuple(record_ids(replay, half)[:1]))
    assert replay.states(half) == {"confirmed": 15, "planned": 5}


def test_letters_that_are_confirmed_and_not_in_the_archive_any_more_are_not_asked_for(
    replay: Replaying, half: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    replay.queue.path.write_text("")
    confirmed = {entry.record_id for entry in replay.ledger.entries(half, "confirmed")}
    load = Loader.records

    def records(loader: Loader, letters: Sequence[Letter]) -> object:
        if confirmed & {one.record_id for one in letters}:
            raise ArchiveError("retention took them")
        return load(loader, letters)

    monkeypatch.setattr(Loader, "records", records)
    assert replay.reconcile(half) == {"sent": 0, "not_sent": 5, "unknown": 0}
