"""Agents at the server of the pages: the tools of `dlq mcp` by streamable HTTP, at `/mcp`.

Who asks is proven as for pages, but never by a cookie, which a browser sends along for any site: by a bearer
that opens nothing else, or by a trusted proxy. Roles decide which tools there are.
"""

from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from dlq.core.errors import UsageError
from dlq.core.runtime.extras import import_with_extra
from dlq.operations.workspace import Notes, open_workspace
from dlq.replay.actor import name_agent
from dlq.web import people
from dlq.web.forms import check_origin
from dlq.web.guard import Refused

if TYPE_CHECKING:
    from dlq.web.console import Console
    from dlq.web.people import Person

PATH = "/mcp"
_BEARER = "bearer "
_SAID_BY_BROWSERS = frozenset(("origin", "sec-fetch-site"))
CHANGES: dict[str, people.Right] = {
    "propose_plan": "plan",
    **dict.fromkeys(("propose_dismissal", "propose_resolution", "propose_note"), "triage"),
}
"""Tool -> the right that it asks for; all others ask for `read`."""


def answer_agent(console: "Console", request: Request) -> ASGIApp:
    """Return what answers one request of an agent. Raises Refused, and Forged."""
    if request.method != "POST":
        raise Refused(405, "agents ask by POST; nothing is sent unasked")
    if _SAID_BY_BROWSERS & {*request.headers}:
        check_origin(request)
    proxied = people.read_proxy(request, console.settings.serve)
    found = (proxied, "") if proxied else _by_bearer(console, request)
    if found is None:
        return PlainTextResponse(
            "dlq: agents bring their bearer: Authorization: Bearer BEARER (docs/agents.md)\n",
            401,
            {"www-authenticate": "Bearer"},
        )
    person, name = found
    request.state.person = person
    rights = people.find_rights(person, console.settings.serve.roles)
    if "read" not in rights:
        raise Refused(403, f"{person.name} may not read: [serve] roles.read in dlq.toml says who may")
    refused = [tool for tool, right in CHANGES.items() if right not in rights]
    try:
        agents = import_with_extra("dlq.web.agents", "mcp", "agents need")
    except UsageError as error:
        raise Refused(404, str(error)) from error
    program = request.headers.get("user-agent", "").partition("/")[0]
    return _serve(agents.make_server(_seat(console, person, name, program), refused))


def _by_bearer(console: "Console", request: Request) -> "tuple[Person, str] | None":
    told = request.headers.get("authorization", "")
    if not told.lower().startswith(_BEARER):
        return None
    return console.sessions.find_agent(told[len(_BEARER) :].strip())


def _seat(console: "Console", person: "Person", name: str, program: str) -> Any:
    """Seat somebody by the name that its bearer proves, else by what its program calls itself: of one request
    by HTTP the header alone may say it."""
    return lambda agent: open_workspace(
        console.settings, Notes(), name_agent(name or agent or program, person.name)
    )


def _serve(server: Any) -> ASGIApp:
    """Return one request, with nothing that outlives it: a server that was started again answers alike."""
    from mcp.server.transport_security import TransportSecuritySettings

    ours = TransportSecuritySettings(enable_dns_rebinding_protection=False)  # the guard has seen the host
    app = server.streamable_http_app(
        streamable_http_path=PATH, json_response=True, stateless_http=True, transport_security=ours
    )

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        async with server.session_manager.run():
            await app(scope, receive, send)

    return answer
