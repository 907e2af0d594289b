"""What a pull learned of its broker is kept as far as it can be read again: a broker may tell anything."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.rows import each_row

from dlq.analyzers.rules import Facts
from dlq.analyzers.topology import facts as facts_of
from dlq.analyzers.topology import node_facts
from dlq.archive import housekeeping, topology
from dlq.archive.storage.store import LocalStore
from dlq.core.errors import FormatTooNew
from dlq.core.runtime import bounded_json
from dlq.core.settings import Settings
from dlq.replay.plans.origins import Origins
from dlq.reports import retention

KNOWN: dict[str, Any] = {
    "format": 1, "source": "s", "broker": "b", "reads": {"queue": "q"}, "delivery_limits": {"q": 3},
    "arguments": {"x-queue-type": "quorum"},
}  # fmt: skip
DEEP: list[Any] = []
for _ in range(40):
    DEEP = [DEEP]
ODD = [2**64, -(2**64), "\ud800", [["x", 1]], {"a": {"b": []}}, DEEP, float("inf"), True]


@each_row("odd", ODD, ids=lambda odd: repr(odd)[:20])
@each_row("field", sorted(topology.KNOWN.keys() - {"source", "broker", "reads"}))
def test_what_a_broker_tells_can_always_be_read_again(field: str, odd: Any) -> None:
    for told in (odd, {"q": odd}, {"q": {"a": odd}}, {odd if isinstance(odd, str) else "q": 1}, [odd]):
        data = topology.encode({**KNOWN, field: told, "unread": told})
        found = topology.read("topology/p.json", data)
        assert found["source"] == "s"
        assert found["arguments"] == KNOWN["arguments"]


def test_more_than_can_be_read_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_json, "LARGEST", 900)
    data = topology.encode({**KNOWN, **{f"a{n}": "x" * 100 for n in range(20)}})
    assert topology.read("topology/p.json", data)["reads"] == {"queue": "q"}


LOOKS: dict[str, Callable[[LocalStore], object]] = {
    "facts": lambda store: facts_of(store, Settings()).delivery_limits,
    "nodes": node_facts,
    "origins": lambda store: Origins(store)._newest,
    "limits": retention.read_limits,
    "clutter": lambda store: [*housekeeping._of_topology(store)],
}


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_what_a_pull_learned_while_the_clock_was_ahead_is_the_oldest(
    look: Callable[[LocalStore], object], store: LocalStore
) -> None:
    true, ahead = "topology/20261101T033000-b.json", "topology/20991101T033000-a.json"
    limits = {"dead_letter_exchanges": {"q": "dlx"}, "brokers": {"n": {"file_reserved_hours": 5}}}
    store.put(true, topology.encode({**KNOWN, **limits}))
    known = look(store)
    of_then = {"delivery_limits": {"q": 9}, "brokers": {"n": {"file_reserved_hours": 9}}}
    store.put(ahead, topology.encode({**KNOWN, **of_then}))
    assert look(store) == (known if known != [] else [ahead])


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_what_is_removed_while_somebody_looks_is_passed_over(
    look: Callable[[LocalStore], object], store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("topology/2.json", topology.encode(KNOWN))
    known = look(store)
    names = ["topology/1.json", "topology/2.json"]
    monkeypatch.setattr(LocalStore, "list", lambda _store, _prefix: names)
    assert look(store) == known


FACTS: dict[str, Any] = {
    "delivery_limits": {"q": 3}, "alternate_exchanges": ["unrouted"], "routes": {"shop": {"k": ["q"]}},
    "dead_letter_exchanges": {"q": "dlx"}, "dead_letter_keys": {"q": "k"}, "diverts": ["copy"],
    "places_of_the_dead": {"a": ["DLQ", None]}, "max_delivery_attempts": {"a": 5}, "killed_none": {"a": 7},
}  # fmt: skip


def learn(store: LocalStore, pull: str, **facts: Any) -> Facts:
    known = {"format": 1, "source": "s", "broker": "b", **facts}
    store.put(f"topology/{pull}.json", topology.encode(known))
    return facts_of(store, Settings())


def test_a_pull_that_learns_nothing_takes_nothing_away(store: LocalStore) -> None:
    known = learn(store, "1", **FACTS)
    assert known.delivery_limits == {"s": {"q": 3}}
    assert learn(store, "11") == known
    assert topology.newest(store).of_pulls["s"]["places_of_the_dead"] == {"a": ("DLQ", None)}
    assert learn(store, "12", delivery_limits={}).delivery_limits == {}, "nothing was learned to be there"


def test_what_one_broker_said_is_nothing_that_another_one_says(store: LocalStore) -> None:
    learn(store, "1", **FACTS)
    assert learn(store, "11", broker="other").delivery_limits == {}


@pytest.mark.parametrize("look", [LOOKS[name] for name in ("facts", "origins", "limits")])
def test_an_import_takes_nothing_away_of_what_a_pull_learned(
    look: Callable[[LocalStore], object], store: LocalStore
) -> None:
    learn(store, "1", **FACTS, message_ttl=1000)
    known = look(store)
    learn(store, "11", file="letters.jsonl")
    assert look(store) == known


def test_what_pulls_learn_of_names_alone_is_added(store: LocalStore) -> None:
    learn(store, "1", **FACTS)
    found = learn(
        store,
        "11",
        places_of_the_dead={"b": ["DLQ", None]},
        max_delivery_attempts={"b": 1},
        killed_none={"b": 9},
    )
    assert found.places_of_the_dead == {"s": {"a": ("DLQ", None), "b": ("DLQ", None)}}
    assert found.most_attempts == {"s": {"a": 5, "b": 1}}
    assert found.killed_none == {"s": {"a": 7, "b": 9}}
    assert learn(store, "12", places_of_the_dead={"a": ["D", None]}).most_attempts == {"s": {"b": 1}}


def test_what_holds_on_is_no_clutter(store: LocalStore) -> None:
    learn(store, "1", killed_none={"a": 7})
    learn(store, "11", killed_none={"b": 9})
    learn(store, "12")
    learn(store, "13")
    assert LOOKS["clutter"](store) == ["topology/12.json"]


PUT: dict[str, Callable[[Path], object]] = {
    "pipe": lambda path: os.mkfifo(path),
    "folder": lambda path: path.mkdir(),
    "no JSON": lambda path: path.write_text("{"),
}


@pytest.mark.parametrize("look", [LOOKS[name] for name in ("nodes", "limits", "clutter")])
@pytest.mark.parametrize("put", PUT.values(), ids=PUT)
def test_what_cannot_be_read_is_passed_over_where_what_is_damaged_is(
    look: Callable[[LocalStore], object], put: Callable[[Path], object], store: LocalStore
) -> None:
    store.put("topology/2.json", topology.encode(KNOWN))
    known = look(store)
    put(Path(store.location, "topology", "1.json"))
    assert look(store) == known


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_what_a_newer_dlq_wrote_is_said(look: Callable[[LocalStore], object], store: LocalStore) -> None:
    store.put("topology/2.json", topology.encode({**KNOWN, "format": 99}))
    with pytest.raises(FormatTooNew):
        look(store)
