"""Whatever value a key of the configuration has, it is taken, or refused in one line that names it."""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

import pytest
from support.rows import each_row

from dlq.core import configuration
from dlq.core.brokers import plugins
from dlq.core.errors import ConfigError
from dlq.core.settings import Consumer, Evidence, Profile, Roles, Rule

LONGEST_LINE = 700
DEEP: list[Any] = []
for _ in range(5_000):
    DEEP = [DEEP]
ODD: tuple[Any, ...] = (
    *("", " ", "x", "\0", "\n", "\x1b[31m", "\u202e", "(", "*", "[", "%", "a b\"'$", "a" * 5000),
    *("../x", "\ud800"),
    *("nan", "inf", "-1s", "1e400s", "٣s", "9" * 30 + "d", "0", "1", "true", "-" + "9" * 30),
    *(float("nan"), float("inf"), float("-inf"), 0, -1, 1, 2**63, -(2**63), 10**30, 1 << 20_000, 0.0, 1e308),
    *(True, False, None, [], [[]], [""], ["\0"], ["["], [1], [float("nan")], {}, {"x": 1}, {"": 1}, [{}]),
    *(DEEP, {"x": DEEP}, {"x": 1 << 20_000}),
    *(tomllib.loads("x = 1979-05-27")["x"], tomllib.loads("x = 07:32:00")["x"]),
    *("http://[", "amqp://127.0.0.1:99999/", "amqp://127.0.0.1:x/", "amqp://\0/", "://", "sqlite:", "s3://"),
    *("redis://127.0.0.1:x/0", "postgresql://[/x", "mysql://127.0.0.1:x/y", "127.0.0.1/33", "::/0"),
    *("json:$.", f"json:$[{'9' * 5000}]", f"$[{'9' * 5000}]", "header:", "total > 1e999", "(?P<a>x)(?P<a>y)"),
    *("a{1,99999999999}", "(" * 5000 + ")" * 5000, "(?i", "1 = 1 --"),
)
BASE: Mapping[str, Any] = {
    "brokers": {"b": {"kind": "memory"}},
    "sources": {"o": {"broker": "b", "queue": "q"}},
}
NAMED_BY = {"queue": "q", "topic": "t", "group": "g", "transactions": True}
TABLES: Mapping[str, tuple[type, dict[str, Any]]] = {
    "evidence": (Evidence, {"kind": "rocketmq-dedup", "url": "redis://127.0.0.1:1/0"}),
    "consumers": (Consumer, {"sources": ["o"]}),
    "profiles": (Profile, {}),
}
LISTS: Mapping[str, tuple[type, dict[str, Any]]] = {
    "rules": (Rule, {"name": "r", "where": "attempts > 1", "cause": "expired"})
}


def variants(made_as: type, known: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The table with each of its keys as each odd value."""
    for each in fields(made_as):
        yield from ({**known, each.name: odd} for odd in ODD)


def of_brokers() -> Iterator[dict[str, Any]]:
    for name, kind in plugins().items():
        broker = {"kind": name}
        source = {"broker": "b", kind.named_by[0]: NAMED_BY[kind.named_by[0]]}
        for odd in variants(kind.settings, broker):
            yield {"brokers": {"b": odd}, "sources": {"o": source}}
        for odd in variants(kind.source, source):
            yield {"brokers": {"b": broker}, "sources": {"o": odd}}


def of_other_tables() -> Iterator[dict[str, Any]]:
    for section, (made_as, known) in TABLES.items():
        yield from ({**BASE, section: {"x": odd}} for odd in variants(made_as, known))
        yield from ({**BASE, section: {odd: known}} for odd in ODD if isinstance(odd, str))
    for section, (made_as, known) in LISTS.items():
        yield from ({**BASE, section: [odd]} for odd in variants(made_as, known))
    for section, made_as in configuration.SINGLE.items():
        yield from ({**BASE, section: odd} for odd in variants(made_as, {}))
    yield from ({"serve": {"roles": odd}} for odd in variants(Roles, {}))
    yield from ({**BASE, section: odd} for section in configuration.TOP for odd in ODD)


@pytest.mark.parametrize("documents", [of_brokers, of_other_tables])
def test_each_key_takes_each_value_or_refuses_it_in_a_line(documents: Any) -> None:
    faults = []
    for document in documents():
        try:
            configuration.parse(document)
        except ConfigError as error:
            if len(str(error)) > LONGEST_LINE:
                faults.append(str(error)[:LONGEST_LINE])
        except Exception as error:  # noqa: BLE001 (what no user should ever see)
            faults.append(f"{type(error).__name__}: {error}"[:LONGEST_LINE])
    assert faults == []


NUL, FAR = "a\0b", "36501d"
REFUSED: dict[str, list[Mapping[str, Any]]] = {
    "holds NUL": [
        {"archive": NUL},
        {"sources": {"o": {"broker": "b", "queue": NUL}}},
        {"spark": {"conf": {"x": NUL}}},
        {"spark": {"conf": {NUL: "x"}}},
        {"mask": {"show": [f"header:{NUL}"]}},
        *({"profiles": {"x": {name: ["/bin/true", NUL]}}} for name in ("on_alarm", "report", "fail_on")),
        {"profiles": {"x": {"metrics": NUL}}},
    ],
    f"'{FAR}' is longer than a century": [
        {"profiles": {"x": {"max_time": FAR}}},
        {"ledger": {"lease": FAR}},
        {"retain": {"max_age": FAR}},
        {"replay": {"ramp_wait": FAR}},
        {"replay": {"approval_time": FAR}},
        {"evidence": {"x": {**TABLES["evidence"][1], "window": FAR}}},
    ],
}


@each_row("why, document", [(why, one) for why, of in REFUSED.items() for one in of])
def test_what_no_kernel_and_no_calendar_takes_is_refused(why: str, document: Mapping[str, Any]) -> None:
    with pytest.raises(ConfigError, match=why):
        configuration.parse({**BASE, **document})


@each_row("kind", [*plugins(), None])
@each_row("wait", ["0s", "0.5ms", "2h", "25d", "99999999999w"])
def test_a_wait_that_no_driver_takes_is_refused(kind: str | None, wait: str) -> None:
    place = "profiles.x.alarm_timeout" if kind is None else "brokers.b.timeout"
    document = {"profiles": {"x": {"alarm_timeout": wait}}} if kind is None else {}
    broker = {"kind": "memory"} if kind is None else {"kind": kind, "timeout": wait}
    with pytest.raises(ConfigError, match=f"^{place}: "):
        configuration.parse({"brokers": {"b": broker}, **document})
