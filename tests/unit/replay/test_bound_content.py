"""What was planned, or approved, is what is sent: the archive may have been changed since."""

import json
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from support.archives import letter, parquet
from support.replaying import Replaying, fill, judge
from support.rows import each_row

from dlq.archive import manifests, schema, segments
from dlq.archive.storage.store import LocalStore
from dlq.connectors.base import Outcome
from dlq.core.errors import ArchiveError, UsageError
from dlq.core.record import Record
from dlq.replay.plans import content, planfile
from dlq.replay.plans.content import SENT_COLUMNS, digest, restore_planned
from dlq.replay.plans.destinations import target_named
from dlq.replay.verify import verify


def forge(replay: Replaying, letters: list[Record]) -> None:
    """Write other letters where the first segment was; its manifest stays."""
    manifest, *_ = manifests.list_committed(replay.store)
    replay.store.put(manifest.segment, parquet(schema.to_table(letters)))


FORGED: dict[str, Any] = {
    "body": b"pay the attacker", "headers": {"trace": "forged"}, "raw_properties": b"forged",
    "properties": {"reply_to": "forged"}, "flags": 1, "priority": 9, "published_at": 1,
    "origin": "elsewhere", "routing_key": "elsewhere", "content_type": "text/forged",
}  # fmt: skip


@pytest.mark.parametrize("column", FORGED)
def test_nothing_is_sent_of_a_letter_that_differs(replay: Replaying, column: str) -> None:
    first, second, third = fill(replay.store, 3, body=b"pay", headers={"trace": "1"})
    plan = replay.plan()
    forge(replay, [first, second._replace(**{column: FORGED[column]}), third])
    run = replay.apply(plan)
    assert (run.sent, run.changed) == (2, [second.record_id])
    assert replay.states(plan) == {"confirmed": 2, "refused": 1}
    assert len(replay.queue.arrived()) == 2
    assert replay.apply(plan).sent == 0


def test_a_segment_that_a_forged_manifest_replaces_is_held_against_the_plan_too(replay: Replaying) -> None:
    letters = fill(replay.store, 2, body=b"pay")
    plan = replay.plan()
    [old] = manifests.list_committed(replay.store)
    forged = [one._replace(body=b"pay the attacker") for one in letters]
    segments.commit(replay.store, "orders", "forged", 0, "drain", forged, {}, settled=True)
    new = manifests.load(replay.store, manifests.name_of("forged-00000"))
    manifests.write(replay.store, replace(new, replaces=(old.stem,)))
    run = replay.apply(plan)
    assert (run.sent, run.changed) == (0, [one.record_id for one in letters])
    assert replay.queue.arrived() == []


def test_what_was_in_doubt_when_a_connection_ended_is_looked_for_as_it_was_planned(replay: Replaying) -> None:
    [one], [other] = (fill(replay.store, 1, start=number, body=b"pay") for number in (0, 10))
    judge(replay.store, {one.record_id: "replay", other.record_id: "replay"})
    plan = replay.plan(witness=True)
    replay.queue.buffer, replay.queue.dies_at = 1, 2

    def changed_behind_its_back(_number: int) -> Outcome:
        forge(replay, [one._replace(body=b"pay the attacker")])
        return "refused"

    replay.queue.fate = changed_behind_its_back
    run = replay.apply(plan)
    assert replay.states(plan)["in_doubt"] == 1
    assert "the archive holds something else than what was planned" in run.lost[0]
    assert replay.reconcile(plan)["sent"] == 0
    assert "is not what was planned: someone changed the archive" in replay.notes[0]


def test_a_letter_whose_body_is_not_what_was_captured_is_left_out_of_a_plan(replay: Replaying) -> None:
    one, other = letter(1, origin_kind="queue", body=b"pay"), letter(2, origin_kind="queue", body=b"pay")
    forged = one._replace(body=b"pay the attacker")
    segments.commit(replay.store, "orders", "p", 0, "drain", [forged, other], {}, settled=True)
    judge(replay.store, {one.record_id: "replay", other.record_id: "replay"})
    header = planfile.load(replay.store, replay.plan())
    assert (header.letters, header.left_out) == (1, {"risky": 1})
    assert [books.balanced for books in verify(replay.store, replay.config)] == [False]


def test_a_plan_that_binds_no_content_is_not_applied(replay: Replaying) -> None:
    """An older dlq made it; it can still be read."""
    plan = replay.planned(1)
    forge_plan(replay, plan, {}, {"content": None})
    with pytest.raises(UsageError, match="binds no content of its letters"):
        replay.apply(plan)
    assert [one.content for one in planfile.letters(replay.store, plan)] == [""]


