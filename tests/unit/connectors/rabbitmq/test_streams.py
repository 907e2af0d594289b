"""Reading a stream, without a broker: what is not shown is not taken for gone."""

from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

from dlq.connectors.base import ReadRequest
from dlq.connectors.rabbitmq.plugin.description import RabbitSource
from dlq.connectors.rabbitmq.streams.read import StreamReading
from dlq.core.errors import ConnectionLost


def copied_after(end: int, *shown: list[int]) -> StreamReading:
    """A copy behind an earlier one, and what the broker shows, answer by answer."""
    answers = deque(shown)

    class Shown(StreamReading):
        def _offsets(self, _where: str, _most: int) -> list[int]:
            return answers.popleft() if answers else []

    request = ReadRequest(RabbitSource("s", "shop", queue="q"), "copy", "p", resume={"q": end})
    link: Any = SimpleNamespace(server_version="4.3.6", dead=True)
    return Shown(link, request, {}, ())


def test_a_stream_of_which_nothing_is_shown_is_not_another_one() -> None:
    """As a node shows none that does not have its copy yet."""
    reading = copied_after(7)
    assert [*reading.batches()] == []
    assert (reading.complete, "nothing of q was shown" in str(reading.notes)) == (False, True)


def test_a_stream_of_which_less_is_shown_for_a_moment_is_not_another_one() -> None:
    """As a node shows it whose copy lags behind."""
    assert copied_after(7, [5], [6], [0]).notes == []


def test_a_stream_that_is_silent_about_its_first_letter_is_a_lost_connection() -> None:
    with pytest.raises(ConnectionLost, match="and not the first"):
        copied_after(0, [7], [])
