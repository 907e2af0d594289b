from hypothesis import given
from hypothesis import strategies as st
from support.rows import each_row

from dlq.connectors.rabbitmq.console.lines import death_columns
from dlq.connectors.rabbitmq.records.deliveries import history
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


@each_row("shape", [LIST, LIST[0], JSON_TEXT, JSON_TEXT[1:-1], PYTHON_TEXT, JAVA_TEXT])
def test_every_shape_of_a_death_history_is_read(shape: object) -> None:
    assert deaths(shape) == (WHOLE,)


@each_row(("entry", "death"), [
    ({"reason": "expired"}, Death("expired")),
    ({"reason": None, "queue": 5}, Death(None, "5")),
    ({"reason": "expired", "count": True, "time": "soon", "routing-keys": 7}, Death("expired")),
    ({"reason": "expired", "count": 10**30, "time": -1}, Death("expired")),
    ({"reason": "expired", "time": 1_762_053_129_000}, Death("expired", time=AT)),
])  # fmt: skip
def test_missing_and_odd_parts_are_left_open(entry: object, death: Death) -> None:
    assert deaths([entry]) == (death,)


@each_row(("count", "attempts"), [(3, 3), (0, 0), (-1, None), (9_999_999_999_999, None)])
def test_a_count_that_cannot_be_true_tells_no_attempts(count: int, attempts: int | None) -> None:
    history = [{"reason": "expired", "count": 7}, {"reason": "rejected", "count": count}]
    assert rejections(deaths(history)) == attempts


def test_lone_surrogates_in_a_history_of_text_are_escaped() -> None:
    found = deaths(r'[{"reason": "\ud800", "routing-keys": ["\ud800"]}]')
    assert found == (Death(r"\ud800", routing_keys=(r"\ud800",)),)


@each_row("nothing", [None, 5, "", "System.Object", "[[[[", "1", [None], [[]], {}, "[1]"])
def test_what_tells_of_no_death_gives_none(nothing: object) -> None:
    assert deaths(nothing) == ()


@given(st.text() | st.text(alphabet="[]{}(),=:'\"adtime.reasonL0123456789 -"))
def test_no_text_makes_it_fail(text: str) -> None:
    assert isinstance(deaths(text), tuple)


def test_the_history_tells_the_first_place_and_the_times() -> None:
    past = history(
        '[{"reason": "expired", "queue": "wait", "exchange": "", "count": 2, "time": "2026-11-02T03:12:09Z"},'
        ' {"reason": "rejected", "queue": "work", "exchange": "shop", "routing-keys": ["order", "cc"],'
        ' "count": 3, "time": "2026-11-02T03:12:08Z"}]'
    )
    assert [death.reason for death in past.deaths] == ["expired", "rejected"]
    assert (past.queue, past.exchange, past.routing_key, past.rejections) == ("work", "shop", "order", 3)
    assert (past.last or 0) - (past.first or 0) == 1_000_000


def test_a_history_that_is_missing_or_odd_says_nothing() -> None:
    for text in (None, "", "System.Object[]", "null"):
        assert history(text) == ((), None, None, None, None, None, None)
    assert history('[{"reason": "rejected"}]').deaths == (Death(reason="rejected"),)


def test_what_was_rejected_again_stands_in_front_and_its_first_death_is_the_first_all_the_same() -> None:
    text = (
        '[{"reason": "rejected", "queue": "work", "exchange": "shop", "routing-keys": ["order"], "count": 2},'
        ' {"reason": "expired", "queue": "wait", "exchange": "", "routing-keys": ["wait"], "count": 1}]'
    )
    told = {"x-first-death-queue": "work", "x-first-death-reason": "rejected"}
    past, line = history(text, *told.values()), death_columns(deaths(text), told)
    assert (past.queue, past.exchange, past.routing_key) == ("work", "shop", "order")
    names = ("origin", "origin_exchange", "origin_routing_key")
    assert [line[name] for name in names] == ["work", "shop", "order"]
