"""One who asks for something long does not keep the others from looking, and nobody sees what is over."""

import asyncio
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import AsyncMock

import duckdb
import pytest
from httpx2 import ASGITransport, AsyncClient
from starlette.responses import Response
from starlette.types import ASGIApp
from support.archives import letter, write_segment
from support.consoles import FAILURE, NULL, Serve
from support.waiting import PATIENCE, eventually

from dlq.archive.storage.store import LocalStore
from dlq.core.errors import UsageError
from dlq.core.runtime import patience
from dlq.operations.reading.reporting import describe_now
from dlq.operations.workspace import Workspace
from dlq.web import app
from dlq.web import look as console_look
from dlq.web.app import make_app
from dlq.web.console import IN_ALL, PageRequest
from dlq.web.first_look import looking
from dlq.web.look import AT_ONCE, Kept, Look
from dlq.web.pages import books, now

OTHERS = ("/", "/failures", "/letters", "/incidents", "/plans", "/transactions", "/audit")
BALANCED = {"balanced": True, "sources": []}
FOR_EVER = "SELECT count(*) FROM range(1000000000000) a, range(1000000)"
PROXY = {"proxies": ["127.0.0.1"]}


class Slow:
    """Stands in the place of something long: begun, and not over before it may be."""

    def __init__(self, result: Any) -> None:
        self.begun, self.may_end, self.times, self._result = threading.Event(), threading.Event(), 0, result

    def __call__(self, _workspace: Workspace) -> Any:
        self.times += 1
        self.begun.set()
        assert self.may_end.wait(PATIENCE)
        return self._result


@contextmanager
def meanwhile(slow: Slow, *asks: Callable[[], Any]) -> Iterator[list[Any]]:
    """These are asked, each in a thread; the block runs while the first goes on."""
    answers: list[Any] = []
    threads = [threading.Thread(target=lambda ask=ask: answers.append(ask())) for ask in asks]
    for one in threads:
        one.start()
    assert slow.begun.wait(PATIENCE)
    try:
        yield answers
    finally:
        slow.may_end.set()
        for one in threads:
            one.join(PATIENCE)


@pytest.fixture
def look(serve: Serve) -> Look:
    return serve().console.look


