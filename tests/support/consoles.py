"""A browser without a network: follows forms of the pages as people do."""

import html
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from httpx2 import Response
from starlette.testclient import TestClient

from dlq.web.console import Console

Fields = Mapping[str, str | Sequence[str]]
ORIGIN = "http://127.0.0.1:8080"
IDS = [f"{number:x}" * 32 for number in range(1, 5)]
TIMEOUT, NULL = "aa" * 16, "bb" * 16
"""The letters of the archive behind the pages, and the fingerprints of their failures."""
FAILURE, LETTER = f"/failures/{TIMEOUT}", f"/letters/{IDS[0]}"


@dataclass
class Browser:
    """One that keeps cookies, and sends the headers that browsers send."""

    console: Console
    client: TestClient
    _tokens: dict[object, str] = field(default_factory=dict)

    def enter(self) -> Response:
        """Open the address that was printed."""
        return self.client.get("/", params={"token": self.console.sessions.token}, follow_redirects=False)

    def get(self, path: str, **headers: str) -> Response:
        """A page."""
        return self.client.get(path, headers=headers, follow_redirects=False)

    def token(self, page: str = "/failures", **headers: str) -> str:
        """The token that the forms of a page hold."""
        found = re.search(r'name="form_token" value="([0-9a-f]+)"', self.get(page, **headers).text)
        assert found, self.get(page, **headers).text
        return found[1]

    def post(
        self, path: str, fields: Fields | None = None, page: str = "/failures", **headers: str
    ) -> Response:
        """Send a form of `page`."""
        known = {k: v for k, v in headers.items() if k.startswith("x-")}
        person = (*self.client.cookies.items(), *known.items())
        if person not in self._tokens:  # all pages show a person the same
            self._tokens[person] = self.token(page, **known)
        sent: dict[str, Any] = {"form_token": self._tokens[person], **(fields or {})}
        headers = {"origin": ORIGIN, "sec-fetch-site": "same-origin", **headers}
        return self.client.post(path, data=sent, headers=headers, follow_redirects=False)


Serve = Callable[..., Browser]
"""Starts one, as the fixture `serve` says."""


def name_person(name: str) -> dict[str, str]:
    """The header by which a proxy says who asks."""
    return {"x-forwarded-user": name}


def commands_on(page: str, kind: str = "") -> list[list[str]]:
    """The commands that a page offers to be copied."""
    found = re.findall(rf'<div class="command{kind}"><code tabindex="0">(.*?)</code>', page, re.DOTALL)
    return [shlex.split(html.unescape(one))[1:] for one in found]
