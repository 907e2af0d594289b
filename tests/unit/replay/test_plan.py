"""Making a plan: who is taken, who is left out and why, and that nobody can change it afterwards."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from archives import letter
from replaying import QueueFile, brokers, fill, judge, settings

from dlq.archive import segments
from dlq.archive.store import LocalStore
from dlq.connectors import amqp_edit, amqp_table
from dlq.connectors.interchange import line_of
from dlq.core.causes import ADVICE
from dlq.core.errors import FormatTooNew, UsageError
from dlq.core.settings import Settings
from dlq.replay import edits, planfile
from dlq.replay.ledger import Ledger, Settlement
from dlq.replay.plan import FIX_FIRST, make
from dlq.replay.planfile import Header
from dlq.replay.wanted import Wanted


class Planning:
    """`plan(...)` with this test's archive."""

    def __init__(self, store: LocalStore, config: Settings, queue: QueueFile) -> None:
        self.store, self.config, self.queue = store, config, queue

    def __call__(self, wanted: Wanted | None = None) -> Header:
        with brokers(self.config, self.queue) as opened:
            return make(self.store, self.config, wanted or Wanted(), opened)


@pytest.fixture
def plan(store: LocalStore, config: Settings, queue: QueueFile) -> Planning:
    return Planning(store, config, queue)


def lines(plan: Planning, header: Header) -> list[dict[str, object]]:
    return [json.loads(line) for line in plan.store.get(planfile.name_of(header.plan)).splitlines()]


def ids(plan: Planning, header: Header) -> list[str]:
    return [one.record_id for one in planfile.letters(plan.store, header.plan)]


def test_a_plan_names_its_letters_in_the_order_of_capture(plan: Planning) -> None:
    known = fill(plan.store, 5)
    header = plan()
    assert ids(plan, header) == [one.record_id for one in known]
    assert (header.letters, header.targets, header.left_out) == (5, {"queue:orders": 5}, {})
    assert header.stripped == {"x-death": 5}
    assert header.audience == {"queue:orders": ("orders",)}


@pytest.mark.parametrize("advice", [*ADVICE, None])
def test_advice_leaves_letters_out(plan: Planning, advice: str | None) -> None:
    fill(plan.store, 2, advice)
    header = plan()
    goes = advice in ("replay", "fix_first")
    assert header.letters == (2 if goes else 0)
    assert header.left_out == ({} if goes else {advice or "no_verdict": 2})


@pytest.mark.parametrize("advice", [*ADVICE, None])
def test_any_advice_takes_all_in(plan: Planning, advice: str | None) -> None:
    fill(plan.store, 2, advice)
    assert plan(Wanted(any_advice=True)).letters == 2


def test_fix_first_is_said_in_plain_words(plan: Planning) -> None:
    fill(plan.store, 2, "fix_first")
    assert plan().warnings == {FIX_FIRST: 2}


NAMED = f"record_id in ('{0:032x}', '{1:032x}')"


@pytest.mark.parametrize(
    ("where", "names_them"),
    [
        (NAMED, True),
        (f"(RECORD_ID IN ('{0:032x}'))", True),
        (f"record_id = '{0:032x}'", True),
        ("record_id not in ('x')", False),
        ("not record_id in ('x')", False),
        ("record_id like '0%'", False),
        (f"{NAMED} or true", False),
        ("source = 'orders'", False),
        (None, False),
    ],
)
def test_only_naming_record_ids_takes_them_in(plan: Planning, where: str | None, names_them: bool) -> None:
    fill(plan.store, 2, "never")
    header = plan(Wanted(where=where))
    assert bool(header.letters) == names_them
    assert bool(header.left_out) != names_them


def test_letters_that_the_ledger_knows_are_left_out_by_their_state(plan: Planning, ledger: Ledger) -> None:
    fill(plan.store, 7)
    first = list(planfile.letters(plan.store, plan().plan))
    ledger.claim("first", first[:6])
    states = ("confirmed", "returned", "refused", "in_doubt", "planned")
    ledger.settle([Settlement(one.key, state) for one, state in zip(first, states, strict=False)])
    header = plan()
    assert header.left_out == {"replayed": 1, "returned": 1, "refused": 1, "in_doubt": 1, "sending": 1}
    assert ids(plan, header) == [first[4].record_id, first[6].record_id]


def test_a_letter_without_origin_has_no_target(plan: Planning) -> None:
    segments.commit(plan.store, "orders", "p", 0, "copy", [letter(1, origin=None)], {})
    assert plan(Wanted(any_advice=True)).left_out == {"no_target": 1}
    assert plan(Wanted(any_advice=True, to="queue:elsewhere")).targets == {"queue:elsewhere": 1}


def test_a_letter_of_an_unknown_broker_is_left_out(plan: Planning) -> None:
    lost = letter(1, source="gone", broker="gone")
    segments.commit(plan.store, "gone", "p", 0, "copy", [lost], {})
    assert plan(Wanted(any_advice=True)).left_out == {"no_broker": 1}


