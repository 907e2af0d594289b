"""Questions by HTTP to what stands beside a broker (RabbitMQ's management, Jolokia), with its password.

Nothing that the other side says is trusted. A redirect is not followed: the password would go along, to
another host or out of TLS. An answer may take so long and be so large, and no more. Proxies of the
environment are not used: they would see the password.
"""

import contextlib
import json
import re
import time
from collections.abc import Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from socket import SHUT_RDWR, socket
from threading import Timer
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from dlq.connectors import deadline
from dlq.connectors.net.tls import client_context
from dlq.connectors.wire import why_unreachable
from dlq.core.errors import ConfigError
from dlq.core.runtime import patience
from dlq.core.settings import Broker
from dlq.core.text import for_terminal
from dlq.core.values import units

LARGEST = 32 * 2**20
"""Bytes of an answer; 50,000 queues take a third of it."""
MOST_VALUES = 2**21
"""Of an answer: lists, objects and what they hold, each of which takes a hundred times its bytes in memory.
50,000 queues have half as many."""
_TEXT = re.compile(rb'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_SLOW = 3
"""Time-outs for the beginning of a long list: RabbitMQ makes it whole before it sends it."""
_MOST_DIGITS = 20
_MOST_COUNT = 2**63


class NoAnswerError(Exception):
    """Nothing of use came back; the text says why, in half a sentence, and holds no secret."""


class Page(NamedTuple):
    """An answer that is no redirect, whatever its status."""

    status: int
    reason: str
    content: bytes
    date: datetime | None = None
    """By the clock of who answered; None where that is not told."""


class Site:
    """One http:// or https:// address. Connects when it is asked, and stays connected if it may."""

    def __init__(self, broker: Broker, place: str, url: str, ports: Mapping[str, int], example: str) -> None:
        """`ports`: by scheme, where the url names none. Raises ConfigError, which calls the url `place`."""
        parts = urlsplit(url)
        try:
            port = parts.port or ports.get(parts.scheme)
        except ValueError:
            port = None
        if port is None or not parts.hostname:
            raise ConfigError(f"{place}: write it like {example}")
        if "@" in parts.netloc:
            raise ConfigError(f"{place} holds a user; remove it: the user of the broker's url is used")
        self._name, self._timeout = broker.name, units.seconds(broker.timeout)
        self._connection = HTTPConnection(parts.hostname, port, timeout=self._timeout)
        if parts.scheme == "https":
            context = client_context(broker)
            self._connection = HTTPSConnection(parts.hostname, port, timeout=self._timeout, context=context)

    def ask(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes | None = None,
        slow: bool = False,
    ) -> Page:
        """Ask for a page. Raises NoAnswerError, also for a redirect. `slow`: it may take long to begin."""
        deadline.check(self._name)
        until = time.monotonic() + patience.WHOLE_ANSWER * self._timeout
        try:
            page = self._fetch(method, target, headers, body, slow)
            if time.monotonic() >= until:
                raise HTTPException("what came may be cut")
        except (OSError, HTTPException, ValueError) as error:
            self.close()
            late = f"no whole answer within {patience.WHOLE_ANSWER * self._timeout:g} s"
            raise NoAnswerError(late if time.monotonic() >= until else why_unreachable(error)) from error
        return page

    def _fetch(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None, slow: bool
    ) -> Page:
        if self._connection.sock is None:
            self._connection.connect()
        self._connection.sock.settimeout(self._timeout * (_SLOW if slow else 1))
        # A time-out is for each read: who sends a byte now and then would hold us forever.
        watch = Timer(patience.WHOLE_ANSWER * self._timeout, _cut, (self._connection.sock,))
        watch.daemon = True
        watch.start()
        try:
            self._connection.request(method, target, body, dict(headers))
            answer = self._connection.getresponse()
            content = answer.read(LARGEST + 1)
        finally:
            watch.cancel()
        if len(content) > LARGEST:
            raise HTTPException(f"an answer of more than {LARGEST >> 20} MiB")
        if 300 <= answer.status < 400:
            raise HTTPException(
                f"HTTP {answer.status}, a redirect, which is not followed: it would take the password along; "
                "write the address that it leads to, if it is yours"
            )
        return Page(answer.status, for_terminal(answer.reason), content, _date(answer.headers.get("Date")))

    def close(self) -> None:
        """Let go of the connection."""
        self._connection.close()


def document(content: bytes) -> Any:
    """Return the JSON of an answer. Raises NoAnswerError where it is none, or has numbers that nothing can
    count, or more values than would be true."""
    if _values(content) > MOST_VALUES and _values(content) - _values_in_texts(content) > MOST_VALUES:
        raise NoAnswerError(f"more than {MOST_VALUES:,} values")
    try:
        return json.loads(content, parse_int=_whole)
    except (ValueError, RecursionError) as error:
        raise NoAnswerError("something that is no JSON") from error


def whole(value: Any) -> int | None:
    """Return a count in an answer, which has 64 bits; None where there is none, or something else."""
    return value if type(value) is int and 0 <= value < _MOST_COUNT else None


def _values(content: bytes) -> int:
    """Return what begins a list, an object or a further value; more where texts hold such signs."""
    return sum(map(content.count, (b"[", b"{", b",")))


def _values_in_texts(content: bytes) -> int:
    return sum(_values(text[0]) for text in _TEXT.finditer(content))


def _date(text: str | None) -> datetime | None:
    try:
        return parsedate_to_datetime(text or "")
    except ValueError:
        return None


def _whole(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise ValueError("a number of too many digits")
    return int(digits)


def _cut(connected: socket) -> None:
    with contextlib.suppress(OSError):
        connected.shutdown(SHUT_RDWR)
