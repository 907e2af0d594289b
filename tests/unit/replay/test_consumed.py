"""What shows that the letters of a step are consumed, as a table of what a broker tells before and after."""

from collections.abc import Mapping

from support.rows import each_row

from dlq.connectors.base import Consumption, Reached, Target, consumption_of
from dlq.replay.plans.destinations import Destination
from dlq.replay.runs.consumed import Consumed, how_far_consumed, in_words, up_to

ORDERS: Destination = ("shop", Target("queue", "orders"))
BILLS: Destination = ("shop", Target("queue", "bills"))
NONE: Mapping[Destination, int] = {ORDERS: 0, BILLS: 0}
LATE = 5.0
"""How old the broker's numbers may be."""


def told(waiting: int, acknowledged: int | None = None, consumers: int | None = 1) -> Consumption:
    return Consumption("orders", waiting, consumers, acknowledged)


def shown(unacknowledged: int, acknowledged: int) -> Consumption:
    """By numbers that are late, of a queue in which nothing is ready."""
    return told(0, acknowledged)._replace(age=LATE, unacknowledged=unacknowledged)


TEN: dict[str, tuple[Consumption, Consumption, int, float | None, Consumed]] = {
    "as many acknowledged as sent": (told(0, 5), told(0, 15), 0, None, "consumed"),
    "one less": (told(0, 5), told(0, 14), 0, None, "held"),
    "one less, which came back": (told(0, 5), told(0, 14), 1, None, "consumed"),
    "nobody there": (told(0, 5, 0), told(10, 5, 0), 0, None, "waiting"),
    "nobody there, and nothing is counted": (told(0), told(10), 0, None, "waiting"),
    "taken, and nothing is counted": (told(0), told(0), 0, None, "taken"),
    "a backlog that stays": (told(1000), told(1000), 0, None, "waiting"),
    "a backlog that is gone": (told(1000), told(9), 0, None, "taken"),
    "a backlog that shrinks: ours lie behind it": (told(1000, 0), told(800, 210), 0, None, "waiting"),
    "all before ours and ours, while others come": (told(1000, 0), told(30, 1010), 0, None, "consumed"),
    "a counter that fell, perhaps with one node of several": (told(0, 900), told(0, 10), 0, None, "taken"),
    # Where it is to be known of each of them.
    "all acknowledged, and nothing lies there": (told(0, 5), told(0, 15), 0, 0.0, "consumed"),
    "one is held": (told(0, 5), told(0, 14), 0, 0.0, "held"),
    "and that one came back": (told(0, 5), told(0, 14), 1, 0.0, "consumed"),
    "as many as were sent, but ours may lie there": (told(5, 0), told(1, 14), 0, 0.0, "waiting"),
    "each before ours and ours, while others come": (told(5, 0), told(3, 15), 0, 0.0, "consumed"),
    "what died counts once where it is acknowledged, too": (told(0, 0), told(4, 6), 4, 0.0, "waiting"),
    "nothing is counted": (told(0), told(0), 0, 0.0, "taken"),
    "numbers from before the letters": (shown(0, 0), shown(0, 10), 0, 4.9, "waiting"),
    "and from after them": (shown(0, 0), shown(0, 10), 0, 5.1, "consumed"),
    "a consumer holds one": (shown(0, 0), shown(1, 9), 0, 5.1, "waiting"),
}


@each_row(("before", "now", "came_back", "since", "expected"), TEN.values(), ids=TEN)
def test_ten_letters_are(
    before: Consumption, now: Consumption, came_back: int, since: float | None, expected: Consumed
) -> None:
    found = how_far_consumed({ORDERS: [before]}, {ORDERS: [now]}, {ORDERS: 10}, {ORDERS: came_back}, since)
    assert found == expected


def read(**logs: tuple[int, ...]) -> list[Consumption]:
    """A group: where it is in each partition, where that ends, and where it begins."""
    return [consumption_of("group billing", {name: Reached(*at) for name, at in logs.items()}, 1, LATE)]