@each_row("column", [name for name in SENT_COLUMNS if name != "record_id"])
def test_a_letter_without_a_block_is_bound_by_all_that_a_connector_may_look_at(column: str) -> None:
    one = letter(1, keys=("a", "b"), headers={"a": "b"})
    other = one._replace(**{column: {"keys": ("ab",), "headers": {"ab": ""}}.get(column, "another")})
    target = planfile.Target("queue", "orders")
    assert digest(one, target, False) != digest(other, target, False)
    assert digest(one, target, False) != digest(one, planfile.Target("queue", "order"), False)


WHOLE = Record(
    "r1", "orders", "shop", "rabbitmq", "orders.dlq", keys=("a", "b"), headers={"a": "b", "ü": "\udcff"},
    raw_properties=b"\0\0", body=b"pay", body_size=3, priority=4, persistent=True,
)  # fmt: skip
QUEUE, EXCHANGE = planfile.Target("queue", "orders"), planfile.Target("exchange", "shop", "k")
WITHOUT_BLOCK = WHOLE._replace(raw_properties=None)
OF_AN_OLDER_DLQ = {
    "0448a2eb2d6d54d31a263e9d0eb4edcfb48ed39947ebcb331f2ceffe9c969436": (WHOLE, QUEUE, False),
    "e79eab4ffb6273bdd5c0b5a798ddcfad0710f505c59facfb8e350a94cb69e525": (WHOLE, EXCHANGE, True),
    "d810bed4550d7b50f4e9d15504580476127b72ab7b9b58b496c8df3b48e512ec": (WITHOUT_BLOCK, QUEUE, False),
    "097faf1a58795097b98f7400e2950e1f3c49074fa29878bf894e8b8f3fb6bada": (WITHOUT_BLOCK, EXCHANGE, True),
}
OF_TODAY = {
    "2:9635148dbd8078a7d84dd11d53ee3f5df1797cdad3b705ca46beb588601defd0": (WHOLE, QUEUE, False),
    "2:64d6895880892a67e64a44059680bc36d5c81a504e2bb6981f89210da091cf55": (WHOLE, EXCHANGE, True),
    "2:6b9e44e607de7f7921a2fc64786d58bfa72732c0ba25b47e7ac44a1d49c61678": (WITHOUT_BLOCK, QUEUE, False),
    "2:79010e83f5e9c89407e2365ec7fb0419543a109a64b4090bab90fe64b231178e": (WITHOUT_BLOCK, EXCHANGE, True),
}


@each_row("written", [*OF_AN_OLDER_DLQ, *OF_TODAY])
def test_a_digest_that_a_plan_has_is_accepted_for_good(written: str) -> None:
    record, target, edited = {**OF_AN_OLDER_DLQ, **OF_TODAY}[written]
    one = planfile.Letter(0, "r1", "k", 1, "shop", "p-00000", 0, target, written)
    assert restore_planned(one, record, edited)
    assert restore_planned(one, record._replace(body=b"pax"), edited) is None
    assert restore_planned(one._replace(target=QUEUE._replace(name="order")), record, edited) is None
    block = WHOLE._replace(raw_properties=b"None")
    assert digest(block, QUEUE, True) != digest(WITHOUT_BLOCK, QUEUE, True)


