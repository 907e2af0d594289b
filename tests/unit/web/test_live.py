"""News of what goes on: also of what begins later, and they end like any page where the archive cannot be
read."""

import asyncio
from typing import NoReturn

import pytest
from starlette.responses import StreamingResponse

from dlq.core.errors import ArchiveError
from dlq.core.runtime import patience
from dlq.web import live


def damaged() -> NoReturn:
    raise ArchiveError("plans/p.ramp.json in the archive is damaged")


def test_news_that_cannot_be_read_are_over_and_hold_no_place() -> None:
    async def said() -> str:
        answer = live.send_news("replay", damaged, lambda: True)
        assert isinstance(answer, StreamingResponse)
        return "".join([str(part) async for part in answer.body_iterator])

    assert asyncio.run(said()) == "event: over\ndata: \n\n"
    assert live.listeners == 0


@pytest.mark.parametrize(
    ("is_once", "lives", "told"),
    [(False, [False, True, True, False], ["turn", "turn", "over"]), (True, [True, False], ["turn", "over"])],
)
def test_who_follows_hears_of_what_begins_later_and_of_its_end(
    monkeypatch: pytest.MonkeyPatch, is_once: bool, lives: list[bool], told: list[str]
) -> None:
    monkeypatch.setattr(patience, "FRESH", 0.0)
    monkeypatch.setattr(live, "render_block", lambda *_: "x")

    async def said() -> list[str]:
        answer = live.send_news("replay", dict, lambda: lives.pop(0) if lives else damaged(), is_once)
        assert isinstance(answer, StreamingResponse)
        return [str(part).split()[1] async for part in answer.body_iterator]

    assert asyncio.run(said()) == ["news", *told]
