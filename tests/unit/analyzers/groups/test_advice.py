"""The advice that follows from all that is known of a letter."""

from typing import Any

import pytest
from support.rows import each_row

from dlq.analyzers.groups.advice import ADVICE, Known, advise
from dlq.analyzers.groups.duplicates import Duplicate
from dlq.core import causes
from dlq.core.settings import Rule

SECOND = Duplicate("g", "same_message_id", first_of_group=False, repeats_id=True, exact_copy=True)
OTHER_BODY = SECOND._replace(exact_copy=False)


def known(cause: str | None = "poison_ack", **more: Any) -> Known:
    return Known(cause, max_laps=3, **more)


def repeats(kind: str, first: bool | None = False) -> Duplicate:
    return Duplicate("g", kind, first_of_group=first)


def failed(family: str | None, cause: str = "application_error") -> Known:
    return known(cause, exception_family=family)


ADVISED: list[tuple[Known, str, str]] = [
    (known(None), "check_first", "no advice fits"),
    (known("unknown"), "check_first", "nothing says why"),
    (known(), "fix_first", "gave no reason"),
    (known(mechanism="framework"), "fix_first", "the letter itself, or"),
    (known(mechanism="retry_loop"), "fix_first", "each time it came round"),
    (known(rule="celery-in-body"), "fix_first", "the memory of its retries lies in its body"),
    (known("application_error", rule="symfony-in-body"), "fix_first", "lies in its body (Symfony's stamps"),
    (known("application_error", rule="enveloped"), "fix_first", "lies in its body, an object"),
    (known("application_error", rule="async-retry"), "fix_first", "lies in its header asyncRetry"),
    (known(laps=3), "never", "too often"),
    (known(laps=2), "fix_first", "gave no reason"),
    (known(beside_the_letter=True), "never", "broker's own record"),
    (known("expired"), "check_first", "in time"),
    (known("overflow"), "fix_first", "make room"),
    (known("unroutable"), "fix_first", "no binding"),
    (known("unreadable"), "fix_first", "the broker could not read it"),
    (known("unreadable", mechanism="deserialization"), "fix_first", "fix the deserializer"),
    (known("redelivery_exhausted"), "fix_first", "every attempt"),
    (known("duplicate_from_store"), "check_first", "met its id twice"),
    (known("suppressed_duplicate"), "check_first", "took it for a duplicate"),
    (failed("timeout"), "replay", "away or slow"),
    (failed("connection"), "replay", "away or slow"),
    (failed("throttled", "redelivery_exhausted"), "replay", "away or slow"),
    (failed("timeout", "poison_ack"), "fix_first", "gave no reason"),
    (failed("duplicate"), "check_first", "done already"),
    (failed("database"), "fix_first", "database refused"),
    (failed("auth"), "fix_first", "no right"),
    (failed("serialization"), "fix_first", "cannot read or accept"),
    (failed("validation"), "fix_first", "cannot read or accept"),
    (failed("not_found"), "check_first", "was not there"),
    (failed("bug"), "fix_first", "fault in the consumer"),
    (failed("other"), "fix_first", "an error of its own"),
    (failed(None), "fix_first", "an error of its own"),
    (known("transaction_pending", transaction_state="pending"), "hold", "no outcome yet"),
    (known("check_max_exceeded", transaction_state="committed"), "never", "was delivered"),
    (known("check_skipped", transaction_state="rolled_back"), "never", "business decided"),
    (known("unknown", transaction_state="ended"), "check_first", "nothing shows how"),
    (known(transaction_state="ready"), "hold", "by itself"),
    (known(transaction_state="prepared"), "check_first", "does not know yet"),
    (known(transaction_state="compensated"), "fix_first", "gave no reason"),
    (known(store_state="consumed"), "never", "was consumed"),
    (known(store_state="consumed_before"), "never", "was consumed"),
    (known(store_state="consuming"), "hold", "being consumed"),
    (known(store_state="abandoned"), "check_first", "never ended"),
    (known(store_state="too_old"), "check_first", "longer ago"),
    (known(store_state="unasked"), "check_first", "did not answer"),
    (known(store_state="no_record"), "fix_first", "gave no reason"),
    (known(duplicate=SECOND), "never", "byte for byte"),
    (known(duplicate=SECOND, store_state="unasked"), "never", "byte for byte"),
    (known(duplicate=OTHER_BODY), "check_first", "a different body"),
    (known(duplicate=SECOND._replace(exact_copy=None)), "check_first", "a different body"),
    (known(duplicate=repeats("same_key")), "check_first", "same business key"),
    (known(duplicate=repeats("same_key", first=True)), "fix_first", "gave no reason"),
    (known(duplicate=repeats("same_body")), "check_first", "neither has an id"),
    (known(duplicate=repeats("same_body"), message_id=""), "check_first", "neither has an id"),
    # Distinct ids: the producer says that these are two messages.
    (known(duplicate=repeats("same_body"), message_id="m"), "fix_first", "gave no reason"),
    (known(duplicate=repeats("business_resend")), "check_first", "under a new id"),
    (known(duplicate=repeats("several_groups", first=None)), "fix_first", "gave no reason"),
]


