"""A configuration is checked whole when it is read, and what is wrong is named with its place."""

from typing import Any

import pytest
from support.rows import each_row

from dlq.core.configuration import parse
from dlq.core.errors import ConfigError

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
