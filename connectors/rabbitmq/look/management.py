"""Questions to RabbitMQ's management API: read-only, and every answer may be missing."""

import base64
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import quote, urlsplit

from dlq.connectors.local.credentials import blanks, forget
from dlq.connectors.net.web import NoAnswerError, Page, Site, document
from dlq.connectors.rabbitmq.link import login_of, parameters
from dlq.connectors.rabbitmq.plugin.description import RabbitBroker
from dlq.core.errors import BrokerError
from dlq.core.runtime import patience
from dlq.core.text import for_terminal, shorten

_MORE_TRIES = 2
_LONGEST_REASON = 200
_PORTS = {"http": 15672, "https": 15671}
_UNAUTHORIZED = (
    "its user needs the tag management, of nodes the tag monitoring, and a right in the virtual host"
)


class ManagementError(BrokerError):
    """The management API did not answer; what it would have said stays unknown."""


class Management:
    """The API at a broker's `management_url`, seen from the broker's virtual host."""

    def __init__(self, broker: RabbitBroker) -> None:
        """Take the address. Raises ConfigError when the URL is wrong; connects only when asked something."""
        self._broker, self._place = broker, f"brokers.{broker.name}.management_url"
        url = broker.management_url or ""
        self._site = Site(broker, self._place, url, _PORTS, "https://rabbit.example:15671")
        self._place += f" ({urlsplit(url).netloc})"
        self._headers = self._login()
        self._prefix = urlsplit(url).path.rstrip("/")
        self.vhost = str(parameters(broker)[0].virtual_host)
        self.told_at: int | None = None
        """When the last answer was given, in milliseconds since the epoch by the clock of who gave it."""

    def _login(self) -> Mapping[str, str]:
        who = login_of(self._broker)
        login = base64.b64encode(f"{who.username}:{who.password}".encode())
        return {"Authorization": f"Basic {login.decode()}"}

    def get(self, *path: str) -> Mapping[str, Any] | None:
        """Return the object at /api/path, each part quoted; None: nothing there. Raises ManagementError."""
        found = self._get(*path)
        if not isinstance(found, dict | None):
            raise ManagementError(f"{self._place} answers something that is no object")
        return found

    def get_all(self, *path: str, **query: str) -> list[Mapping[str, Any]]:
        """Return the objects of the list at /api/path. Raises ManagementError, also where no such list is."""
        found = self._get(*path, **query)
        if found is None:
            where = for_terminal("/".join(path))
            hint = "is there such a virtual host, and is the path right?"
            raise ManagementError(f"{self._place} knows nothing of {where}: {hint}")
        return self._objects(found)

    def get_bindings_of(self, exchange: str) -> list[Mapping[str, Any]]:
        """Return those that lead from an exchange; none where it is gone. Raises ManagementError."""
        found = self._get("exchanges", self.vhost, exchange, "bindings", "source")
        return self._objects([] if found is None else found)

    def _objects(self, found: Any) -> list[Mapping[str, Any]]:
        if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
            raise ManagementError(f"{self._place} answers something that is no list of objects")
        return found

    def _get(self, *path: str, **query: str) -> Any:
        address = "/".join([self._prefix, "api", *(quote(part, safe="") for part in path)])
        if query:
            address += "?" + "&".join(f"{name}={quote(value, safe='')}" for name, value in query.items())
        try:
            answer = self._ask(address, slow=bool(query))
            if answer.status == 401 and self._has_another_login():
                answer = self._ask(address, slow=bool(query))
            self.told_at = None if answer.date is None else int(answer.date.timestamp() * 1000)
            if answer.status == 404:
                return None
            if answer.status == 401:
                hint = f"{_UNAUTHORIZED}{blanks(self._broker)}"
                raise NoAnswerError(f"HTTP 401 {answer.reason}; {hint}")
            if answer.status != 200:
                raise NoAnswerError(f"HTTP {answer.status} {answer.reason}{_reason(answer.content)}")
            return document(answer.content)
        except NoAnswerError as error:
            raise ManagementError(f"{self._place} does not answer: {error}") from error

    def _has_another_login(self) -> bool:
        """Return whether the password is another one now, which is taken from then on."""
        forget(self._broker)
        before, self._headers = self._headers, self._login()
        return self._headers != before

    def _ask(self, address: str, slow: bool) -> Page:
        """Ask again after a 500: so RabbitMQ 4.3.6 answers where a queue goes away while it looks."""
        answer = self._site.ask("GET", address, self._headers, slow=slow)
        for _ in range(_MORE_TRIES):
            if answer.status != 500:
                break
            time.sleep(patience.FETCH)
            answer = self._site.ask("GET", address, self._headers, slow=slow)
        return answer

    def close(self) -> None:
        """Let go of the connection."""
        self._site.close()


def _reason(content: bytes) -> str:
    """Return the reason that a refusal gives, to follow its status; empty where it gives none."""
    with suppress(NoAnswerError):
        if reason := mapping(document(content)).get("reason"):
            return f" ({shorten(for_terminal(str(reason)), _LONGEST_REASON)})"
    return ""


def mapping(value: Any) -> Mapping[str, Any]:
    """Return a table in an answer; the management API writes an empty list for an empty one."""
    return value if isinstance(value, dict) else {}
