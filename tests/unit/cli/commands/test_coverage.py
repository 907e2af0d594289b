"""`dlq coverage`: what would be lost, as a table, as data, as a threshold and as a picture."""

import json
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

import pytest
from support.builders import Dlq

from dlq.connectors.base import Fate
from dlq.connectors.memory import MemoryConnector
from dlq.core.errors import Unreachable

HOSTILE = "</text><script>\x1b[31m\x00\u202e\x9b\ud800"
FATES = [
    Fate("queue", "orders", "expiry", "kept", ("orders.dlq",)),
    Fate("queue", "orders", "reject", "lost", (), "it has no dead-letter exchange", "set_policy x"),
    Fate("queue", HOSTILE, "reject", "unknown", (), "its policies are not shown"),
]


@pytest.fixture
def dlq(dlq: Dlq, monkeypatch: pytest.MonkeyPatch) -> Dlq:
    monkeypatch.setattr(MemoryConnector, "coverage", lambda _self: FATES, raising=False)
    Path("dlq.toml").write_text('[brokers.shop]\nkind = "memory"\nurl = "memory:///tmp/none"\n')
    return partial(dlq, "coverage")


def test_what_is_lost_comes_first_with_the_command_that_changes_it(dlq: Dlq) -> None:
    code, out, err = dlq("-o", "table")
    rows = out.splitlines()
    assert (code, rows[0].split()) == (0, ["broker", "what", "death", "leads_to", "verdict", "why"])
    verdicts = ["lost", "unknown", "kept"]
    assert [next(one for one in verdicts if one in row) for row in rows[1:]] == verdicts
    assert "set_policy x" in err
    assert "shop: 1 lost, 1 unknown, 1 kept" in err
    assert "\x1b" not in out + err


def test_json_holds_rows_and_counts(dlq: Dlq) -> None:
    document = json.loads(dlq("shop", "-o", "json")[1])
    assert document["counts"] == {"lost": 1, "unknown": 1, "kept": 1, "total": 3}
    assert document["coverage"][0] == {
        "broker": "shop", "what": "queue orders", "death": "reject", "leads_to": [], "verdict": "lost",
        "why": "it has no dead-letter exchange", "fix": "set_policy x",
    }  # fmt: skip


def test_a_threshold_that_is_passed_is_5_wrong_words_are_2_and_a_broker_that_is_away_is_4(
    dlq: Dlq, monkeypatch: pytest.MonkeyPatch
) -> None:
    bound = ("--fail-on", "lost > 0")
    for words, expected, said in (
        (bound, 5, "--fail-on lost > 0: lost is 1"), ((*bound, "--death", "expiry"), 0, ""),
        (("--fail-on", "gone > 0"), 2, "known are lost, unknown, kept, total"),
        (("--death", "rejct"), 2, "did you mean 'reject'?"), (("shp",), 2, "did you mean 'shop'?"),
    ):  # fmt: skip
        code, _out, err = dlq(*words)
        assert (code, said in err) == (expected, True), err

    def unreachable(_self: object) -> None:
        raise Unreachable("no connection")

    monkeypatch.setattr(MemoryConnector, "coverage", unreachable)
    code, out, err = dlq(*bound)
    assert (code, out, err.count("\n")) == (4, "", 1)
    assert err.startswith("dlq: shop: no connection")


def test_the_picture_is_xml_whatever_a_queue_is_called(dlq: Dlq) -> None:
    dlq("--svg", "dead.svg")
    texts = [one.text or "" for one in ElementTree.parse("dead.svg").iter() if one.tag.endswith("text")]
    assert "queue orders" in texts
    assert any("</text><script>" in text for text in texts)
    assert {"LOST", "UNKNOWN", "orders.dlq"} <= set(texts)
    assert not {"\u202e", "\x9b"} & set(Path("dead.svg").read_text("utf-8"))