ALL_READ = read(a=(3, 3), b=(90, 90))
SENT_TO_A = read(a=(3, 4), b=(90, 95))
"""What was told once the letter lay in partition a, and others had sent to b."""
ONE: dict[str, tuple[list[Consumption], list[Consumption], int, Consumed]] = {
    "read": (SENT_TO_A, read(a=(4, 4), b=(95, 95)), 1, "consumed"),
    "read, while others send": (SENT_TO_A, read(a=(4, 7), b=(95, 99)), 1, "consumed"),
    "unread, while another partition is": (SENT_TO_A, read(a=(3, 4), b=(95, 95)), 1, "waiting"),
    "unread, and its group was set back": (SENT_TO_A, read(a=(2, 4), b=(50, 95)), 1, "waiting"),
    "where nobody tells any more": (SENT_TO_A, read(b=(95, 95)), 1, "waiting"),
    "where nobody has told since it was sent": (read(b=(90, 95)), read(b=(95, 95)), 1, "waiting"),
    "gone before it was read": (SENT_TO_A, read(a=(3, 4, 4), b=(95, 95)), 1, "waiting"),
    "not told of yet": (ALL_READ, ALL_READ, 1, "waiting"),
    "in a partition that came later": (read(a=(3, 3), b=(90, 90), c=(0, 1)), ALL_READ, 1, "waiting"),
    "of an earlier run, and read": (ALL_READ, ALL_READ, 0, "consumed"),
}


@each_row(("behind", "now", "sent", "expected"), ONE.values(), ids=ONE)
def test_a_letter_in_a_log_is(
    behind: list[Consumption], now: list[Consumption], sent: int, expected: Consumed
) -> None:
    cut = up_to({ORDERS: behind}, {ORDERS: now})
    for since in (None, 10.0):
        assert how_far_consumed({ORDERS: ALL_READ}, cut, {ORDERS: sent}, NONE, since) == expected
    assert in_words(cut) == f"{cut[ORDERS][0].waiting} wait in group billing (1 consumer)"


def test_what_waits_in_a_partition_counts_where_a_letter_may_be() -> None:
    old = {ORDERS: read(a=(3, 3), b=(0, 50))}
    now = {ORDERS: read(a=(4, 4), b=(0, 50))}
    assert how_far_consumed(old, now, {ORDERS: 1}, NONE) == "consumed"
    assert how_far_consumed(now, now, {ORDERS: 0}, NONE) == "waiting", "sent by a run that was killed"


def test_of_a_receiver_that_is_not_shown_any_more_nothing_is_known() -> None:
    before = {ORDERS: [told(0, 5), told(0, 5)._replace(receiver="audit")]}
    assert how_far_consumed(before, {ORDERS: [told(0, 15)]}, {ORDERS: 10}, NONE) == "unknown"


def test_the_place_of_which_least_is_known_decides() -> None:
    fine, hung = [told(0, 10)], [told(10, 0)]
    now = {ORDERS: fine, BILLS: hung}
    assert how_far_consumed({}, now, {ORDERS: 5, BILLS: 5}, NONE) == "waiting"
    assert how_far_consumed({}, now, {ORDERS: 5}, NONE) == "consumed"
    assert how_far_consumed({}, {ORDERS: fine}, {ORDERS: 5, BILLS: 5}, NONE) == "unknown"


def test_a_receiver_without_consumers_counts_only_where_all_have_none() -> None:
    audit = Consumption("audit", 500, 0, 0)
    assert how_far_consumed({}, {ORDERS: [told(0, 10), audit]}, {ORDERS: 10}, NONE) == "consumed"
    assert how_far_consumed({}, {ORDERS: [told(10, 0, 0), audit]}, {ORDERS: 10}, NONE) == "waiting"


def test_words_name_the_queue_and_its_consumers() -> None:
    seen = {ORDERS: [told(3), told(4, None, 0), told(5, None, 2), told(6, None, None)]}
    assert in_words(seen) == (
        "3 wait in orders (1 consumer), 4 wait in orders (no consumer), "
        "5 wait in orders (2 consumers), 6 wait in orders"
    )
