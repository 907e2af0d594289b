"""News of what goes on end like any page where the archive cannot be read."""

import asyncio
from typing import NoReturn

from starlette.responses import StreamingResponse

from dlq.core.errors import ArchiveError
from dlq.web import live


def damaged() -> NoReturn:
    raise ArchiveError("plans/p.ramp.json in the archive is damaged")


def test_news_that_cannot_be_read_are_over_and_hold_no_place() -> None:
    async def said() -> str:
        answer = live.send_news("replay", damaged, lambda: True)
        assert isinstance(answer, StreamingResponse)
        return "".join([str(part) async for part in answer.body_iterator])

    assert asyncio.run(said()) == "event: over\ndata: \n\n"
    assert live._open == 0
