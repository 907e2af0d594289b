"""The first look at an archive, by the server itself when it starts: nobody else has to wait for it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Event, Thread

import anyio
from starlette.datastructures import QueryParams
from starlette.responses import Response

from dlq.web.console import Console, PageRequest
from dlq.web.forms import Form
from dlq.web.pages import failures, letters, now, plans
from dlq.web.people import Person
from dlq.web.render import prepare

_PAGES: Sequence[tuple[str, Callable[[PageRequest], Response]]] = (
    ("/", now.show_now), ("/letters", letters.list_page), ("/failures", failures.list_page),
    ("/plans", plans.list_page),
)  # fmt: skip
_OPENED_NEXT = ("failure", "letter")
"""Their templates are read, too."""
_NOBODY = Person("", frozenset(), "", "token")


@contextmanager
def looking(console: Console) -> Iterator[None]:
    """Make the pages that people open first, once and one after the other, while the block runs. What takes
    too long is ended there as for anybody."""
    is_over = Event()
    thread = Thread(target=_look, args=(console, is_over), name="first look")
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def _look(console: Console, is_over: Event) -> None:
    for path, page in _PAGES:
        if not is_over.is_set():
            with suppress(Exception):  # whoever asks is told of it
                page(PageRequest(console, _NOBODY, frozenset({"read"}), path, {}, QueryParams(), Form(())))
    prepare(*_OPENED_NEXT)
    anyio.run(anyio.sleep, 0)  # imports what hands pages to threads, which whoever asks first waited for
