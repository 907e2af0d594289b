"""What is believed of an object store's HTTP answers: none of another host, and no more than was asked for.

aiobotocore would follow a redirect with all that a request holds, a letter and a session's token among it,
and read an answer for as long as something of it comes.
"""

import asyncio
from typing import Any

from aiobotocore.httpsession import AIOHTTPSession
from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError

from dlq.core.runtime import patience

FAULTS = (
    OSError, BotoCoreError, ClientError, ResponseParserError, ValueError, KeyError, ArithmeticError,
    RuntimeError,
)  # fmt: skip
"""What s3fs raises for whatever the store, the network or the credentials refuse; from the fourth on for
answers of no known shape, the last two for times that no calendar has."""
_LARGEST_ANSWER = 8 << 20
"""Bytes of an answer that is no object: a thousand names, or an error."""
_SLOWEST = 16 << 10


class BoundedSession(AIOHTTPSession):  # type: ignore[misc]
    """An HTTP session of aiobotocore."""

    async def _get_session(self, proxy_url: str | None) -> Any:
        return _Requests(await super()._get_session(proxy_url))


class _Requests:
    """What AIOHTTPSession asks of aiohttp's session."""

    def __init__(self, session: Any) -> None:
        self._session = session

    async def request(self, method: str, **options: Any) -> Any:
        headers = options["headers"]
        size = int(headers.get("Content-Length") or headers.get("X-Amz-Decoded-Content-Length") or 0)
        async with asyncio.timeout(patience.ANSWER + size / _SLOWEST):
            answer = await self._session.request(method, allow_redirects=False, **options)
        most = _LARGEST_ANSWER if answer.status >= 300 else _length_of(headers.get("Range"))
        answer.content = _Bounded(answer.content, most)
        return answer


class _Bounded:
    """The bytes of an answer. All at once, they are no more than `most`; in pieces, who reads counts."""

    def __init__(self, content: Any, most: int) -> None:
        self._content, self._most = content, most
        self._until = asyncio.get_running_loop().time() + patience.ANSWER

    async def read(self, size: int = -1) -> bytes:
        if size >= 0:
            return await self._next(size)
        data = bytearray()
        while piece := await self._next(1 << 20):
            data += piece
            if len(data) > self._most:
                raise OSError(f"the store answers with more than the {self._most:,} bytes that may come")
        return bytes(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)

    async def _next(self, size: int) -> bytes:
        async with asyncio.timeout_at(self._until):
            piece: bytes = await self._content.read(size)
        self._until += len(piece) / _SLOWEST
        return piece


def _length_of(asked: str | None) -> int:
    """Return how many bytes the range has that was asked for; an answer at most where none was."""
    if asked is None:
        return _LARGEST_ANSWER
    first, _, last = asked.removeprefix("bytes=").partition("-")
    return int(last) - int(first) + 1 if first and last else _LARGEST_ANSWER
