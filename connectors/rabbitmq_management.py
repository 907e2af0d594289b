"""Questions to RabbitMQ's management API: read-only, and every answer may be missing."""

import base64
import json
import ssl
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import quote, urlsplit

from dlq.connectors.rabbitmq_connecting import parameters
from dlq.core import units
from dlq.core.errors import BrokerError, ConfigError
from dlq.core.settings import Broker


class ManagementError(BrokerError):
    """The management API did not answer; what it would have said stays unknown."""


class Management:
    """The API at a broker's `management_url`, seen from the broker's virtual host."""

    def __init__(self, broker: Broker) -> None:
        """Raises ConfigError when the URL is wrong; connects only when asked something."""
        self._place = f"brokers.{broker.name}.management_url"
        url = urlsplit(broker.management_url or "")
        if url.scheme not in ("http", "https") or not url.hostname:
            raise ConfigError(f"{self._place}: write it like https://rabbit.example:15671")
        if "@" in url.netloc:
            raise ConfigError(f"{self._place} holds a user; take it out, the broker's own is used")
        choice = parameters(broker)[0]
        timeout = units.seconds(broker.timeout)
        if url.scheme == "https":
            context = ssl.create_default_context(cafile=broker.ca_file)
            self._connection: HTTPConnection = HTTPSConnection(
                url.hostname, url.port or 15671, timeout=timeout, context=context
            )
        else:
            self._connection = HTTPConnection(url.hostname, url.port or 15672, timeout=timeout)
        login = f"{choice.credentials.username}:{choice.credentials.password}".encode()
        self._headers = {"Authorization": "Basic " + base64.b64encode(login).decode()}
        self._prefix = url.path.rstrip("/")
        self.vhost = str(choice.virtual_host)

    def get(self, *path: str, **query: str) -> Any:
        """The JSON at /api/path, each part quoted; None where there is nothing. Raises ManagementError."""
        address = "/".join([self._prefix, "api", *(quote(part, safe="") for part in path)])
        if query:
            address += "?" + "&".join(f"{name}={quote(value, safe='')}" for name, value in query.items())
        try:
            self._connection.request("GET", address, headers=self._headers)
            answer = self._connection.getresponse()
            content = answer.read()
        except (OSError, HTTPException) as error:
            self._connection.close()
            raise ManagementError(f"{self._place} does not answer: {error}") from error
        if answer.status == 404:
            return None
        if answer.status != 200:
            raise ManagementError(f"{self._place} answers {answer.status} {answer.reason}")
        try:
            return json.loads(content)
        except ValueError as error:
            raise ManagementError(f"{self._place} answers something that is no JSON") from error

    def close(self) -> None:
        """Let go of the connection."""
        self._connection.close()
