"""`dlq discover` and `dlq init --url`: sources for what looks like dead letters."""

import json
import os
import tomllib
from pathlib import Path
from socket import socket
from typing import Any

import pytest
from support.builders import Dlq, in_file
from support.rows import each_row
from support.terminals import converse

from dlq.connectors.base import DeadLetterPlace
from dlq.connectors.memory import broker_at
from dlq.connectors.rabbitmq.look.discovery import places
from dlq.core.configuration import parse
from dlq.core.settings import Settings
from dlq.operations.brokers.discovering import write_sources


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = in_file(tmp_path)
    for queue in ("orders.dlq", "bills dlq", "orders"):
        broker_at(url).declare(queue)
    broker_at(url).put("orders.dlq", {"broker_kind": "rabbitmq", "body_text": "a"})
    return url


def test_a_configuration_is_made_from_what_a_broker_holds(dlq: Dlq, url: str) -> None:
    code, _out, err = dlq("init", "--url", url)
    made = tomllib.loads(Path("dlq.toml").read_text())
    assert (code, "2 sources added to dlq.toml" in err) == (0, True)
    assert made["sources"] == {
        "bills-dlq": {"broker": "memory", "queue": "bills dlq"},
        "orders.dlq": {"broker": "memory", "queue": "orders.dlq"},
    }
    assert dlq("pull", "orders.dlq")[0] == 0


def test_queues_with_the_longest_names_get_sources_that_can_be_pulled(dlq: Dlq, url: str) -> None:
    queues = [f"{'orders-' * 35}{n}.dlq" for n in range(3)]
    for queue in queues:
        broker_at(url).declare(queue)
    assert dlq("init", "--url", url)[0] == 0
    made = tomllib.loads(Path("dlq.toml").read_text())["sources"]
    names = [name for name, source in made.items() if source["queue"] in queues]
    assert (len(names), max(map(len, names)) <= 100) == (3, True)
    assert [dlq("pull", name)[0] for name in names] == [0, 0, 0]


def test_what_is_configured_is_not_added_again(dlq: Dlq, url: str) -> None:
    dlq("init", "--url", url)
    broker_at(url).declare("new.dlq")
    before = Path("dlq.toml").read_text()
    code, out, err = dlq("discover", "--write", "-o", "csv")
    assert (code, "1 sources added" in err) == (0, True)
    added = '\n[sources."new.dlq"]\nbroker = "memory"\nqueue = "new.dlq"\n'
    assert Path("dlq.toml").read_text() == before + added
    assert [line.split(",")[6] for line in out.splitlines()] == ["configured", "True", "False", "True"]
    code, _out, err = dlq("discover", "memorx")
    assert (code, "did you mean 'memory'" in err) == (2, True)


def test_the_configuration_that_was_read_gets_the_sources_and_keeps_its_owner_and_rights(
    dlq: Dlq, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, link = tmp_path / "mine.toml", tmp_path / "etc.toml"
    link.symlink_to(mine)
    monkeypatch.setenv("DLQ_CONFIG", str(link))
    assert dlq("init")[0] == 2, "it is there already, by a link that leads nowhere"
    mine.write_text(f'[brokers.memory]\nkind = "memory"\nurl = "{url}"\n')
    mine.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(mine, 1, 2)
    before = mine.stat()
    assert f"without a source to {link}" in dlq("discover")[2]
    assert f"2 sources added to {link}" in dlq("discover", "--write")[2]
    assert len(tomllib.loads(mine.read_text())["sources"]) == 2
    after = mine.stat()
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)
    assert (link.is_symlink(), Path("dlq.toml").exists()) == (True, False)


def test_a_configuration_that_takes_no_more_tables_stays_as_it_is(dlq: Dlq, url: str) -> None:
    text = f'sources = {{}}\n[brokers.m]\nkind = "memory"\nurl = "{url}"\n'
    Path("dlq.toml").write_text(text)
    code, _out, err = dlq("discover", "--write")
    assert (code, "so nothing was added: give each source" in err) == (2, True)
    assert Path("dlq.toml").read_text() == text


@pytest.mark.parametrize(("words", "said"), [
    (["--url", "foo://x"], "foo:// is the scheme of no broker"),
    (["--url", "amqp://me:secret@x/"], "--url holds a password"),
    (["--url", "rocketmq://x:1", "--api", "http://x"], "--api has no meaning for a rocketmq broker"),
    (["--url", "tcp://x", "--api", "http://me:secret@x/"], "jolokia_url holds a password"),
    (["--api", "http://x"], "--api is of a broker"),
])  # fmt: skip
def test_a_wrong_url_is_said_and_nothing_is_written(dlq: Dlq, words: list[str], said: str) -> None:
    code, _out, err = dlq("init", *words)
    assert (code, said in err, Path("dlq.toml").exists()) == (2, True, False)
    assert "secret@" not in err


