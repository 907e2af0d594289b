"""What stands before every page: which names are ours, how much may come, how fast, what browsers must do.

Loopback is no access control: any site that a browser shows can send requests there. So names that are not
ours are refused (DNS rebinding), a change needs a form of ours (see `dlq.web.forms`), and no page can be put
into a frame of another.
"""

import asyncio
import re
import sys
import time
import traceback
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from ipaddress import ip_address
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dlq.core.clock import iso, now
from dlq.core.runtime import patience
from dlq.core.text import block_for_terminal, for_terminal

LARGEST_FORM = 64 * 1024
"""Bytes of a form, unless its page says more."""
_LARGEST_EDIT = 4 * 2**20
"""Bytes of a form with an edited letter."""
_FORM_SECONDS = 15.0
"""In which a form has to arrive."""
_LOCAL = ("localhost",)
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS: Mapping[str, str] = {
    "content-security-policy": _POLICY,
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
_METHODS = ("GET", "HEAD", "POST")
_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^\[\]:]+))(?::[0-9]{0,5})?")
"""An address of IPv6, or a name, and a port."""
_MOST_CLIENTS = 10_000


class Refused(Exception):
    """A request that ends here, with a status and a line."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Rates:
    """How often one client may ask: a bucket of `burst`, filled with `rate` a second."""

    def __init__(self, rate: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._burst, self._clock = rate, burst, clock
        self._left: dict[str, tuple[float, float]] = {}

    def take(self, client: str) -> bool:
        """Return whether one more is let through."""
        now_ = self._clock()
        left, at = self._left.get(client, (float(self._burst), now_))
        left = min(float(self._burst), left + (now_ - at) * self._rate)
        if len(self._left) > _MOST_CLIENTS:
            self._left.clear()
        self._left[client] = (max(0.0, left - 1.0), now_)
        return left >= 1.0


class Guard:
    """The outermost layer. `hosts` are names that may be asked for beside those of this host itself."""

    def __init__(self, app: ASGIApp, hosts: Sequence[str] = (), log: bool = True) -> None:
        self._app, self._log = app, log
        self._hosts = frozenset(host.lower() for host in (*_LOCAL, *hosts))
        self._looks, self._changes = Rates(40.0, 400), Rates(4.0, 40)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request pass, or answer it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun, answered = time.monotonic(), _Answer(send)
        try:
            self._check(scope)
            if scope["method"] == "POST":
                receive = _hand_over(await _read_body(scope, receive), receive)
            await self._app(scope, receive, answered)
        except Refused as refused:
            await _say(refused)(scope, receive, answered)
        except (TimeoutError, ConnectionError):
            answered.status = answered.status or 499  # whoever asked has gone, or never reads
        except Exception:  # noqa: BLE001 (one page that fails must not end the others)
            sys.stderr.write(block_for_terminal(traceback.format_exc()))
            failed = Refused(500, "this page failed: what the server wrote on standard error says why")
            if not answered.status:
                await _say(failed)(scope, receive, answered)
        finally:
            if self._log:
                _write_log(scope, answered.status, time.monotonic() - begun)

    def _check(self, scope: Scope) -> None:
        """Check a request. Raises Refused."""
        headers, method = Headers(scope=scope), scope["method"]
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._is_ours(hosts[0]):
            named = for_terminal(hosts[0][:200]) if hosts else "none"
            raise Refused(421, f"host {named} is not served here; [serve] hosts lists names that are")
        if "content-length" in headers and "transfer-encoding" in headers:
            raise Refused(400, "a request has one length: a proxy may have read another one")
        if method not in _METHODS:
            raise Refused(405, "only GET and POST are understood here")
        client = scope["client"][0] if scope.get("client") else ""
        if not (self._changes if method == "POST" else self._looks).take(client):
            raise Refused(429, "too many requests: wait a moment")

    def _is_ours(self, host: str) -> bool:
        read = _HOST.fullmatch(host.lower())
        bare = (read[1] or read[2]) if read else ""
        if bare in self._hosts:
            return True
        try:
            return ip_address(bare).is_loopback
        except ValueError:
            return False


def _say(refused: Refused) -> PlainTextResponse:
    return PlainTextResponse(f"dlq: {refused}\n", refused.status, {"connection": "close"})


async def _read_body(scope: Scope, receive: Receive) -> bytes:
    """A form, whole. Raises Refused for what is too large, or comes too slowly."""
    most = _LARGEST_EDIT if scope["path"].endswith("/edit") else LARGEST_FORM
    told = Headers(scope=scope).get("content-length", "0")
    if not told.isascii() or not told.isdigit() or int(told[:20]) > most:
        raise Refused(413, f"a form has {most:,} bytes at most")
    try:
        async with asyncio.timeout(_FORM_SECONDS):
            return await _receive_all(receive, most)
    except TimeoutError as error:
        raise Refused(408, f"the form did not arrive within {_FORM_SECONDS:.0f} s") from error


async def _receive_all(receive: Receive, most: int) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ConnectionError
        body += message.get("body", b"")
        if len(body) > most:
            raise Refused(413, f"a form has {most:,} bytes at most")
        if not message.get("more_body"):
            return bytes(body)


def _hand_over(body: bytes, receive: Receive) -> Receive:
    """Return what was read, once more; then what comes after it: that the client has gone."""
    told = False

    async def again() -> Message:
        nonlocal told
        if told:
            return await receive()
        told = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


class _Answer:
    """Sends an answer with our headers. A client that takes nothing is not waited for."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = 0

    async def __call__(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
            headers.setdefault("cache-control", "no-store")
        async with asyncio.timeout(patience.ENDED):
            await self._send(message)


def _write_log(scope: Scope, status: int, seconds: float) -> None:
    """Write a line on standard error. No query: a token or what somebody searched for may stand there."""
    person = scope.get("state", {}).get("person")
    who = for_terminal(person.name) if person else "-"
    path = for_terminal(scope["path"])[:500]
    line = f"{iso(now())} {who} {scope['method']} {path} {status} {seconds * 1000:.0f} ms\n"
    sys.stderr.write(line)
    sys.stderr.flush()
