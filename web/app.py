"""The pages as one ASGI application: who asks is found out, and what they may, before any page is made."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple
from urllib.parse import urlencode

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from dlq.core.errors import ArchiveError, BrokerError, Busy, DlqError, TookTooLong, UsageError, with_next_step
from dlq.web import agents_by_http, people
from dlq.web.console import Console, PageRequest
from dlq.web.console import Refused as RefusedForm
from dlq.web.forms import Form, read_form
from dlq.web.guard import Guard, Refused
from dlq.web.pages import ACTS, ROUTES
from dlq.web.people import Forged, Person
from dlq.web.render import read_static, render

_STATIC = "/static/"
_NO_FORM = Form(())
_STATUS: tuple[tuple[type[DlqError], int], ...] = (
    (Busy, 409),
    (BrokerError, 502),
    (ArchiveError, 503),
    (TookTooLong, 503),
)
_Page = Callable[[PageRequest], Response]


class _FoundPage(NamedTuple):
    """The page of an address, and what the address names."""

    right: people.Right
    page: _Page
    acts: Sequence[str]
    names: dict[str, str]
    on: Sequence[str]
    """Of a change: the paths of the pages that offer it."""


def make_app(console: Console, log: bool = True) -> ASGIApp:
    """Return the application, with what guards it."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        answer = await _answer(console, request)
        await answer(scope, receive, send)

    return Guard(app, console.settings.serve.hosts, log)


async def _answer(console: Console, request: Request) -> ASGIApp:
    path, is_change = request.url.path, request.method == "POST"
    if path.startswith(_STATIC) and not is_change:
        return _static(path.removeprefix(_STATIC))
    try:
        if "token" in request.query_params and not is_change:
            return _enter(console, request)
        if path == agents_by_http.PATH:
            return agents_by_http.answer_agent(console, request)
        person = _find_person(console, request)
    except Forged as error:
        raise Refused(400, str(error)) from error
    if person is None:
        return _unknown(request)
    request.state.person = person
    form = await read_form(request, console.sessions, person) if is_change else _NO_FORM
    if path == "/logout" and is_change:
        return _leave(console, person)
    return await _show(console, request, person, form)


async def _show(console: Console, request: Request, person: Person, form: Form) -> Response:
    rights = people.find_rights(person, console.settings.serve.roles)
    is_change = request.method == "POST"
    found = _find("POST" if is_change else "GET", request.url.path)
    names, acts = (found.names, found.acts) if found else ({}, ())
    ask = PageRequest(console, person, rights, request.url.path, names, request.query_params, form, acts)
    if "read" not in rights:
        return _tell(ask, 403, ask.barrier("read"))
    if found is None:
        return _tell(ask, 404, f"there is no page {request.url.path}")
    if found.right not in rights:
        return _tell(ask, 403, ask.barrier(found.right))
    try:
        async with console.turns.take(person.name, found.page, is_change):
            if not is_change and await request.is_disconnected():
                raise ConnectionError(f"{person.name} has gone")
            return await run_in_threadpool(found.page, ask)
    except DlqError as error:
        usage = 409 if is_change else 404 if found.names else 400
        status = next((code for kind, code in _STATUS if isinstance(error, kind)), usage)
        status, text = status if not isinstance(error, UsageError) else usage, with_next_step(error)
        again = await run_in_threadpool(_show_again, ask, found, text) if is_change else None
        if again is None:
            return _tell(ask, status, text)
        again.status_code = status
        return again


def _show_again(ask: PageRequest, found: _FoundPage, text: str) -> Response | None:
    """Return the page that offers what was refused, with the form as it was sent; None where it cannot be
    shown."""
    place = next(iter(found.on), "")
    offering = _find("GET", place.format_map(ask.names)) if place else None
    if offering is None or offering.right not in ask.rights:
        return None
    sent = QueryParams([(name, one) for name in ask.form.names() for one in ask.form.several(name)])
    refused = RefusedForm(ask.path, ask.form, ask.masker().sentence(text))
    try:
        return offering.page(
            replace(ask, names=offering.names, query=sent, acts=offering.acts, refused=refused)
        )
    except DlqError:
        return None