@pytest.mark.parametrize("advice", [*ADVICE, None])
def test_advice_is_asked_before_the_way_back(plan: Planning, advice: str | None) -> None:
    lost = letter(1, source="gone", broker="gone")
    segments.commit(plan.store, "gone", "p", 0, "copy", [lost], {})
    if advice is not None:
        judge(plan.store, {lost.record_id: advice})
    goes = advice in ("replay", "fix_first")
    assert plan().left_out == {"no_broker" if goes else advice or "no_verdict": 1}


def test_a_risky_letter_is_found_before_it_harms_the_others(plan: Planning) -> None:
    fill(plan.store, 2, body=b"x" * 101, body_size=101)
    header = plan(Wanted(any_advice=True))
    assert header.left_out == {"risky": 2}
    assert header.warnings == {"left out as risky: the body is too large": 2}


def test_a_target_that_the_broker_does_not_have_is_a_usage_error(plan: Planning) -> None:
    fill(plan.store, 1)
    with pytest.raises(UsageError, match="queues only"):
        plan(Wanted(to="topic:orders"))


@pytest.mark.parametrize("where", ["nonsense = 1", "1 = 1) or (1 = 1", "true; drop table x", ""])
def test_bad_sql_is_a_usage_error(plan: Planning, where: str) -> None:
    fill(plan.store, 1)
    with pytest.raises(UsageError):
        plan(Wanted(where=where))


@pytest.mark.parametrize("rate", [0.0, -1.0])
def test_a_rate_is_positive(plan: Planning, rate: float) -> None:
    with pytest.raises(UsageError, match="rate"):
        plan(Wanted(rate=rate))


def test_limit_takes_the_first(plan: Planning) -> None:
    known = fill(plan.store, 5)
    assert ids(plan, plan(Wanted(limit=2))) == [one.record_id for one in known[:2]]


def test_a_message_resent_under_a_new_id_is_the_same_business_message(plan: Planning, tmp_path: Path) -> None:
    plan.config = settings(tmp_path / "archive", source={"key": "header:order"})
    fill(plan.store, 3, key="order-17")
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
def test_a_transaction_that_was_confirmed_once_is_not_sent_again_anyhow(
    plan: Planning, ledger: Ledger, to: str
) -> None:
    fill(plan.store, 1, **HALF_MESSAGE)
    [one] = planfile.letters(plan.store, plan(Wanted(to="origin")).plan)
    ledger.claim("first", [one])
    ledger.settle([Settlement(one.key, "confirmed")])
    given_up = {**HALF_MESSAGE, "dead_letter_queue": "TRANS_CHECK_MAX_TIME_TOPIC"}
    fill(plan.store, 1, start=5, **given_up, headers={"dlq_replay_lap": "1"})
    header = plan(Wanted(where="dead_letter_queue like 'TRANS%'", to=to))
    assert (header.letters, header.left_out) == (0, {"replayed": 1})


def test_message_ids_are_no_business_keys(plan: Planning) -> None:
    fill(plan.store, 3, key="the same message id")
    assert plan().letters == 3


def test_a_letter_that_was_replayed_and_died_again_is_a_new_lap(plan: Planning) -> None:
    fill(plan.store, 1, headers={"dlq_replay_lap": "2"})
    [one] = planfile.letters(plan.store, plan().plan)
    assert one.lap == 3


@pytest.mark.parametrize("text", ["", "x", "-1", "٣", "9" * 40])
def test_a_forged_lap_counts_as_the_first(plan: Planning, text: str) -> None:
    fill(plan.store, 1, headers={"dlq_replay_lap": text})
    [one] = planfile.letters(plan.store, plan().plan)
    assert one.lap == 1


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


def test_witness_is_on_when_the_broker_says_so(plan: Planning) -> None:
    fill(plan.store, 1)
    assert not plan().witness
    assert plan(Wanted(witness=True)).witness
    broker = replace(plan.config.brokers["shop"], witness=True)
    plan.config = replace(plan.config, brokers={"shop": broker})
    assert plan().witness


def test_an_untouched_plan_is_accepted(plan: Planning) -> None:
    fill(plan.store, 3)
    header = plan(Wanted(rate=5.5, where="source = 'orders'"))
    assert planfile.checked(plan.store, header.plan) == replace(header, audience={"queue:orders": ["orders"]})


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [
        (0, "rate", 100.0),
        (0, "keep_headers", True),
        (0, "letters", 2),
        (1, "row", 2),
        (1, "target", ["queue", "x", ""]),
    ],
)
def test_a_changed_plan_is_refused(plan: Planning, line: int, field: str, value: object) -> None:
    fill(plan.store, 3)
    header = plan()
    changed = lines(plan, header)
    changed[line][field] = value
    text = "\n".join(json.dumps(one, separators=(",", ":")) for one in changed)
    plan.store.put(planfile.name_of(header.plan), f"{text}\n".encode())
    with pytest.raises(UsageError, match="was changed"):
        planfile.checked(plan.store, header.plan)


def test_a_plan_that_lost_a_line_is_refused(plan: Planning) -> None:
    fill(plan.store, 3)
    header = plan()
    whole = plan.store.get(planfile.name_of(header.plan)).splitlines(keepends=True)
    plan.store.put(planfile.name_of(header.plan), b"".join(whole[:-1]))
    with pytest.raises(UsageError, match="was changed"):
        planfile.checked(plan.store, header.plan)


