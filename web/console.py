"""What every page is given: the archive, who asks, what they may, and how an answer is made."""

import asyncio
import math
import threading
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, cast
from urllib.parse import quote
from weakref import WeakValueDictionary

from starlette.datastructures import QueryParams
from starlette.responses import RedirectResponse, Response

from dlq.core.clock import iso, now
from dlq.core.settings import Settings
from dlq.operations.brokers.coverage import Covered, cover
from dlq.operations.brokers.sources import inspect_sources
from dlq.operations.workspace import Notes, Workspace, open_workspace
from dlq.replay.actor import mark_proven
from dlq.reports.letters.masking import Masker
from dlq.web.forms import Form
from dlq.web.jobs import Jobs
from dlq.web.look import Look
from dlq.web.people import Person, Right, Sessions
from dlq.web.render import render

_MOST_NEWS = 5
_ASK_AGAIN = 10.0
"""Seconds between two questions to all brokers."""
_AT_ONCE, IN_ALL = 4, 12
"""Of one page for one person, and of all that they look at, or change: 40 threads make the pages of all."""
_NEEDS: Mapping[str, str] = {
    "read": "read", "triage": "triage failures and dismiss letters", "plan": "make plans",
    "approve": "approve plans", "apply": "send, stop, reconcile and pull",
    "reconcile": "say what became of letters in doubt",
    "unmask": "see letters as they are",
}  # fmt: skip


class _Depths:
    """What the brokers said last, when somebody asked them by this page."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[int | None, str]] = {}
        self.asked_at: str | None = None
        self._lock = threading.Lock()
        self._until = -math.inf

    def read(self, workspace: Workspace) -> str:
        """Ask all brokers, one at a time and not again at once, for whoever may look: what they said last is
        shown to the others. Returns why they were not asked."""
        if not self._lock.acquire(blocking=False):
            return "The brokers are being asked already: look again in a moment."
        try:
            if time.monotonic() < self._until:
                return f"The brokers were asked less than {_ASK_AGAIN:.0f} s ago, or took long to answer."
            began = time.monotonic()
            for one in inspect_sources(workspace, workspace.sources()):
                depth = one.inspection.depth if one.inspection else None
                self._found[one.source.name] = (depth, str(one.error or ""))
            self.asked_at, took = iso(now()), time.monotonic() - began
            self._until = time.monotonic() + max(_ASK_AGAIN, took)
            return ""
        finally:
            self._lock.release()

    def find(self, source: str) -> tuple[int | None, str]:
        """Return how many lie there, or why nobody knows."""
        return self._found.get(source, (None, ""))


class _Covering:
    """What the brokers' definitions said last of what would be lost."""

    def __init__(self) -> None:
        self._last: tuple[Covered, list[str]] | None = None
        self._until = -math.inf
        self._lock = threading.Lock()

    def ask(self, workspace: Workspace) -> tuple[Covered, list[str]]:
        """Ask the brokers, one at a time, and return also what went wrong. They are not asked again before
        nine times as long has passed; meanwhile everybody sees what was said last."""
        last = self._last
        if not self._lock.acquire(blocking=last is None):
            return cast(tuple[Covered, list[str]], last)
        try:
            if self._last is None or time.monotonic() >= self._until:
                began, notes = time.monotonic(), Notes()
                self._last = cover(replace(workspace, listener=notes)), notes.problems
                took = time.monotonic() - began
                self._until = time.monotonic() + max(_ASK_AGAIN, 9 * took)
            return self._last
        finally:
            self._lock.release()


class _Turns:
    """So many pages are made at once for somebody; the others that they ask for wait without a thread, which
    all pages of all people share."""

    def __init__(self) -> None:
        self._taken: WeakValueDictionary[Hashable, asyncio.Semaphore] = WeakValueDictionary()

    @asynccontextmanager
    async def take(self, name: str, page: Callable[..., Response], is_change: bool) -> AsyncIterator[None]:
        """For while the page is made. What somebody stops does not wait for what they look at."""
        async with self._find((name, page), _AT_ONCE), self._find((name, is_change), IN_ALL):
            yield

    def _find(self, whose: Hashable, at_once: int) -> asyncio.Semaphore:
        return self._taken.setdefault(whose, asyncio.Semaphore(at_once))


