"""Which broker can say that a letter was not sent to it: the very one, or none."""

import pytest

from dlq.connectors.rocketmq.bounds import why_another

SENT_TO = {"a#master 10.0.0.1:10911": 1, "a#epoch 3": 1}


@pytest.mark.parametrize(
    ("then", "now", "words"),
    [
        (SENT_TO, SENT_TO, None),
        (SENT_TO, {**SENT_TO, "b#master 10.0.0.2:10911": 1}, None),
        ({}, SENT_TO, "master then: nothing known; now: 10.0.0.1:10911"),
        (SENT_TO, {"a#master 10.0.0.2:10911": 1, "a#epoch 3": 1}, "now: 10.0.0.2:10911"),
        (SENT_TO, {}, "now: nothing known"),
        ({**SENT_TO, "a#master 10.0.0.2:10911": 1}, SENT_TO, "then: 10.0.0.1:10911 and 10.0.0.2:10911"),
        (SENT_TO, {**SENT_TO, "a#master 10.0.0.2:10911": 1}, "now: 10.0.0.1:10911 and 10.0.0.2:10911"),
        (SENT_TO, {"a#master 10.0.0.1:10911": 1, "a#epoch 5": 1}, "epoch then: 3; now: 5"),
        ({"a#master 10.0.0.1:10911": 1}, SENT_TO, "epoch then: nothing known; now: 3"),
        ({**SENT_TO, "a#epoch 4": 1}, {**SENT_TO, "a#epoch 4": 1}, "epoch then: 3 and 4; now: 3 and 4"),
        ({"a#master x": 1, "a#epoch untold": 1}, {"a#master x": 1, "a#epoch untold": 1}, "now: untold"),
    ],
)
def test_not_sent_is_the_word_of_the_master_that_was_sent_to(
    then: dict[str, int], now: dict[str, int], words: str | None
) -> None:
    why = why_another(then, now, "a")
    assert (why is None) == (words is None)
    assert words is None or words in str(why)
