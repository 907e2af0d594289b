"""Settings from the environment have the type that they have in the file."""

import pytest

from dlq.core.configuration import parse
from dlq.core.errors import ConfigError
from dlq.core.settings import Settings

FILE = {
    "brokers": {"shop": {"kind": "rocketmq", "witness": True}},
    "sources": {"orders": {"broker": "shop", "group": "orders"}},
    "profiles": {"night-1": {}},
}


def settings(**environment: str) -> Settings:
    return parse(FILE, environment)


def test_texts_numbers_truths_and_lists_are_read() -> None:
    assert settings(DLQ_LEDGER_URL="postgresql://host/x").ledger.url == "postgresql://host/x"
    assert settings(DLQ_REPLAY_MAX_LAPS="5").replay.max_laps == 5
    nightly = settings(DLQ_PROFILES_NIGHT_1_LIMIT="7", DLQ_PROFILES_NIGHT_1_SOURCES="orders, pay-*")
    assert nightly.profiles["night-1"].limit == 7
    assert nightly.profiles["night-1"].sources == ("orders", "pay-*")
    assert settings(DLQ_RETAIN_STATES="replayed").retain.states == ("replayed",)
    shop = settings(DLQ_BROKERS_SHOP_PASSWORD_COMMAND="pass,show", DLQ_BROKERS_SHOP_WITNESS="false").brokers[
        "shop"
    ]
    assert (shop.password_command, shop.witness) == (("pass", "show"), False)
    assert settings(DLQ_BROKERS_SHOP_WITNESS="auto").brokers["shop"].witness == "auto"
    assert not settings(DLQ_SOURCES_ORDERS_TRANSACTIONS="0").sources["orders"].transactions


@pytest.mark.parametrize(("variable", "text", "reason"), [
    ("DLQ_REPLAY_MAX_LAPS", "abc", "DLQ_REPLAY_MAX_LAPS must be a whole number, not 'abc'"),
    ("DLQ_PROFILES_NIGHT_1_LIMIT", "", "a whole number"),
    ("DLQ_BROKERS_SHOP_WITNESS", "maybe", "true, false or 'auto', not 'maybe'"),
    ("DLQ_SPARK_CONF", "a=b", "set in the file"),
    ("DLQ_RETAIN_STATES", "replaid", "retain.states"),
])  # fmt: skip
def test_a_variable_of_the_wrong_type_is_named(variable: str, text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        settings(**{variable: text})