def test_a_plan_of_an_older_dlq_binds_letters(replay: Replaying, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = fill(replay.store, 2, body=b"pay")
    monkeypatch.setattr(content, "digest", lambda *told: content.digest_of_pieces(*told[:3]))
    plan = replay.plan()
    monkeypatch.undo()
    assert {len(found.content) for found in planfile.letters(replay.store, plan)} == {64}
    forge(replay, [one._replace(body=b"pay the attacker"), other])
    run = replay.apply(plan)
    assert (run.sent, run.changed) == (1, [one.record_id])


def test_a_plan_that_goes_where_the_configuration_forbids_is_not_applied(replay: Replaying) -> None:
    """Whoever can write into the archive can write a plan."""
    plan = replay.planned(2)
    replay.config = replace(replay.config, replay=replace(replay.config.replay, targets=("pay*",)))
    with pytest.raises(UsageError, match=r"lets letters go to pay\* alone"):
        replay.apply(plan)
    assert replay.queue.arrived() == []


@each_row("target", [("queue", "a/b:c"), ("exchange", "shop", "eu/x"), ("topic", "t"), ("group", "g")])
def test_a_target_is_read_as_it_is_printed(target: tuple[str, ...]) -> None:
    wanted = planfile.Target(*target)
    assert target_named(str(wanted)) == wanted


@pytest.mark.parametrize("change", [reversed, lambda lines: lines[:1] * 3, lambda lines: lines[:2]])
def test_a_plan_that_is_changed_behind_its_check_sends_and_proves_nothing(
    change: Any, replay: Replaying, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store may give one plan to who checks it, and another one to who sends it; and another letter under
    the number of one that is in doubt was not sent indeed."""
    replay.queue.fate = lambda number: "in_doubt" if number == 0 else "confirmed"
    doubtful = replay.planned(3, witness=True)
    replay.apply(doubtful)
    plan, arrived = replay.plan(to="queue:other", again=True), replay.queue.arrived()
    _change_behind_the_check(change, monkeypatch)
    for use, one in ((replay.apply, plan), (replay.reconcile, doubtful)):
        with pytest.raises(UsageError, match=f"plan {one} was changed after it was made"):
            use(one)
    assert replay.queue.arrived() == arrived
    assert replay.states(doubtful) == {"in_doubt": 1, "confirmed": 2}


def _change_behind_the_check(change: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = planfile.check

    def check(store: LocalStore, name: str) -> planfile.Checked:
        found = honest(store, name)
        path = Path(store.location, planfile.name_of(name))
        head, *lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join([head, *change(lines)]))
        return found

    monkeypatch.setattr(planfile, "check", check)


HUGE = 10**30
CANNOT_BE: list[tuple[dict[str, Any], dict[str, Any]]] = [
    *(({"rate": rate}, {}) for rate in (0.0, -1.0, float("nan"), float("inf"))),
    *(({"letters": letters}, {}) for letters in (1, -5, 10**18)),
    *(({}, {"row": row}) for row in (-1, HUGE, 5)),
    *(({}, {"lap": lap}) for lap in (-1, HUGE)),
    ({}, {"segment": "none"}),
    *(({"plan": plan}, {}) for plan in ("20260101T000000-abcdef", "x; reboot")),
    *(({}, {"key": key}) for key in ("", f"{'a' * 30}\x02b", "a" * (2**20 + 1))),
    *(({}, {"record_id": one}) for one in ("a\x02DELAY\x013", "a" * 65)),
    ({}, {"target": ["queue", "elsewhere", ""]}),
    ({}, {"broker": "elsewhere"}),
]


def test_a_plan_with_a_digest_of_its_own_that_says_what_cannot_be_sends_nothing(replay: Replaying) -> None:
    plan = replay.planned(3)
    name = planfile.name_of(plan)
    honest = replay.store.get(name)
    for told, of_a_letter in CANNOT_BE:
        replay.store.put(name, honest)
        forge_plan(replay, plan, told, of_a_letter)
        with pytest.raises((ArchiveError, UsageError), match=r"is damaged|has fewer rows|not in the archive"):
            replay.apply(plan)
        assert not replay.queue.arrived(), (told, of_a_letter)


def forge_plan(replay: Replaying, plan: str, told: dict[str, Any], letter_: dict[str, Any]) -> None:
    """Change the first line and the first letter of a plan, and give it a digest that fits."""
    name = planfile.name_of(plan)
    first, *lines = (json.loads(line) for line in replay.store.get(name).splitlines())
    lines[0] = {key: value for key, value in {**lines[0], **letter_}.items() if value is not None}
    whole = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    header = replace(planfile.load(replay.store, plan), **told)
    first |= {**told, "digest": planfile.digest_of(header, sha256(whole))}
    replay.store.put(name, json.dumps(first).encode() + b"\n" + whole)


def test_no_more_letters_go_to_a_place_than_a_forged_plan_says(replay: Replaying) -> None:
    plan = replay.planned(3)
    header, honest = planfile.load(replay.store, plan), replay.store.get(planfile.name_of(plan))
    assert (header.targets, header.brokers) == ({"queue:orders": 3}, {"shop": 3})
    for told in (
        *({"targets": {"queue:orders": few}} for few in (1, 0, -3)),
        {"targets": {"queue:orders": 1, "queue:pay": 2}},
        {"brokers": {"shop": 1, "other": 2}},
    ):
        replay.store.put(planfile.name_of(plan), honest)
        forge_plan(replay, plan, told, {})
        with pytest.raises(ArchiveError, match="more letters go to queue:orders on shop than its first line"):
            replay.apply(plan)
        assert len(replay.queue.arrived()) <= 1
