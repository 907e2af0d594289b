"""A server of pages and clients that take nothing: each connection ends, and none is waited for."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import uvicorn
from support.consoles import Serve
from support.waiting import PATIENCE, eventually

from dlq.core.runtime import patience
from dlq.web import server
from dlq.web.app import make_app

SOON = 0.2


@pytest.fixture
def served(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> Iterator[uvicorn.Server]:
    """The pages as `dlq serve` serves them, with little patience."""
    for row in ("SHORTLY", "ENDED"):
        monkeypatch.setattr(patience, row, SOON)
    pages = make_app(serve().console, log=False)
    running = uvicorn.Server(uvicorn.Config(pages, http=server.Patient, lifespan="off", log_config=None))
    listening = socket.create_server(("127.0.0.1", 0))
    running.servers = []
    thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]})
    thread.start()
    running.address = listening.getsockname()  # type: ignore[attr-defined]
    yield running
    running.should_exit = True
    thread.join()


@pytest.mark.parametrize("asked", [1, 100])
def test_who_takes_no_answer_is_let_go(served: uvicorn.Server, asked: int) -> None:
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        deaf.connect(served.address)  # type: ignore[attr-defined]
        with suppress(OSError):  # who is slow to ask may be let go before that
            deaf.sendall(b"GET /static/htmx.js HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * asked)
        time.sleep(SOON / 4)
        eventually(lambda: not served.server_state.connections)


def ask(address: tuple[str, int], token: str) -> bytes:
    """The first line of what a browser with a token is answered."""
    with socket.create_connection(address, timeout=PATIENCE) as browser:
        browser.sendall(f"GET /?token={token} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        return browser.recv(65536).partition(b"\r\n")[0]


def test_silent_connections_of_a_stranger_keep_nobody_out(
    served: uvicorn.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MOST_AT_ONCE", 5)
    monkeypatch.setattr(patience, "SHORTLY", 60.0)
    address = served.address  # type: ignore[attr-defined]
    silent = [socket.create_connection(address) for _ in range(20)]
    for one in silent[::2]:
        one.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ")
    assert ask(address, "wrong") == b"HTTP/1.1 401 Unauthorized"
    assert len(served.server_state.connections) <= 6
    for one in silent:
        one.close()


def test_who_is_known_does_not_give_way_to_strangers(monkeypatch: pytest.MonkeyPatch) -> None:
    class Connection(server.Patient):
        def __init__(self, state: dict[str, object]) -> None:
            self.scope: Any = {"state": state}
            self.transport: Any = self
            self._is_known = self.let_go = False

        def abort(self) -> None:
            self.let_go = True

    known, stranger, last = Connection({"person": "ada"}), Connection({}), Connection({})
    monkeypatch.setattr(server.Patient, "_open", dict.fromkeys((known, stranger, last)))
    known._knows()
    known.scope = {"state": {}}
    last._make_room()
    assert [one.let_go for one in (known, stranger, last)] == [False, True, False]