def _tell(ask: PageRequest, status: int, text: str) -> Response:
    """Return what cannot be shown or done, in the words of the terminal."""
    return replace(ask, acts=()).page("refused", [], status, text=ask.masker().sentence(text))


def _find(method: str, path: str) -> _FoundPage | None:
    for known, pattern, right, page, acts, on in _PATTERNS:
        if known == method and (named := pattern.fullmatch(path)):
            return _FoundPage(right, page, acts, named.groupdict(), on)
    return None


_PATTERNS = [
    (
        route.method,
        re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[A-Za-z0-9_.-]{1,128})", route.path)),
        route.right,
        route.page,
        ACTS.get(route.path, ()),
        route.on,
    )
    for route in ROUTES
]
"""What an address names are ids of ours: nothing in them leads to another folder."""


def _find_person(console: Console, request: Request) -> Person | None:
    """Return whose name is proven: by a trusted proxy, else by a cookie of this start. Raises Forged."""
    named = people.read_proxy(request, console.settings.serve)
    return named or next(filter(None, map(console.sessions.find, _read_cookies(console, request))), None)


def _read_cookies(console: Console, request: Request) -> Iterator[str]:
    """Yield what may be a session of ours, as it stands there: a stranger's cookie is neither decoded, which
    takes Python before 3.11.10 the square of its length (CVE-2024-7592), nor does it hide ours."""
    for pair in request.headers.get("cookie", "").split(";"):
        name, _, value = pair.strip().partition("=")
        if name == console.cookie:
            yield value


def _enter(console: Console, request: Request) -> Response:
    """Lead on to the page that was meant, without the token in its address: a cookie takes its place. Raises
    Forged."""
    session = console.sessions.enter(request.query_params["token"])
    if session is None and _find_person(console, request) is None:
        return _unknown(request)
    answer = RedirectResponse(_place_of(request) or "/", 303)
    if session is None:
        return answer
    secure = request.headers.get("x-forwarded-proto") == "https" and people.is_trusted(
        request, console.settings.serve.proxies
    )
    answer.set_cookie(console.cookie, session, httponly=True, samesite="strict", secure=secure, path="/")
    return answer


def _leave(console: Console, person: Person) -> Response:
    console.sessions.leave(person)
    answer = render("unknown", {"again": "", "left": True, **_FIRST_PAGE})
    answer.delete_cookie(console.cookie, httponly=True, samesite="strict")
    return answer


def _unknown(request: Request) -> Response:
    """Answer somebody without a name. Who comes by a link of another site sends no cookie: their browser is
    asked to come again from here."""
    from_elsewhere, place = request.headers.get("sec-fetch-site") == "cross-site", _place_of(request)
    where = {"path": request.url.path, "asked": _list_query(request)} if place else _FIRST_PAGE
    return render("unknown", {"again": place if from_elsewhere else "", "left": False, **where}, 401)


_FIRST_PAGE = {"path": "/", "asked": ()}


def _place_of(request: Request) -> str:
    """Return the page that is asked for, with its query; nothing where there is none: `//evil.example` would
    lead a browser away."""
    path, asked = request.url.path, _list_query(request)
    if request.method != "GET" or not _find("GET", path):
        return ""
    return f"{path}?{urlencode(asked)}" if asked else path


def _list_query(request: Request) -> list[tuple[str, str]]:
    """Return the query without the token."""
    return [(name, text) for name, text in request.query_params.multi_items() if name != "token"]


def _static(name: str) -> Response:
    found = read_static(name)
    if found is None:
        return PlainTextResponse("dlq: there is no such file\n", 404)
    content, kind = found
    return Response(content, media_type=kind, headers={"cache-control": "public, max-age=300"})
