import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.rows import each_row

from dlq.connectors.rabbitmq.records.x_death import deaths, rejections
from dlq.core.record import Death

AT = 1_762_053_129_000_000
WHOLE = Death("rejected", "orders", "shop", ("order.created", "cc"), 2, AT, "60000")

LIST = [
    {
        "count": 2, "reason": "rejected", "queue": "orders", "time": "2025-11-02T03:12:09Z",
        "exchange": "shop", "routing-keys": ["order.created", "cc"], "original-expiration": "60000",
    }
]  # fmt: skip
JSON_TEXT = (
    '[{"count": 2, "reason": "rejected", "queue": "orders", "time": 1762053129, "exchange": "shop",'
    ' "routing-keys": ["order.created", "cc"], "original-expiration": "60000"}]'
)
PYTHON_TEXT = (
    "[{'count': 2L, 'reason': 'rejected', 'queue': 'orders', 'exchange': 'shop',"
    " 'original-expiration': '60000',"
    " 'time': datetime.datetime(2025, 11, 2, 3, 12, 9, tzinfo=datetime.timezone.utc),"
    " 'routing-keys': ['order.created', 'cc']}]"
)
JAVA_TEXT = (
    "[{reason=rejected, original-expiration=60000, count=2, exchange=shop, time=Sun Nov 02 03:12:09 UTC 2025,"
    " routing-keys=[order.created, cc], queue=orders}]"
)


@pytest.mark.parametrize("shape", [LIST, LIST[0], JSON_TEXT, JSON_TEXT[1:-1], PYTHON_TEXT, JAVA_TEXT])
def test_every_shape_of_a_death_history_is_read(shape: object) -> None:
    assert deaths(shape) == (WHOLE,)


@pytest.mark.parametrize(("entry", "death"), [
    ({"reason": "expired"}, Death("expired")),
    ({"reason": None, "queue": 5}, Death(None, "5")),
    ({"reason": "expired", "count": True, "time": "soon", "routing-keys": 7}, Death("expired")),
    ({"reason": "expired", "count": 10**30, "time": -1}, Death("expired")),
    ({"reason": "expired", "time": 1_762_053_129_000}, Death("expired", time=AT)),
])  # fmt: skip
def test_missing_and_odd_parts_are_left_open(entry: object, death: Death) -> None:
    assert deaths([entry]) == (death,)


@pytest.mark.parametrize(("count", "attempts"), [(3, 3), (0, 0), (-1, None), (9_999_999_999_999, None)])
def test_a_count_that_cannot_be_true_tells_no_attempts(count: int, attempts: int | None) -> None:
    assert (
        rejections(deaths([{"reason": "expired", "count": 7}, {"reason": "rejected", "count": count}]))
        == attempts
    )


def test_lone_surrogates_in_a_history_of_text_are_escaped() -> None:
    found = deaths(r'[{"reason": "\ud800", "routing-keys": ["\ud800"]}]')
    assert found == (Death(r"\ud800", routing_keys=(r"\ud800",)),)


@each_row("nothing", [None, 5, "", "System.Object", "[[[[", "1", [None], [[]], {}, "[1]"])
def test_what_tells_of_no_death_gives_none(nothing: object) -> None:
    assert deaths(nothing) == ()


@given(st.text() | st.text(alphabet="[]{}(),=:'\"adtime.reasonL0123456789 -"))
def test_no_text_makes_it_fail(text: str) -> None:
    assert isinstance(deaths(text), tuple)