def test_no_name_of_a_queue_breaks_the_configuration_and_what_it_cannot_hold_is_left_out() -> None:
    names = ['a"]\n[brokers.x]\nkind = "rabbitmq"', "\x1b[2J", "..", "ünï.dlq", "a\x7fb", "\U0001f4a9.dlq"]
    found = [DeadLetterPlace(name, {"queue": name}, "classic", "") for name in ["\ud800.dlq", *names]]
    made = tomllib.loads(write_sources(Settings(), {"shop": found}))
    assert [source["queue"] for source in made["sources"].values()] == names
    parse({"brokers": {"shop": {"kind": "rabbitmq", "url": "amqp://x"}}, **made}, {})


def queue(name: str, **values: Any) -> dict[str, Any]:
    return {"name": name, "type": "classic", "messages": 1, "consumers": 0, **values}


@each_row(("name", "is_found"), [
    ("orders.dlq", True), ("dlq-orders", True), ("orders_error", True), ("orders_skipped", True),
    ("Orders.Dead.Letter", True), ("dead-letters", True), ("parking-lot", True), ("DLQ", True),
    ("orders.parkinglot", True), ("parked-orders", True), ("orders_quarantine", True),
    ("orders.unroutable", True), ("ordersParkingLot", True), ("ordersDLQ", True), ("orders", False),
    ("errorless", False), ("middleqwerty", False), ("deadline", False), ("", False),
])  # fmt: skip
def test_a_name_tells_a_dead_letter_queue(name: str, is_found: bool) -> None:
    assert bool(list(places([queue(name)], []))) is is_found
    assert list(places([queue(name, type="stream")], [])) == [], "a stream is no source"


def bound(source: str, destination: str, kind: str = "queue") -> dict[str, str]:
    return {"source": source, "destination": destination, "destination_type": kind}


def test_queues_behind_an_alternate_exchange_are_found_also_by_a_second_exchange() -> None:
    bindings = [bound("lost", "strays"), bound("lost", "onward", "exchange"), bound("onward", "more.strays")]
    found = list(places([queue("strays"), queue("more.strays"), queue("orders")], bindings, {"lost": "shop"}))
    assert [place.name for place in found] == ["more.strays", "strays"]
    assert {place.because for place in found} == {"what shop cannot route goes there"}


def test_of_a_broker_that_does_not_answer_nothing_is_said_but_how_to_go_on(dlq: Dlq) -> None:
    with socket() as closed:
        closed.bind(("127.0.0.1", 0))
        there = f"127.0.0.1:{closed.getsockname()[1]}"
        code, out, err = dlq("init", "--url", f"amqp://{there}/", "--api", f"http://{there}")
    assert (code, out) == (4, "")
    assert err.splitlines() == [
        f"dlq: rabbitmq: brokers.rabbitmq.management_url ({there}) does not answer: Connection refused; "
        "check the url, and that the broker runs",
        "0 sources added to dlq.toml; fix what the error names (settings: dlq.toml), "
        "then: dlq discover --write",
    ]


def test_what_is_not_found_is_said_of_brokers_that_answered(dlq: Dlq, tmp_path: Path) -> None:
    away = '[brokers.away]\nkind = "rabbitmq"\nurl = "amqp://127.0.0.1:1/"\n'
    empty = f'[brokers.empty]\nkind = "memory"\nurl = "memory://{tmp_path}/empty.db"\n'
    Path("dlq.toml").write_text(away + empty)
    code, out, err = dlq("discover", "-o", "json")
    assert [one["broker"] for one in json.loads(out)["errors"]] == ["away"]
    code, _out, err = dlq("discover")
    assert (code, "nothing on empty looks like a dead-letter queue" in err) == (3, True)
    assert "away looks" not in err


def test_an_empty_answer_or_none_writes_the_example_and_nothing_is_asked_where_a_file_is(
    tmp_path: Path,
) -> None:
    for words, answers in ((["init"], [("URL of your broker", "")]), (["init", "--no-input"], [])):
        code, seen = converse(tmp_path, words, answers)
        assert (code, "wrote dlq.toml; edit it, then: dlq doctor" in seen) == (0, True)
        assert "[brokers.shop]" in (tmp_path / "dlq.toml").read_text()
        code, seen = converse(tmp_path, ["init"], [])
        assert (code, "add --force to replace it" in seen) == (2, True)
        (tmp_path / "dlq.toml").unlink()
