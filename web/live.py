"""News of what goes on, as server-sent events: the part of a page that has changed, made anew."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse

from dlq.core.errors import DlqError
from dlq.core.runtime import patience
from dlq.web.guard import Refused
from dlq.web.render import render_block

_LONGEST = 15 * 60.0
"""Seconds after which a browser has to ask again."""
_QUIET = 10.0
"""Seconds after which a comment shows whether somebody still listens."""
_MOST = 64
listeners = 0


def send_news(
    template: str, read: Callable[[], Mapping[str, Any]], goes_on: Callable[[], bool], is_once: bool = False
) -> Response:
    """Return the block `live` of a page whenever it has changed, and `turn` when something begins or ends; of
    what goes on but once `over` when it has ended. Raises Refused where too many listen already."""
    if listeners >= _MOST:
        raise Refused(503, "too many pages are followed at once: look again by hand")
    return StreamingResponse(_news(template, read, goes_on, is_once), media_type="text/event-stream")


async def _news(
    template: str, read: Callable[[], Mapping[str, Any]], goes_on: Callable[[], bool], is_once: bool
) -> AsyncIterator[str]:
    global listeners
    listeners += 1
    try:
        shown, lived, until, told_at = "", False, time.monotonic() + _LONGEST, time.monotonic()
        while time.monotonic() < until:
            lives = await run_in_threadpool(goes_on)
            now = render_block(template, "live", await run_in_threadpool(read))
            if now != shown:
                shown, told_at = now, time.monotonic()
                yield _event("news", now)
            elif time.monotonic() - told_at > _QUIET:
                told_at = time.monotonic()
                yield ": still here\n\n"
            if is_once and not lives:
                yield _event("over", "")
                return
            if lives is not lived:
                lived = lives
                yield _event("turn", "")
            await asyncio.sleep(patience.FRESH if lives else 3 * patience.FRESH)
    except DlqError:  # the page, which asks anew then, says it
        yield _event("over", "")
    finally:
        listeners -= 1


def _event(name: str, data: str) -> str:
    lines = "".join(f"data: {line}\n" for line in data.splitlines() or [""])
    return f"event: {name}\n{lines}\n"