@each_row(("of", "advice", "words"), ADVISED)
def test_advice_follows_from_what_is_known(of: Known, advice: str, words: str) -> None:
    said, reason = advise(of)
    assert said == advice
    assert words in reason


def test_every_cause_has_an_advice_and_every_line_is_one_of_them() -> None:
    assert {line.advice for line in ADVICE} == set(causes.ADVICE)
    assert all("no advice fits" not in advise(known(cause))[1] for cause in causes.CAUSES)


RULES = (Rule("mine", "x", advice="hold", reason="we know"), Rule("short", "x", advice="replay"), Rule("cause-only", "x", "expired"))  # fmt: skip


@pytest.mark.parametrize(("rule", "advice", "reason"), [
    ("mine", "hold", "we know"),
    ("short", "replay", "your rule short says so"),
    ("cause-only", "never", "it was replayed and died again too often: another replay will not help"),
    (None, "never", "it was replayed and died again too often: another replay will not help"),
])  # fmt: skip
def test_the_users_own_advice_comes_first(rule: str | None, advice: str, reason: str) -> None:
    assert advise(known(laps=9, user_rule=rule), RULES) == (advice, reason)


DISCARDED: list[tuple[dict[str, Any], str]] = [
    ({"keys": "order 17", "message_id": "m"}, "look 'order 17' up in the business database"),
    ({"keys": "", "message_id": "m"}, "look 'm' up in the business database"),
    ({"message_id": ""}, "look its body up in the business database"),
    ({}, "look its body up in the business database"),
    ({"message_id": "m", "user_rule": "cause-only"}, "outcome is unknown: look its key up"),
]


@each_row(("more", "words"), DISCARDED)
@each_row("cause", ["check_max_exceeded", "check_skipped"])
def test_a_discarded_transaction_says_where_to_look_it(cause: str, more: dict[str, Any], words: str) -> None:
    advice, reason = advise(known(cause, transaction_state=cause, **more), RULES)
    assert advice == "check_first"
    assert words in reason


def test_a_discarded_transaction_that_has_ended_may_have_been_delivered() -> None:
    _, reason = advise(known("check_max_exceeded", transaction_state="ended", keys="order 17"))
    assert "nothing shows how" in reason
    assert "never delivered" not in reason


def test_a_suppressed_duplicate_is_told_what_its_burst_shows() -> None:
    of = known("suppressed_duplicate", burst_reason="one of 3 letters")
    assert advise(of) == ("check_first", "one of 3 letters")
    assert advise(of._replace(user_rule="mine"), RULES) == ("hold", "we know")
    assert "took it for a duplicate" in advise(of._replace(user_rule="cause-only"), RULES)[1]


def test_each_letter_keeps_its_own_words() -> None:
    words = [advise(known("check_skipped", keys=key))[1] for key in ("order 1", "order 2")]
    assert "'order 1' " in words[0]
    assert "'order 2' " in words[1]