class Undo(NamedTuple):
    """A form that takes back what was done."""

    action: str
    fields: Sequence[tuple[str, str]]


@dataclass
class Console:
    """All that lives as long as the server. Nothing here has to survive it."""

    settings: Settings
    sessions: Sessions
    jobs: Jobs
    look: Look
    cookie: str
    """The name of this server's cookie."""
    depths: _Depths = field(default_factory=_Depths)
    coverage: _Covering = field(default_factory=_Covering)
    news: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """Session -> what became of what they did last, until it is shown."""
    undo: dict[str, "Undo"] = field(default_factory=dict)
    """Session -> what takes it back, shown with the news."""
    looks: dict[tuple[str, ...], float] = field(default_factory=dict)
    """Session, page, letter and reason -> until when that look stands in the audit already."""
    turns: _Turns = field(default_factory=_Turns)


class Refused(NamedTuple):
    """A form that was not carried out: its page shows it again as it was sent."""

    path: str
    form: Form
    text: str
    """Why, in the words of the terminal."""


@dataclass(frozen=True)
class PageRequest:
    """One request of somebody who is known."""

    console: Console
    person: Person
    rights: frozenset[str]
    path: str
    names: Mapping[str, str]
    """What the address names: the id of a letter, say."""
    query: QueryParams
    form: Form
    acts: Sequence[str] = ()
    """The commands that do what the page offers."""
    refused: Refused | None = None
    """The form of the page that was sent last, and refused."""

    def workspace(self, proven: bool = False) -> Workspace:
        """Return where an operation works for this person; `proven` under their name."""
        return open_workspace(
            self.console.settings, Notes(), mark_proven(self.person.name) if proven else None
        )

    @property
    def sees_all(self) -> bool:
        """Whether this person may see letters as they are, and so ask for what they hold."""
        return "unmask" in self.rights

    def barrier(self, right: Right) -> str:
        """Return why this person may not; nothing where they may."""
        if right in self.rights:
            return ""
        return f"{self.person.name} may not {_NEEDS[right]}: [serve] roles.{right} in dlq.toml says who may"

    def masker(self) -> Masker:
        """Return what masks the documents of one page."""
        return Masker(self.console.settings.mask)

    def mask_errors(self, text: str) -> str:
        """Return what pages show of a command's standard error."""
        return self.masker().sentence(text) if self.sees_all else self.masker().errors(text)

    def mask(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Return what pages show of a document of the archive."""
        return self.masker().document(document)

    def mask_all(self, documents: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Mask each of them."""
        return [self.mask(one) for one in documents]

    def page(self, template: str, command: str | list[str], status: int = 200, **values: Any) -> Response:
        """Return a page that shows the same as `command` in a shell."""
        return render(template, self.values(command, values), status)

    def values(self, command: str | list[str], values: Mapping[str, Any]) -> dict[str, Any]:
        """Return what a template is given."""
        common = {
            "person": self.person,
            "rights": self.rights,
            "path": self.path,
            "form_token": self.console.sessions.form_token(self.person),
            "news": self.console.news.pop(self.person.session, []),
            "undo": self.console.undo.pop(self.person.session, None),
            "commands": [command] if isinstance(command, str) else command,
            "acts": [act.format(**self.names) for act in self.acts],
            "barrier": self.barrier,
            "refused": self.refused,
        }
        return common | dict(values)

    def list_notes(self, workspace: Workspace) -> list[str]:
        """Return what an operation had to say beside its result."""
        notes = workspace.listener
        return [*notes.said, *notes.problems, *notes.warnings] if isinstance(notes, Notes) else []

    def go_on(self, path: str, *news: str, is_changed: bool = True, undo: Undo | None = None) -> Response:
        """Go on to a page of ours, which tells the news; mostly after a change of what pages show."""
        told = self.console.news[self.person.session]
        told.extend(news)
        del told[:-_MOST_NEWS]
        if undo:
            self.console.undo[self.person.session] = undo
        if is_changed:
            self.console.look.forget()
        return RedirectResponse(quote(path, safe="/?&=%"), 303)
