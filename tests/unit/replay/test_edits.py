"""Letters that are edited before they go back."""

import gzip
import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from support.archives import letter
from support.planning import Planning, ids
from support.replaying import fill, judge
from support.rows import each_row

from dlq.connectors.jsonl.format import line_of, masked_line
from dlq.connectors.rabbitmq.amqp091.codec import edits as amqp_edit
from dlq.connectors.rabbitmq.amqp091.codec import table
from dlq.core.errors import ArchiveError, UsageError
from dlq.core.settings import Mask
from dlq.replay.plans import edits, planfile
from dlq.replay.plans.wanted import Wanted
from dlq.reports.letters.masking import Masker


def read(document: Mapping[str, object]) -> edits.Edits:
    return edits.parse([json.dumps(document).encode()], "edits.jsonl")


def test_an_edit_changes_the_body_and_is_shown(plan: Planning) -> None:
    [before, _] = fill(plan.store, 2, body=b'{"qty": 0}', headers={"h": "v"})
    document = line_of(before) | {"body_text": '{"qty": 1}'}
    changes = read(document)
    header = plan(Wanted(edits=changes))
    assert list(edits.differences(plan.store, header, changes)) == [
        before.record_id, "  body: 10 -> 10 bytes", "  @@ -1 +1 @@", '  -{"qty": 0}', '  +{"qty": 1}',
    ]  # fmt: skip
    assert edits.load(plan.store, header).apply(before).body == b'{"qty": 1}'
    large = before._replace(body=b"1\n" * 6_000)
    assert edits.difference(before, large) == ["body: 10 -> 12000 bytes"], "so many lines are not compared"


def test_what_no_edit_changes_is_said_where_a_line_changes_it(plan: Planning) -> None:
    [before, other] = fill(plan.store, 2, exchange="shop", routing_key="order.new")
    edited = line_of(before) | {"routing_key": "order.eu", "queue": "b.dlq", "body_text": "new"}
    words = "the edited line has another {}: only body, headers and properties change"
    warnings = plan(Wanted(edits=read(edited))).warnings
    assert {text: n for text, n in warnings.items() if "edited" in text} == {
        words.format(name): 1 for name in ("queue", "routing_key")
    }
    assert not any("edited" in text for text in plan(Wanted(edits=read(line_of(other)))).warnings)


def test_an_edited_header_is_encoded_anew_and_other_letters_stay(plan: Planning) -> None:
    [before, other] = fill(plan.store, 2, headers={"h": "v"}, raw_properties=b"block")
    assert read(line_of(before)).apply(before) == before, "what changes nothing keeps its block"
    document = line_of(before) | {"headers": {"h": "\x1b[2Jw"}}
    changes = read(document)
    after = changes.apply(before)
    assert (after.headers, after.raw_properties, after.body) == ({"h": "\x1b[2Jw"}, None, before.body)
    assert changes.apply(other) is other
    assert edits.difference(before, after) == ["header h: v -> \\x1b[2Jw"]


def test_on_rabbitmq_an_edited_header_leaves_the_others_byte_for_byte() -> None:
    block = amqp_edit.edit(amqp_edit.EMPTY, set_headers={"tenant": 42, "app": "shop", "old": "x"})
    before = letter(1, headers={"tenant": "42", "app": "shop", "old": "x"}, raw_properties=block)
    document = line_of(before) | {"headers": {"tenant": "42", "app": "shop 2", "tries": 3}}
    after = read(document).apply(before)
    assert after.raw_properties is not None
    assert table.decode(after.raw_properties).headers == {"tenant": "42", "app": "shop 2", "tries": "3"}


def test_edits_that_fill_the_memory_are_refused(plan: Planning, monkeypatch: pytest.MonkeyPatch) -> None:
    [before] = fill(plan.store, 1)
    header = plan(Wanted(edits=read(line_of(before) | {"body_text": "new"})))
    monkeypatch.setattr(edits, "LARGEST", 10)
    with pytest.raises(ArchiveError, match="is larger than"):
        edits.load(plan.store, header)
    plan.store.put(planfile.edits_name(header.plan), b"")
    with pytest.raises(UsageError, match="edits of plan"):
        edits.load(plan.store, header)


