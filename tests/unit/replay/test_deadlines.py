"""A deadline that the letter carries itself: its consumer would throw it away, and the broker confirms it."""

import json
from typing import Any

import pytest
from support.archives import letter
from support.planning import Planning
from support.replaying import fill
from support.rows import each_row

from dlq.core.clock import from_iso
from dlq.core.record import Record
from dlq.replay.plans.deadlines import deadlines, in_words, is_late
from dlq.replay.plans.wanted import Wanted, condition_of_ids

NOW = from_iso("2026-11-25T12:00:00Z") or 0
HOUR = 3_600_000_000


def says(record: Record, dropped: tuple[str, ...] = ()) -> list[str]:
    return [said for one in deadlines(record, dropped) if (said := in_words(one, NOW))]


def lateness(record: Record) -> list[bool]:
    return [is_late(one, NOW) for one in deadlines(record, ())]


@each_row(
    ("name", "value"),
    [
        ("expires", "2026-11-25T11:00:00+00:00"), ("expires", "2026-11-25T11:00:00.123456"),
        ("Expires", "Wed, 25 Nov 2026 11:00:00 GMT"), ("expires_at", "1795604400"),
        ("x-expires-at", "1795604400000"), ("x_HYPHEN_expires_HYPHEN_at", "1795604400000"),
        ("expirationDate", "1795604400000"), ("ce_expirytime", "2026-11-25T11:00:00Z"),
        ("ce-expirytime", "2026-11-25T11:00:00Z"), ("cloudEvents:expirytime", "2026-11-25T11:00:00Z"),
        ("expires", '"2026-11-25T11:00:00Z"'), ("deliver-by", "2026-11-25T11:00:00.0000000Z"),
        ("deadline", "2026-11-25T13:00:00+02:00"), ("message-deadline", "1795604400.25"),
        ("validUntil", "2026-11-25 11:00:00"), ("retryUntil", "1795604400"), ("max_age", "60000"),
        ("x-message-ttl", "60000"), ("ttl_seconds", "60"), ("timeToLive", "PT30S"), ("expires_in", "5m"),
        ("NServiceBus.TimeToBeReceived", "00:00:30"), ("rbs2-time-to-be-received", "00:00:30"),
    ],
)  # fmt: skip
def test_a_deadline_that_has_passed_is_known_by_any_name_and_spelling(name: str, value: str) -> None:
    """Published an hour and a half ago."""
    assert lateness(letter(1, headers={name: value}, published_at=NOW - HOUR * 3 // 2)) == [True]
    assert lateness(letter(1, properties={name: value}, published_at=NOW - HOUR * 3 // 2)) == [True]


@each_row(("name", "value"), [
    ("expires", ""), ("expires", "null"), ("expires", "0"), ("expires", "-1"), ("expires", "never"),
    ("ttl", "0"), ("card_expiry", "12/27"), ("expired", "2026-11-25T11:00:00Z"), ("timeout", "30000"),
    ("meta", "1795604400"), ("expires", "9" * 5000),
    ("ttl", f"{'9' * 400}s"), ("ttl", f"P{'9' * 5000}D"), ("ttl", f"{'9' * 5000}.01:02:03"),
])  # fmt: skip
def test_what_tells_no_moment_is_no_deadline(name: str, value: str) -> None:
    assert lateness(letter(1, headers={name: value}, published_at=NOW - HOUR)) == []


@pytest.mark.parametrize(("body", "is_known"), [
    (
        {
            "actor_name": "charge", "queue_name": "default", "options": {"max_age": 60000},
            "message_timestamp": 1795604400000,
        },
        True,
    ),
    ({"id": "1", "task": "charge", "args": [], "kwargs": {}, "expires": "2026-11-25T11:00:00"}, True),
    ({"specversion": "1.0", "type": "paid", "expirytime": "2026-11-25T11:00:00Z"}, True),
    ({"messageType": ["urn:x"], "message": {}, "expirationTime": "2026-11-25T11:00:00Z"}, True),
    ({"displayName": "J", "job": "C@call", "data": {}, "retryUntil": 1795604400}, True),
    ({"order": 7, "expires_at": "2026-11-25T11:00:00Z"}, False),
])  # fmt: skip
def test_a_body_may_hold_one(body: dict[str, Any], is_known: bool) -> None:
    [found] = deadlines(letter(1, body=json.dumps(body).encode()), ())
    assert (is_late(found, NOW), found.is_known) == (True, is_known)


PAST, AHEAD = "2026-11-25T11:00:00Z", "2026-11-25T13:00:00Z"
SAID: list[tuple[dict[str, Any], tuple[str, ...], str]] = [
    ({"headers": {"expires": "1795604400000"}}, ("expires",), ""),  # the broker owns it
    ({"headers": {"expires": AHEAD}}, (),
     "the deadline in its header expires lies ahead: what is consumed after it is thrown away"),
    ({"headers": {"eta": AHEAD}}, (), "its header eta lies ahead: until then it is held back"),
    ({"headers": {"eta": PAST}}, (), ""),
    ({"headers": {"max_age": "60000"}}, (),
     "the deadline in its header max_age may have passed: who looks at it"),
    *(({"body": body}, (), "") for body in (b"[" * 100_000, b'{"expires":' * 50_000, b"{x", b"\xff{", b"")),
]  # fmt: skip


@each_row(("columns", "dropped", "said"), SAID)
def test_what_a_letter_tells_of_time_is_said(
    columns: dict[str, Any], dropped: tuple[str, ...], said: str
) -> None:
    found = says(letter(1, **columns), dropped)
    assert len(found) == bool(said)
    assert "".join(found).startswith(said)


LATE = (
    "the deadline in its header expires has passed: who looks at it throws the letter away, though confirmed"
)


def test_a_plan_leaves_such_a_letter_out_as_risky_and_who_names_it_sends_it(plan: Planning) -> None:
    one, _ = fill(plan.store, 2, headers={"expires": "2020-01-01T00:00:00Z"})
    header = plan(Wanted(any_advice=True))
    assert (header.letters, header.left_out) == (0, {"risky": 2})
    why = f"left out as risky: {LATE} (--edit changes it); name it by its id to send it"
    assert header.warnings == {why: 2}
    header = plan(Wanted(where=condition_of_ids([one.record_id])))
    assert (header.letters, header.warnings) == (1, {LATE: 1})


def test_a_deadline_that_only_a_body_of_an_unknown_form_tells_is_a_warning(plan: Planning) -> None:
    fill(plan.store, 1, body=b'{"expires_at": "2020-01-01"}')
    header = plan()
    assert header.letters == 1
    assert header.warnings == {LATE.replace("header expires", "body, its expires_at"): 1}
