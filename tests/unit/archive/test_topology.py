"""What a pull learned of its broker is kept as far as it can be read again: a broker may tell anything."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.rows import each_row

from dlq.analyzers.topology import facts, node_facts
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
    "facts": lambda store: facts(store, Settings()).delivery_limits,
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
