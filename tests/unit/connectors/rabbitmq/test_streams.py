"""Reading a stream, without a broker: what is not shown is not taken for gone."""

from types import SimpleNamespace
from typing import Any

import pytest

from dlq.connectors.base import ReadRequest
from dlq.connectors.net.links import LinkLostError
from dlq.connectors.rabbitmq.plugin.description import RabbitSource
from dlq.connectors.rabbitmq.streams.read import StreamReading
from dlq.core.errors import ConnectionLost


def reading(look: Any, **resume: int) -> StreamReading:
    request = ReadRequest(RabbitSource("s", "shop", queue="q"), "copy", "p", resume=resume)
    link: Any = SimpleNamespace(server_version="4.3.6", dead=True)
    return StreamReading(link, request, {}, (), look)


def test_a_stream_of_which_nothing_is_shown_is_not_another_one() -> None:
    """As a node shows none that does not have its copy yet."""
    found = reading(SimpleNamespace(bounds=lambda: (0, 0), begin=lambda _: None), q=7)
    assert [*found.batches()] == []
    assert (found.complete, any("nothing of q was shown" in note for note in found.notes)) == (False, True)


def test_a_stream_of_which_less_is_shown_for_a_moment_is_not_another_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As a node shows it whose copy lags behind."""
    ends = iter([5, 8])
    shown = {"last": lambda: [next(ends)], "first": lambda: [0]}
    monkeypatch.setattr(StreamReading, "_offsets", lambda _self, where, _most: shown[where]())
    assert reading(None, q=7).notes == []


def test_a_stream_that_is_silent_about_its_first_letter_is_a_lost_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(StreamReading, "_offsets", lambda _self, where, _most: [7] if where == "last" else [])
    with pytest.raises(ConnectionLost, match="and not the first") as raised:
        reading(None)
    assert isinstance(raised.value.__cause__, LinkLostError)
