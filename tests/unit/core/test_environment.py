"""Settings from the environment have the type that they have in the file."""

import pytest

from dlq.core.brokers import plugin_of
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


def test_what_a_variable_makes_another_kind_has_the_settings_of_that_kind() -> None:
    brokers = {"shop": {"kind": "rocketmq"}, "other": {"kind": "kafka"}}
    file = {"brokers": brokers, "sources": {"orders": {"broker": "shop", "topic": "orders.dlt"}}}
    urls = {"DLQ_BROKERS_SHOP_URL": "kafka://h:1", "DLQ_BROKERS_OTHER_URL": "kafka://h:1"}
    for changed in {"DLQ_BROKERS_SHOP_KIND": "kafka"}, {"DLQ_SOURCES_ORDERS_BROKER": "other"}:
        found = parse(file, {**urls, **changed})
        assert isinstance(found.sources["orders"], plugin_of("kafka").source), changed
        kinds = [one.kind for one in found.brokers.values() if isinstance(one, plugin_of("kafka").settings)]
        assert kinds == ["kafka"] * (1 + ("DLQ_BROKERS_SHOP_KIND" in changed))


@pytest.mark.parametrize(("variable", "text", "reason"), [
    ("DLQ_BROKERS_SHOP_KIND", "kafak", "'kafak' is unknown; did you mean 'kafka'"),
    ("DLQ_BROKERS_SHOP_KIND", "rabbitmq", "on a rabbitmq broker needs exactly one of: queue"),
    ("DLQ_REPLAY_MAX_LAPS", "abc", "DLQ_REPLAY_MAX_LAPS must be a whole number, not 'abc'"),
    ("DLQ_PROFILES_NIGHT_1_LIMIT", "", "a whole number"),
    ("DLQ_BROKERS_SHOP_WITNESS", "maybe", "true, false or 'auto', not 'maybe'"),
    ("DLQ_SPARK_CONF", "a=b", "set in the file"),
    ("DLQ_RETAIN_STATES", "replaid", "retain.states"),
])  # fmt: skip
def test_a_variable_of_the_wrong_type_is_named(variable: str, text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        settings(**{variable: text})