def test_pages_come_while_the_books_are_proven(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Slow(BALANCED)
    monkeypatch.setattr(books, "verify_books", slow)
    browser = serve()
    with meanwhile(slow, lambda: browser.post("/books").status_code) as answers:
        assert [browser.get(path).status_code for path in OTHERS] == [200] * len(OTHERS)
        assert answers == []
    assert answers == [303]


def test_as_many_look_at_once_as_there_are_places(look: Look) -> None:
    slow = [Slow(number) for number in range(AT_ONCE - 1)]
    asks = [lambda one=one: look.keep(one, one) for one in slow]
    with meanwhile(slow[0], *asks) as answers:
        assert all(one.begun.wait(PATIENCE) for one in slow)
        assert look.keep("short", lambda _workspace: "short") == "short"
        for one in slow:
            one.may_end.set()
    assert sorted(answers) == list(range(AT_ONCE - 1))


def test_what_was_made_is_kept_until_somebody_changes_something(look: Look, store: LocalStore) -> None:
    slow = Slow("before")
    with meanwhile(slow, lambda: look.keep("name", slow)) as answers:
        write_segment(store, "p-9", [letter(9)])
        look.forget()
        assert look.keep("other", lambda _workspace: 1) == 1
    assert answers == ["before"]
    assert [look.keep("name", lambda _workspace, n=n: n) for n in (1, 2)] == [1, 1], "made of the archive now"
    look.forget()
    assert look.keep("name", lambda _workspace: 2) == 2


def test_a_store_far_away_holds_up_only_who_looks_at_it(look: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    read = look.read_moment
    assert look.keep("n", lambda _workspace: 1) == 1
    slow = Slow(read())
    monkeypatch.setattr(look, "read_moment", lambda: slow(look.workspace))
    monkeypatch.setattr(look, "looked_at", -PATIENCE)
    with meanwhile(slow, lambda: look.keep("n", lambda _workspace: 2)) as answers:
        assert look.keep("n", lambda _workspace: 3) == 1
        assert answers == []
    assert answers == [1]


def test_what_is_changed_while_somebody_looks_is_looked_at_again(
    look: Look, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = look.read_moment
    before = Slow(read())
    moments = iter([lambda: before(look.workspace), read])
    monkeypatch.setattr(look, "read_moment", lambda: next(moments)())
    with meanwhile(before, lambda: look.keep("n", lambda _workspace: 1)):
        look.forget()
    assert next(moments, None) is None, "it was read twice"


def test_nothing_stays_of_what_could_not_be_made(look: Look) -> None:
    def refuse(_workspace: Workspace) -> None:
        raise UsageError("there is no such letter")

    for number in range(3):
        with pytest.raises(UsageError):
            look.keep(("count", number, "any text" * 8_000), refuse)
    assert look.keep("n", lambda _workspace: 1) == 1
    assert len(look.making) == 0


def test_what_the_ledger_says_by_now_is_seen_without_opening_the_archive_anew(
    serve: Serve, store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = serve()
    chosen = re.findall(r'href="/letters/([0-9a-f]{32})"', browser.get("/letters").text)[0]
    monkeypatch.setattr(console_look, "open_views", None)
    browser.post("/letters/chosen", {"id": chosen, "act": "dismiss", "reason": "seen"})
    assert chosen in browser.get("/letters?replay_state=dismissed").text
    assert 'data-label="dismissed">1<' in browser.get("/books").text
    monkeypatch.undo()
    write_segment(store, "p-9", [letter(9)])
    browser.console.look.forget()
    assert letter(9).record_id in browser.get("/letters").text


def test_who_asks_again_and_again_for_what_takes_long_keeps_nobody_from_a_page(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow(BALANCED)
    monkeypatch.setattr(books, "count_books", slow)
    pages = make_app(serve(enter=False, serve=PROXY).console, log=False)

    async def ask_all() -> list[int]:
        asking = AsyncClient(transport=ASGITransport(pages), base_url="http://127.0.0.1:8080")
        async with asking, asyncio.timeout(2 * PATIENCE):
            ask = lambda path, who: asking.get(path, headers={"x-forwarded-user": who})  # noqa: E731
            again = [asyncio.create_task(ask("/books", "ada")) for _ in range(80)]
            while not slow.begun.is_set():
                await asyncio.sleep(0.01)
            others = [await asyncio.wait_for(ask("/audit", who), PATIENCE / 2) for who in ("ada", "bob")]
            slow.may_end.set()
            return [answer.status_code for answer in [*others, *await asyncio.gather(*again)]]

    assert asyncio.run(ask_all()) == [200] * 82
    assert slow.times == 1


@pytest.mark.parametrize(
    "path", ["/", "/failures", "/letters", "/incidents", "/transactions", "/plans/new?cause=x"]
)
def test_a_page_whose_reading_takes_too_long_says_so_and_shows_nothing_as_empty(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    def ask_slowly(kept: Kept, name: str) -> Any:
        if name in ("execute", "sql"):
            kept.connection.execute(FOR_EVER)
        return getattr(kept.connection, name)

    browser = serve()
    monkeypatch.setattr(patience, "QUESTION", 0.2)
    monkeypatch.setattr(Kept, "__getattr__", ask_slowly)
    answer = browser.get(path)
    assert answer.status_code == 503
    assert "was ended after 0.2 s: there is no answer" in answer.text
    assert "Nothing is captured yet" not in answer.text
    assert "Pull now" not in answer.text


def test_a_question_that_begins_when_the_time_is_over_is_ended_too(
    look: Look, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "QUESTION", 0.0)
    with look.open() as workspace:
        time.sleep(0.2)
        with pytest.raises(duckdb.InterruptException):
            workspace.views.execute(FOR_EVER)  # type: ignore[union-attr]


@dataclass
class Gate:
    """In the place of the threads that make pages: all that come wait until it opens."""

    app: ASGIApp
    making: int = 0
    opened: asyncio.Event = field(default_factory=asyncio.Event)

    async def make(self, page: Callable[[PageRequest], Response], ask: PageRequest) -> Response:
        self.making += 1
        await self.opened.wait()
        return page(ask)

    def ask(self, path: str, who: str, is_gone: bool = False) -> asyncio.Task[None]:
        """A request by a proxy; its client may have gone by the time that the page is made."""
        said = {"type": "http.disconnect"} if is_gone else {"type": "http.request"}
        headers = [(b"host", b"127.0.0.1:8080"), (b"x-forwarded-user", who.encode())]
        scope = {"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": headers}
        receive, send = AsyncMock(return_value=said), AsyncMock()
        return asyncio.create_task(self.app({**scope, "client": ("127.0.0.1", 1)}, receive, send))

    async def settle(self) -> int:
        """How many pages are made when everybody has had more turns than a request takes; no thread has a
        part in it."""
        for _ in range(1000):
            await asyncio.sleep(0)
        return self.making


@pytest.fixture
def gate(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> Gate:
    found = Gate(make_app(serve(enter=False, serve=PROXY).console, log=False))
    monkeypatch.setattr(app, "run_in_threadpool", found.make)
    return found


def test_all_pages_of_one_person_leave_threads_to_the_others(gate: Gate) -> None:
    async def ask_all() -> tuple[int, int]:
        asked = [gate.ask(path, "ada") for path in (*OTHERS, "/books") for _ in range(4)]
        of_ada = await gate.settle()
        asked.append(gate.ask("/audit", "bob"))
        of_both = await gate.settle()
        gate.opened.set()
        await asyncio.gather(*asked)
        return of_ada, of_both

    assert asyncio.run(ask_all()) == (IN_ALL, IN_ALL + 1)
    assert gate.making == 4 * (len(OTHERS) + 1) + 1


def test_what_nobody_waits_for_any_more_is_not_made(gate: Gate) -> None:
    async def ask_all() -> None:
        asked = [gate.ask("/books", "ada"), *(gate.ask("/books", "ada", is_gone=True) for _ in range(80))]
        await gate.settle()
        gate.opened.set()
        await asyncio.gather(*asked)

    asyncio.run(ask_all())
    assert gate.making == 1


def test_who_may_only_look_has_the_books_proven_once_while_much_changes(
    serve: Serve, store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    proven: list[float] = []

    def prove(_workspace: Workspace) -> dict[str, Any]:
        proven.append(time.monotonic())
        time.sleep(1)
        return BALANCED

    monkeypatch.setattr(books, "verify_books", prove)
    monkeypatch.setattr(patience, "FRESH", 0.0)
    reader = serve(serve={"roles": {}})
    for number in range(5):
        assert reader.post("/books").status_code == 303
        write_segment(store, f"p-{number + 2}", [letter(number + 10)])
    assert len(proven) == 1 or proven[1] - proven[0] > 9, "a tenth of the time at most"
    reader.console.look.forget()
    assert reader.post("/books").status_code == 303
    assert len(proven) > 1, "what this page has changed is proven at once"


def test_a_server_that_starts_makes_the_first_page_before_anybody_asks(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Workspace] = []
    monkeypatch.setattr(now, "describe_now", lambda space: made.append(space) or describe_now(space))
    reader = serve()
    with looking(reader.console):
        eventually(lambda: made)
    assert reader.get("/").status_code == 200
    assert len(made) == 1


def test_who_may_only_look_asks_brokers_once_and_makes_nothing_anew(
    serve: Serve, shop: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Workspace] = []
    monkeypatch.setattr("dlq.web.console.inspect_sources", lambda space, _sources: asked.append(space) or [])
    reader = serve(serve={"roles": {}}, **shop)
    assert reader.console.look.keep("made", lambda _workspace: 1) == 1
    assert [reader.post("/depths").status_code for _ in range(3)] == [303] * 3
    assert len(asked) == 1
    assert "were asked less than" in reader.get("/").text
    assert reader.console.look.keep("made", lambda _workspace: 2) == 1


def test_a_failures_state_is_in_the_report_at_once(serve: Serve) -> None:
    browser = serve()
    assert "An example of" in browser.get("/").text
    for one in (FAILURE, f"/failures/{NULL}"):
        assert browser.post(f"{one}/resolve", {"reason": "mended"}).status_code == 303
    assert "An example of" not in browser.get("/").text
    assert browser.post(f"{FAILURE}/reopen", {"reason": "again"}).status_code == 303
    assert "An example of" in browser.get("/").text
