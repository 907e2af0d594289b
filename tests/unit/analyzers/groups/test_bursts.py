"""What a letter of a burst of suppressed duplicates is told that it shows."""

from typing import Any

from support.rows import each_row

from dlq.analyzers.groups import bursts
from dlq.analyzers.groups.bursts import DEFAULT_PREFETCH, Standing, burst_id, oldest_known, reason

AT = 1_795_212_001_250_000
LOOK = "The text proves neither: look its business data up before it is sent"
ALONE = "one of 3 letters suppressed on connection ID:vm:1"
NOBODY_KNEW = "no audit could have known it"


def standing(producer_seq: int | None = 41, **known: Any) -> Standing:
    """The letter 41 of 40 to 42, unless something else is said."""
    of_three = {"connection_id": "ID:vm:1", "burst_size": 3, "consumers": 1, "producers": 1}
    seqs = {"newest": 42, "oldest": 40, "first_seq": 40, "last_seq": 42}
    return Standing(producer_seq=producer_seq, **{**of_three, **seqs, **known})


SAID: list[tuple[str, Standing, str]] = [
    ("the first of its range", standing(40), f"{ALONE}; its producer's 40 to 42 came without a gap; {bursts.FIRST}. {LOOK}"),
    ("behind the first", standing(41), f"{ALONE}; its producer's 40 to 42 came without a gap; {bursts.BEHIND}. {LOOK}"),
    ("a range of one", standing(7, first_seq=7, last_seq=7), f"{ALONE}; {bursts.BEHIND}. {LOOK}"),
    ("an unknown range", standing(7, first_seq=None, last_seq=None), f"{ALONE}; {bursts.BEHIND}. {LOOK}"),
    ("without a number", standing(None, newest=None, oldest=None, first_seq=None), f"{ALONE}; {bursts.BEHIND}. {LOOK}"),
    ("several consumers", standing(7, last_seq=None, consumers=2), f"{ALONE} (2 consumers); {bursts.BEHIND}. {LOOK}"),
    ("the log's time", standing(last_seq=None, log_time=AT, burst_from=AT), f"{ALONE}; by the client's log from 2026-11-20T22:00:01.250Z; {bursts.BEHIND}. {LOOK}"),
    (
        "all that the log tells",
        standing(last_seq=None, burst_from=AT, failed="tcp://a:1", reconnected="tcp://b:1"),
        f"{ALONE}; by the client's log from 2026-11-20T22:00:01.250Z, after tcp://a:1 had failed and it had reconnected to tcp://b:1; {bursts.BEHIND}. {LOOK}",
    ),
    ("no time, no log", standing(last_seq=None, failed="tcp://a:1"), f"{ALONE}; {bursts.BEHIND}. {LOOK}"),
]  # fmt: skip


@each_row(("of", "said"), [case[1:] for case in SAID], ids=[case[0] for case in SAID])
def test_each_letter_is_told_what_it_shows(of: Standing, said: str) -> None:
    assert reason(of) == said


def test_what_no_audit_remembers_is_another_fault() -> None:
    oldest = oldest_known(10_000)
    assert NOBODY_KNEW in reason(standing(oldest - 1, newest=10_000))
    assert NOBODY_KNEW not in reason(standing(oldest, newest=10_000))


def test_without_a_log_that_holds_only_if_the_burst_is_one_reconnects() -> None:
    alone = reason(standing(1, newest=10_000))
    assert f"if all of its burst died at one reconnect, {NOBODY_KNEW}" in alone
    assert f"; {NOBODY_KNEW}" in reason(standing(1, newest=10_000, log_time=AT))


def test_an_audit_of_2048_remembers_33_arrays_of_64_bits() -> None:
    assert [oldest_known(newest) for newest in (0, 2_111, 2_112, 10_000)] == [0, 0, 64, 7_936]


def test_more_producers_than_an_audit_remembers_are_said() -> None:
    assert "more producers than an audit remembers" in reason(standing(producers=65))
    assert "more producers" not in reason(standing(producers=64))


def test_a_burst_beyond_the_default_prefetch_says_so() -> None:
    said = {size: "default prefetch" in reason(standing(burst_size=size)) for size in (1000, 1001)}
    assert said == {DEFAULT_PREFETCH: False, DEFAULT_PREFETCH + 1: True}
    assert "default prefetch" not in reason(standing(burst_size=1001, consumers=2))


def test_a_burst_is_named_for_its_connection_and_its_reconnect() -> None:
    names = [
        burst_id(*of) for of in [("amq", "c", None), ("amq", "c", 1), ("amq", "d", None), (None, "c", None)]
    ]
    assert names[0] == "amq-004838257485"
    assert len(set(names)) == len(names)
