"""Who asks, how that is proven, and what they may.

A name is proven in one of two ways: by the token of this start, which the address that is printed holds and a
cookie takes over at once; or by a header of a proxy whose address `[serve] proxies` lists. Sessions live in
this process alone, so that no cookie outlives it.
"""

import hmac
import secrets
import time
from collections.abc import Sequence
from dataclasses import fields
from hashlib import sha256
from ipaddress import ip_address, ip_network
from typing import Literal, NamedTuple

from starlette.requests import HTTPConnection

from dlq.core.settings import Roles, Serve

Right = Literal["read", "triage", "plan", "approve", "apply", "unmask"]
RIGHTS = tuple(each.name for each in fields(Roles))
_GROUP = "group:"
_USER_HEADER, _GROUPS_HEADER = "x-forwarded-user", "x-forwarded-groups"
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
    """The token of this start, and the cookies that were given for it."""

    def __init__(self, owner: str) -> None:
        """`owner` is who started the server: who knows the token goes by that name."""
        self.token = secrets.token_urlsafe(32)
        self._owner = owner
        self._key = secrets.token_bytes(32)
        self._ends: dict[str, float] = {}

    def enter(self, token: str) -> str | None:
        """A new session for the right token, else None."""
        if not hmac.compare_digest(token.encode(), self.token.encode()):
            return None
        session = secrets.token_urlsafe(32)
        self._ends[_digest(session)] = time.monotonic() + _SESSION_SECONDS
        while len(self._ends) > _MOST_SESSIONS:
            del self._ends[next(iter(self._ends))]
        return session

    def find(self, session: str) -> Person | None:
        """Whose cookie this is, while it counts."""
        known = _digest(session)
        if time.monotonic() > self._ends.get(known, 0.0):
            self._ends.pop(known, None)
            return None
        return Person(self._owner, frozenset(), known, "token")

    def find_agent(self, token: str) -> Person | None:
        """Whose agent brings the token of this start."""
        if not hmac.compare_digest(token.encode(), self.token.encode()):
            return None
        return Person(self._owner, frozenset(), "agent", "token")

    def leave(self, person: Person) -> None:
        """The cookie counts no more."""
        self._ends.pop(person.session, None)

    def form_token(self, person: Person) -> str:
        """What each form of this person has to bring back; no other page can know it."""
        return hmac.digest(self._key, person.session.encode(), "sha256").hex()

    def is_form_token(self, person: Person, text: str) -> bool:
        """Whether a form of ours was sent."""
        return hmac.compare_digest(self.form_token(person).encode(), text.encode())


def _digest(session: str) -> str:
    return sha256(session.encode()).hexdigest()


def read_proxy(request: HTTPConnection, serve: Serve) -> Person | None:
    """Who a trusted proxy says it is; None where none says so. Raises Forged."""
    if not is_trusted(request, serve.proxies):
        return None
    names, lists = request.headers.getlist(_USER_HEADER), request.headers.getlist(_GROUPS_HEADER)
    if not names:
        return None
    name = _decode(names[0])
    if len(names) > 1 or not name or not name.isprintable() or len(name) > _LONGEST_NAME:
        raise Forged("the proxy names nobody, or several at once")
    if len(lists) > 1:
        raise Forged("the proxy lists groups twice: one of the lists may be the client's own")
    groups = [one.strip() for one in _decode("".join(lists)).split(",")]
    known = frozenset(group for group in groups[:_MOST_GROUPS] if group)
    return Person(name, known, f"proxy:{name}", "proxy")


def is_trusted(request: HTTPConnection, proxies: Sequence[str]) -> bool:
    """Whether the connection comes from an address that is listed."""
    peer = request.client.host if request.client else ""
    try:
        address = ip_address(peer.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None) or address
    return any(mapped in ip_network(network) for network in proxies)


def _decode(text: str) -> str:
    """A header, which servers hand over as Latin-1, as the UTF-8 that it is: two that are none would be one.
    Raises Forged."""
    try:
        return text.encode("latin-1").decode("utf-8").strip()
    except UnicodeDecodeError as error:
        raise Forged("the proxy names somebody in another encoding than UTF-8") from error


def find_rights(person: Person, roles: Roles) -> frozenset[str]:
    """What somebody may. Who may anything may read."""
    given = {right for right in RIGHTS if any(_is_meant(person, one) for one in getattr(roles, right))}
    return frozenset(given | ({"read"} if given else set()))


def _is_meant(person: Person, entry: str) -> bool:
    if entry.startswith(_GROUP):
        return entry.removeprefix(_GROUP) in person.groups
    return entry == "*" or entry == person.name