def test_a_plan_of_a_newer_dlq_is_refused(plan: Planning) -> None:
    fill(plan.store, 1)
    header = plan()
    changed = lines(plan, header)
    changed[0]["format"] = 99
    plan.store.put(planfile.name_of(header.plan), json.dumps(changed[0]).encode())
    with pytest.raises(FormatTooNew):
        planfile.load(plan.store, header.plan)


def test_every_plan_is_a_new_file_and_is_found_by_its_beginning(plan: Planning) -> None:
    fill(plan.store, 1)
    first, second = plan().plan, plan().plan
    assert planfile.ids(plan.store) == sorted({first, second})
    assert planfile.find(plan.store, first) == first
    with pytest.raises(UsageError, match="not unique"):
        planfile.find(plan.store, "2")
    with pytest.raises(UsageError, match="no plan"):
        planfile.find(plan.store, "../../etc/passwd")


def edit_file(tmp_path: Path, *documents: dict[str, object]) -> str:
    path = tmp_path / "edits.jsonl"
    path.write_text("".join(json.dumps(document) + "\n" for document in documents))
    return str(path)


def test_an_edit_changes_the_body_and_is_shown(plan: Planning, tmp_path: Path) -> None:
    [before, _] = fill(plan.store, 2, body=b'{"qty": 0}', headers={"h": "v"})
    document = line_of(before) | {"body_text": '{"qty": 1}'}
    changes = edits.read(edit_file(tmp_path, document))
    header = plan(Wanted(edits=changes))
    assert list(edits.differences(plan.store, header, changes)) == [
        before.record_id,
        "  body: 10 -> 10 bytes",
        "  @@ -1 +1 @@",
        '  -{"qty": 0}',
        '  +{"qty": 1}',
    ]
    assert edits.load(plan.store, header).apply(before).body == b'{"qty": 1}'


def test_an_edited_header_is_encoded_anew_and_other_letters_stay(plan: Planning, tmp_path: Path) -> None:
    [before, other] = fill(plan.store, 2, headers={"h": "v"}, raw_properties=b"block")
    document = line_of(before) | {"headers": {"h": "\x1b[2Jw"}}
    changes = edits.read(edit_file(tmp_path, document))
    after = changes.apply(before)
    assert (after.headers, after.raw_properties, after.body) == ({"h": "\x1b[2Jw"}, None, before.body)
    assert changes.apply(other) is other
    assert edits.difference(before, after) == ["header h: v -> \\x1b[2Jw"]


def test_on_rabbitmq_an_edited_header_leaves_the_others_byte_for_byte(tmp_path: Path) -> None:
    block = amqp_edit.edit(amqp_edit.EMPTY, set_headers={"tenant": 42, "app": "shop", "old": "x"})
    before = letter(1, headers={"tenant": "42", "app": "shop", "old": "x"}, raw_properties=block)
    document = line_of(before) | {"headers": {"tenant": "42", "app": "shop 2", "tries": 3}}
    after = edits.read(edit_file(tmp_path, document)).apply(before)
    assert after.raw_properties is not None
    assert amqp_table.decode(after.raw_properties).headers == {"tenant": "42", "app": "shop 2", "tries": "3"}


def test_a_line_of_export_that_changes_nothing_keeps_the_property_block(
    plan: Planning, tmp_path: Path
) -> None:
    [before] = fill(plan.store, 1, headers={"x-death": '[{"count": 1}]'}, raw_properties=b"block")
    assert edits.read(edit_file(tmp_path, line_of(before))).apply(before) == before


def test_changed_edits_are_refused(plan: Planning, tmp_path: Path) -> None:
    [before] = fill(plan.store, 1)
    header = plan(Wanted(edits=edits.read(edit_file(tmp_path, line_of(before) | {"body_text": "new"}))))
    plan.store.put(planfile.edits_name(header.plan), b"")
    with pytest.raises(UsageError, match="edits of plan"):
        edits.load(plan.store, header)


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ({"broker_kind": "rabbitmq"}, "record.record_id"),
        ({"broker_kind": "rabbitmq", "nonsense": 1}, "unknown field"),
        ({"broker_kind": "rabbitmq", "body_base64": "!", "record": {"record_id": "a"}}, "base64"),
    ],
)
def test_a_bad_edit_is_a_usage_error_with_its_line(
    tmp_path: Path, document: dict[str, object], text: str
) -> None:
    with pytest.raises(UsageError, match=f"line 1: .*{text}"):
        edits.read(edit_file(tmp_path, document))


def test_an_edit_for_a_letter_outside_the_plan_is_refused(plan: Planning, tmp_path: Path) -> None:
    [first, second] = fill(plan.store, 2)
    judge(plan.store, {first.record_id: "replay", second.record_id: "never"})
    with pytest.raises(UsageError, match="not in the plan"):
        plan(Wanted(edits=edits.read(edit_file(tmp_path, line_of(second)))))