@each_row("document, text", [
    ({"broker_kind": "rabbitmq"}, "record.record_id"),
    ({"broker_kind": "rabbitmq", "nonsense": 1}, "unknown field"),
    ({"broker_kind": "rabbitmq", "body_base64": "!", "record": {"record_id": "a"}}, "base64"),
    ({"broker_kind": "rabbitmq", "body_text": {"n": 1}, "record": {"record_id": "a"}}, "body_text must be"),
])  # fmt: skip
def test_a_bad_edit_is_a_usage_error_with_its_line(document: dict[str, object], text: str) -> None:
    with pytest.raises(UsageError, match=f"line 1: .*{text}"):
        read(document)


@each_row("content", [b"", b"\n", b"  \n\r\n\n"])
def test_a_file_without_an_edit_is_refused_and_plans_no_other_letter(content: bytes) -> None:
    with pytest.raises(UsageError, match="edited holds no line with a letter"):
        edits.parse(content.splitlines(keepends=True), "edited")


def test_an_edit_plans_its_letters(plan: Planning) -> None:
    known = fill(plan.store, 4)
    advice = ("replay", "replay", "never", "hold")
    judge(plan.store, {one.record_id: said for one, said in zip(known, advice, strict=True)})
    for where, planned in ((None, [2]), ("advice = 'replay'", [0, 1, 2]), ("advice = 'hold'", [2])):
        header = plan(Wanted(where=where, edits=read(line_of(known[2]))))
        assert ids(plan, header) == [known[number].record_id for number in planned]


def test_an_edit_of_a_letter_that_is_not_there_is_refused(plan: Planning) -> None:
    fill(plan.store, 1)
    stranger = line_of(letter(7, record_id="it's no id"))
    with pytest.raises(UsageError, match="1 edited letters are not in the plan, the first is it's no id"):
        plan(Wanted(edits=read(stranger)))


def test_a_packed_file_is_read(tmp_path: Path) -> None:
    packed = tmp_path / "edits.jsonl.gz"
    packed.write_bytes(gzip.compress(json.dumps(line_of(letter(1))).encode() + b"\n"))
    assert list(edits.read(str(packed)).changed) == [letter(1).record_id]
    packed.write_bytes(packed.read_bytes()[:-9])
    with pytest.raises(UsageError, match=r"cannot read .*edits\.jsonl\.gz: "):
        edits.read(str(packed))


def test_a_masked_line_is_never_sent() -> None:
    with pytest.raises(UsageError, match="line 1: it is masked, so it is not the letter that died"):
        read(masked_line(line_of(letter(1))))


@each_row("kind", ["artemis", "activemq"])
@each_row("value", [None, ["a"], {"a": 1}])
def test_what_a_property_of_jms_cannot_be_is_refused_naming_letter_and_header(
    kind: str, value: object
) -> None:
    record = letter(1, broker_kind=kind, headers={"amount": "7"}, raw_properties=b"amount:7")
    with pytest.raises(UsageError, match=f"letter {record.record_id[:12]} .*header 'amount'"):
        read({**line_of(record), "headers": {"amount": value}}).apply(record)


def test_what_an_edit_changes_is_shown_as_far_as_it_may_be() -> None:
    masker = Masker(Mask(("json:$.n", "header:x-kind")))
    before = letter(1, headers={"x-customer": "Jane Doe", "x-kind": "a"}, body=b'{"name": "Jane"}')
    after = before._replace(
        headers={"x-kind": "b", "to ann@example.com": "x"}, body=b'{"name": "Ann", "n": 1}'
    )
    assert edits.difference(before, after, masker.document) == [
        "header [name of 18]: (none) -> text of 1",
        "header x-customer: text of 8 -> (none)",
        "header x-kind: a -> b",
        "body: 16 -> 23 bytes",
        "@@ -1 +1 @@",
        '-{"name": "text of 4"}',
        '+{"name": "text of 3", "n": 1}',
    ]
    packed = before._replace(body=b"\x1f\x8b"), before._replace(body=b"\xff\xfe\xff")
    shown = ["@@ -1 +1 @@", "-[masked: 2 bytes]", "+[masked: 3 bytes]"]
    assert edits.difference(*packed, masker.document) == ["body: 2 -> 3 bytes", *shown]
