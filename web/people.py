"""Who asks, how that is proven, and what they may.

A name is proven in one of two ways: by the token of this start, which the address that is printed holds and a
cookie takes over at once; or by a header of a proxy whose address `[serve] proxies` lists, which also says
the groups where `[serve] groups_header` names a header for them. Sessions live in this process alone, so that
no cookie outlives it. Agents have bearers of their own, which open no session.
"""

import hmac
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import fields
from hashlib import sha256
from ipaddress import ip_address, ip_network
from types import MappingProxyType
from typing import Literal, NamedTuple

from starlette.requests import HTTPConnection

from dlq.core.errors import ConfigError
from dlq.core.settings import Roles, Serve
from dlq.core.text import quote_value
from dlq.core.values.checks import USER_HEADER

Right = Literal["read", "triage", "plan", "approve", "apply", "reconcile", "unmask"]
RIGHTS = tuple(each.name for each in fields(Roles))
_GROUP = "group:"
_LONGEST_NAME = 200
_MOST_GROUPS = 1_000
_MOST_SESSIONS = 1_000
_SESSION_SECONDS = 12 * 3600.0


class Person(NamedTuple):
    """Somebody whose name is proven."""

    name: str
    groups: frozenset[str]
    session: str
    """What the tokens of their forms are bound to."""
    by: Literal["token", "proxy"]


class Forged(Exception):
    """What a trusted proxy says of a person cannot be: the proxy lets headers of others pass."""


class Sessions:
    """The token of this start, the cookies that were given for it, and the bearers of agents."""

    def __init__(self, owner: str, agents: Mapping[str, str] = MappingProxyType({})) -> None:
        """`owner` is who started the server: who knows the token goes by that name, and an agent acts for
        them. `agents`: name -> bearer; without any there is one of this start, for agents without a name."""
        self.token = secrets.token_urlsafe(32)
        self.agents = agents or {"": secrets.token_urlsafe(32)}
        self._owner = owner
        self._key = secrets.token_bytes(32)
        self._ends: dict[str, float] = {}

    def enter(self, token: str) -> str | None:
        """Return a new session for the right token, else None."""
        if not hmac.compare_digest(token.encode(), self.token.encode()):
            return None
        session = secrets.token_urlsafe(32)
        self._ends[_digest(session)] = time.monotonic() + _SESSION_SECONDS
        while len(self._ends) > _MOST_SESSIONS:
            del self._ends[next(iter(self._ends))]
        return session

    def find(self, session: str) -> Person | None:
        """Return whose cookie this is, while it counts."""
        known = _digest(session)
        if time.monotonic() > self._ends.get(known, 0.0):
            self._ends.pop(known, None)
            return None
        return Person(self._owner, frozenset(), known, "token")

    def find_agent(self, bearer: str) -> tuple[Person, str] | None:
        """Return whom the agent acts for that brings this bearer, and the agent's name."""
        for name, known in self.agents.items():
            if hmac.compare_digest(bearer.encode(), known.encode()):
                return Person(self._owner, frozenset(), "agent", "token"), name
        return None

    def leave(self, person: Person) -> None:
        """Let the cookie count no more."""
        self._ends.pop(person.session, None)

    def form_token(self, person: Person) -> str:
        """Return what each form of this person has to bring back; no other page can know it."""
        return hmac.digest(self._key, person.session.encode(), "sha256").hex()

    def is_form_token(self, person: Person, text: str) -> bool:
        """Return whether a form of ours was sent."""
        return hmac.compare_digest(self.form_token(person).encode(), text.encode())


def _digest(session: str) -> str:
    return sha256(session.encode()).hexdigest()


def read_proxy(request: HTTPConnection, serve: Serve) -> Person | None:
    """Return who a trusted proxy says it is; None where none says so. Raises Forged."""
    if not is_trusted(request, serve.proxies):
        return None
    names = request.headers.getlist(USER_HEADER)
    if not names:
        return None
    if len(names) > 1:
        raise Forged("the proxy names several at once: one of the names may be the client's own")
    name = _read_name(_decode(names[0]))
    return Person(name, _read_groups(request, serve), f"proxy:{name}", "proxy")


def _read_groups(request: HTTPConnection, serve: Serve) -> frozenset[str]:
    """Return no groups where no header is named: one that the proxy does not set is the client's. Raises
    Forged."""
    lists = request.headers.getlist(serve.groups_header) if serve.groups_header else []
    if len(lists) > 1:
        raise Forged("the proxy lists groups twice: one of the lists may be the client's own")
    told = _decode("".join(lists))
    return frozenset(map(_read_name, told.split(",")[:_MOST_GROUPS])) if told else frozenset()


def _read_name(name: str) -> str:
    """Return a name. It counts to its last letter, so what could stand for another is refused: blanks at its
    ends, which somebody may trim, and a comma, by which two headers are made one. Raises Forged."""
    if not name or name != name.strip() or "," in name or not name.isprintable() or len(name) > _LONGEST_NAME:
        raise Forged(
            "the proxy names nobody, or a name with blanks at the ends, a comma or a control character"
        )
    return name


def is_trusted(request: HTTPConnection, proxies: Sequence[str]) -> bool:
    """Return whether the connection comes from an address that is listed."""
    peer = request.client.host if request.client else ""
    try:
        address = ip_address(peer.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None) or address
    return any(mapped in ip_network(network) for network in proxies)


def _decode(text: str) -> str:
    """Return a header, which servers hand over as Latin-1, as the UTF-8 that it is: two that are none would
    be one. Raises Forged."""
    try:
        return text.encode("latin-1").decode("utf-8")
    except UnicodeDecodeError as error:
        raise Forged("the proxy names a person in another encoding than UTF-8") from error


def find_rights(person: Person, roles: Roles) -> frozenset[str]:
    """Return what somebody may. Who may anything may read."""
    given = {right for right in RIGHTS if any(_is_meant(person, one) for one in getattr(roles, right))}
    return frozenset(given | ({"read"} if given else set()))


def check_groups(serve: Serve) -> None:
    """Raise ConfigError for roles of groups where nothing says who is in one."""
    named = [entry for right in RIGHTS for entry in getattr(serve.roles, right) if entry.startswith(_GROUP)]
    if named and serve.groups_header is None:
        raise ConfigError(
            f"[serve.roles] names {quote_value(named[0])}, but no header of groups is believed: set [serve] "
            'groups_header = "X-Forwarded-Groups" where the proxy sets or removes it in every request'
        )


def _is_meant(person: Person, entry: str) -> bool:
    if entry.startswith(_GROUP):
        return entry.removeprefix(_GROUP) in person.groups
    return entry == "*" or entry == person.name
