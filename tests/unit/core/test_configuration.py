"""A configuration is checked whole when it is read, and what is wrong is named with its place."""

from typing import Any

import pytest
from support.rows import each_row

from dlq.connectors.local.credentials import password_of
from dlq.core.configuration import parse
from dlq.core.errors import ConfigError, UsageError
from dlq.core.settings import Evidence

BROKERS = {"shop": {"kind": "memory"}}


def sources(**changes: object) -> dict[str, Any]:
    return {"brokers": BROKERS, "sources": {"orders": {"broker": "shop", "queue": "q", **changes}}}


@each_row(
    ("data", "place"),
    [
        ({"ledger": {"lease": "soon"}}, "ledger.lease: 'soon' is not a duration"),
        ({"retain": {"max_size": "big"}}, "retain.max_size: 'big' is not a size"),
        (
            {"profiles": {"nightly": {"max_time": "long"}}},
            "profiles.nightly.max_time: 'long' is not a duration",
        ),
        ({"brokers": {"shop": {"kind": "memory", "timeout": "x"}}}, "brokers.shop.timeout: 'x' is no"),
        (sources(key="body:x"), "sources.orders.key: 'body:x' is unknown"),
        (sources(mode="move"), "sources.orders.mode = 'move' is unknown"),
        *(
            ({table: {name: value}}, f"{table}.{name}: '{value}' is no time; give more")
            for table, name, value in [("ledger", "lease", "0s"), ("replay", "approval_time", "0")]
        ),
        *(
            ({table: {name: value}}, f"{table}.{name} = {value} is too small; give")
            for table, name, value in [
                ("retain", "analyses", 0),
                ("replay", "max_laps", -3),
                ("replay", "window", 0),
                ("analysis", "spark_from", -1),
            ]
        ),
        ({"profiles": {"nightly": {"limit": 0}}}, "profiles.nightly.limit = 0 is too small"),
        ({"profiles": {"nightly": {"max_time": "0s"}}}, "profiles.nightly.max_time: '0s' is no time"),
        (
            {"consumers": {"pay": {"sources": ["*"], "holds_for": "0d"}}},
            "consumers.pay.holds_for: '0d' is no",
        ),
    ],
)
def test_what_means_nothing_is_named_with_its_place(data: dict[str, Any], place: str) -> None:
    with pytest.raises(ConfigError, match=f"^{place}"):
        parse(data)


@each_row("section", ["brokers", "sources", "evidence", "profiles"])
@each_row("name", ["../x", "", "-x", "a b", "naïve", "x\n", "x" * 101])
def test_a_name_that_no_file_may_have_is_refused(section: str, name: str) -> None:
    with pytest.raises(ConfigError, match=r"a name has letters, digits, '\.', '_' and '-' only, and 100"):
        parse({section: {name: {}}})


def test_an_empty_configuration_is_sound() -> None:
    assert parse({}).archive == "./archive"


def store(**table: Any) -> Evidence:
    given = {"kind": "rocketmq-dedup", "url": "redis://cache:6379/0", **table}
    return parse({"evidence": {"pay": given}}).evidence["pay"]


def test_a_store_needs_only_its_kind_and_place() -> None:
    plain = store()
    assert (plain.sources, plain.window, plain.prefix, plain.table) == (("*",), "24h", None, None)
    assert store(url="postgresql://reader@db/shop", table="pay.t_dedup").table == "pay.t_dedup"


@each_row(("table", "text"), [
    ({"kind": "rocketmq-dedupe"}, "did you mean 'rocketmq-dedup'"),
    ({"kind": "shine-mq", "url": "postgresql://db/shop"}, "scheme of evidence.pay.url = 'postgresql'"),
    ({"url": "cache:6379"}, "is no URL"),
    ({"url": "redis://:geheim@cache"}, "holds a password"),
    ({"url": "postgresql://me:geheim@db/shop"}, "holds a password"),
    ({"url": "redis://cache/0?password=geheim"}, "holds a password"),
    ({"table": "t_dedup"}, "means nothing to a redis store"),
    ({"url": "mysql://db/shop", "prefix": "X"}, "means nothing to a mysql store"),
    ({"url": "mysql://db/shop", "table": "x; drop table y"}, "is no table"),
    ({"sources": []}, "sources is empty"),
    ({"window": "a day"}, "not a duration"),
    ({"windows": "24h"}, "did you mean 'window'"),
])  # fmt: skip
def test_a_mistake_is_one_line(table: dict[str, Any], text: str) -> None:
    with pytest.raises(UsageError, match=text) as caught:
        store(**table)
    assert "geheim" not in str(caught.value)


def test_its_password_lies_where_a_brokers_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAY_SECRET", "geheim")
    assert password_of("evidence.pay", store(password_env="PAY_SECRET")) == "geheim"
    assert password_of("evidence.pay", store(password_command=["printf", "geheim"])) == "geheim"
    assert password_of("evidence.pay", store()) is None
    with pytest.raises(ConfigError, match=r"evidence\.pay\.password_file"):
        password_of("evidence.pay", store(password_file="/nowhere"))
