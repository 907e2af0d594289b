"""Starting the page: where it listens, what it asks for before it does, and how long it waits for anybody."""

import asyncio
import errno
import socket
from collections.abc import Callable
from contextlib import suppress
from ipaddress import ip_address
from typing import Any, ClassVar

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from dlq.core.errors import ConfigError, UsageError
from dlq.core.runtime import patience
from dlq.core.settings import Settings
from dlq.operations.bearers import read_bearers
from dlq.operations.workspace import Notes, open_workspace
from dlq.replay.actor import system_user
from dlq.web.app import make_app
from dlq.web.console import Console
from dlq.web.first_look import looking
from dlq.web.jobs import Jobs
from dlq.web.look import Look
from dlq.web.people import Sessions, check_groups

MOST_AT_ONCE = 200
"""Connections. Beyond them the oldest of those that nobody with a proven name has used gives way."""
_GRACE_SECONDS = 3


class Patient(H11Protocol):
    """A connection that says nothing, or too slowly what it wants, ends; so does one whose peer takes
    nothing. To close it would wait for that peer."""

    _open: ClassVar[dict["Patient", None]] = {}
    """All that are open, the oldest first."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._is_known = False
        self._open[self] = None
        if len(self._open) > MOST_AT_ONCE:
            self._make_room()
        self._limit = self._deaf = self._call_later(patience.SHORTLY, self._give_up)

    def _make_room(self) -> None:
        """Close a stranger's silent connection: it must not keep others out, and any user may open one."""
        oldest = min(self._open, key=Patient._knows)
        del self._open[oldest]
        oldest.transport.abort()

    def _knows(self) -> bool:
        """Return whether somebody whose name is proven asks by this connection, or has asked."""
        self._is_known = self._is_known or "person" in (self.scope or {}).get("state", {})
        return self._is_known

    def _call_later(self, seconds: float, act: Callable[[], None]) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(seconds, act)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._deaf = self._call_later(patience.ENDED, self.transport.abort)

    def resume_writing(self) -> None:
        self._deaf.cancel()
        super().resume_writing()

    def handle_events(self) -> None:
        super().handle_events()
        if self.cycle is not None and not self.cycle.response_complete:
            self._limit.cancel()

    def on_response_complete(self) -> None:
        self._limit.cancel()
        self._limit = self._call_later(patience.SHORTLY, self._give_up)
        self._knows()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._open.pop(self, None)
        self._limit.cancel()
        self._deaf.cancel()
        super().connection_lost(exc)

    def _give_up(self) -> None:
        self._deaf.cancel()
        self._deaf = self._call_later(patience.ENDED, self.transport.abort)
        self.transport.close()


def serve(
    settings: Settings,
    config: str | None,
    host: str,
    port: int,
    tell: Callable[[str, str | None], None],
    log: bool = True,
) -> None:
    """Serve the pages until the process is asked to end. Once it listens `tell` is given the address with the
    token, and the bearer of agents where none is configured; where proxies say who asks, neither. Raises
    UsageError, ConfigError."""
    check_host(settings, host)
    check_groups(settings.serve)
    listening = _listen(host, port)
    port = listening.getsockname()[1]
    console = make_console(settings, config, port)
    server = uvicorn.Server(
        uvicorn.Config(
            make_app(console, log),
            http=Patient,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=True,
            timeout_keep_alive=int(patience.SHORTLY),
            timeout_graceful_shutdown=_GRACE_SECONDS,
        )
    )
    address, sessions = f"http://{_name_of(host)}:{port}/", console.sessions
    if settings.serve.proxies:
        tell(address, None)
    else:
        tell(f"{address}?token={sessions.token}", sessions.agents.get(""))
    with suppress(KeyboardInterrupt), looking(console):  # uvicorn passes it on when all is closed
        server.run(sockets=[listening])


def make_console(settings: Settings, config: str | None, port: int) -> Console:
    """Return all that lives as long as the server."""
    workspace = open_workspace(settings, Notes())
    sessions = Sessions(system_user(), read_bearers(settings.serve))
    jobs = Jobs(workspace.store.location, config)
    return Console(settings, sessions, jobs, Look(workspace), f"dlq-{port}")


def check_host(settings: Settings, host: str) -> None:
    """Raise ConfigError for an address that others reach while nothing says by which name they may."""
    if not _is_loopback(host) and not settings.serve.hosts:
        raise ConfigError(
            f"--host {host}: others could reach the page there, and the configuration does not say by which "
            'name: set [serve] hosts = ["dlq.example"], roles, and proxies that say who asks (docs/serve.md)'
        )


def _is_loopback(host: str) -> bool:
    """Return whether only this host reaches the address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _name_of(host: str) -> str:
    """Return the address as it stands in a URL."""
    return f"[{host}]" if ":" in host else host


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=256)
    except (OSError, OverflowError) as error:
        taken = getattr(error, "errno", None) == errno.EADDRINUSE
        why = "another program listens there already; take another --port" if taken else str(error)
        raise UsageError(
            f"cannot listen on {_name_of(host)}:{port}: {why}; choose another with --port or --host"
        ) from error
