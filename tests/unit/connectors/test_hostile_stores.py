"""A store of evidence that means harm: its snapshot holds one line, soon, and little memory."""

import socket
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from support.rows import each_row
from support.servers.hostile import Server
from support.waiting import SOON

from dlq.archive import store_facts
from dlq.archive.storage.store import LocalStore
from dlq.capture import external_stores
from dlq.core.runtime import patience
from dlq.core.settings import Evidence

Answers = Mapping[bytes, bytes]


def redis(answers: Answers) -> Callable[[socket.socket], None]:
    """By command; in a pipeline each by its own. The greeting is as it should be, everything else OK."""
    known = {b"HELLO": b"%1\r\n+proto\r\n:3\r\n", **answers}

    def behave(peer: socket.socket) -> None:
        stream = peer.makefile("rb")
        while head := stream.readline():
            words = [stream.read(int(stream.readline()[1:]) + 2)[:-2] for _ in range(int(head[1:]))]
            peer.sendall(known.get(words[0], b"+OK\r\n"))

    return behave


def bulk(text: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(text), text)


def listed(*parts: bytes) -> bytes:
    return b"*%d\r\n" % len(parts) + b"".join(parts)


KEY = bulk(b"MSGDEDUP:a:t:k")
ONE = listed(bulk(b"0"), listed(KEY))
X, WRONG = listed(bulk(b"x")), "cannot be understood"
MORE = listed(bulk(b"7"), listed(KEY))
LONG = b":9223372036854775807\r\n"
ODD: Mapping[str, tuple[Answers, str]] = {
    "steps without end": ({b"SCAN": listed(bulk(b"7"), listed())}, "a look takes more than"),
    "keys without end": ({b"SCAN": MORE, b"MGET": X, b"PTTL": b":1\r\n"}, "a look takes more than"),
    "keys that are none": ({b"SCAN": listed(bulk(b"0"), listed(b":5\r\n"))}, WRONG),
    "a step that is none": ({b"SCAN": b":5\r\n"}, WRONG),
    "a cursor that is none": ({b"SCAN": listed(bulk(b"x"), listed(KEY))}, WRONG),
    "a state that is none": ({b"SCAN": ONE, b"MGET": listed(b":5\r\n"), b"PTTL": b":1\r\n"}, WRONG),
    "a life that is none": ({b"SCAN": ONE, b"MGET": X, b"PTTL": bulk(b"x")}, WRONG),
    "a life without end": ({b"SCAN": ONE, b"MGET": X, b"PTTL": LONG}, WRONG),
    "fewer states than keys": ({b"SCAN": ONE, b"MGET": listed(), b"PTTL": b":1\r\n"}, WRONG),
    "a large state": ({b"SCAN": ONE, b"MGET": listed(bulk(b"x" * 2**20)), b"PTTL": b":1\r\n"}, WRONG),
    "no Redis": ({b"SCAN": b"HTTP/1.1 400 Bad Request\r\n"}, "Redis failed: Protocol error"),
}


@each_row("odd", ODD)
def test_what_cannot_be_true_of_a_store_is_said_in_a_line(
    odd: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, words = ODD[odd]
    monkeypatch.setattr(patience, "LOOK", 1.0 if "a look" in words else SOON)
    with Server(redis(answers)) as server:
        evidence = Evidence("e", "rocketmq-dedup", f"redis://{server.address}/0", ("*",))
        taken = external_stores._take(LocalStore(str(tmp_path)), evidence, 1_700_000_000_000_000)
    assert taken.error is not None
    assert words in taken.error
    assert "\n" not in taken.error
    assert not [*tmp_path.rglob("*.json")], "a snapshot that is not whole does not count"


def test_no_part_of_a_snapshot_holds_more_than_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_facts, "PART_CHARACTERS", 10)
    facts = (store_facts.Fact(key, "x") for key in ("a" * 9, "b" * 9, "c"))
    taken = store_facts.write(LocalStore(str(tmp_path)), "e", 0, facts)
    assert (taken.rows, len(taken.files)) == (3, 3)
