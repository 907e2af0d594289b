"""The archive as it is now, opened once for all who look, and anew when it has changed."""

import math
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar, cast

from dlq.archive import analyses
from dlq.archive.storage.store import LocalStore
from dlq.core import clock
from dlq.core.errors import DlqError, TookTooLong, UsageError
from dlq.core.failures import Event
from dlq.core.runtime import patience
from dlq.operations.reading.views import look_again, open_views
from dlq.operations.workspace import Workspace
from dlq.replay.ledger import location
from dlq.replay.ledger import look as look_at_ledger
from dlq.reports.letters.masking import Masker

if TYPE_CHECKING:
    import duckdb

_FAR_SECONDS = 5.0
"""How old may be what cannot be asked cheaply whether it has changed: a ledger's server, an object store."""
_TOO_LONG = "this was ended after {:g} s: there is no answer; ask again, or ask for less"
_MOST_KEPT = 200
_MOST_MASKED = 10_000
_RESTS = 9
"""Times as long as it takes nothing reads the whole archive again: a tenth of a processor at most."""
AT_ONCE = 4
"""Who look at once; others wait."""
_MEMORY = "256MB"
"""Of the views of one who looks; beyond it DuckDB spills into a file."""
_T = TypeVar("_T")


def this_minute() -> int:
    """Return the minute. What depends on the time has it in its name, and so is made anew each minute."""
    return clock.now() // 60_000_000


class Kept:
    """A connection that stays open when an operation is done with it."""

    def __init__(self, connection: "duckdb.DuckDBPyConnection") -> None:
        self.connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self.connection, name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def close(self) -> None:
        """Close: the next one looks by it, too."""


def _open_views(workspace: Workspace) -> "duckdb.DuckDBPyConnection":
    """Open views whose conditions may also use `masked(text)`: a text as pages show it, made once of many
    that are equal."""
    import pyarrow as pa
    from duckdb.func import ARROW

    connection, masker = open_views(workspace, memory=_MEMORY), Masker(workspace.settings.mask)

    @lru_cache(_MOST_MASKED)
    def mask(text: str) -> str:
        return str(masker.document({"exception_message": text})["exception_message"])

    def mask_all(texts: pa.ChunkedArray) -> pa.Array:
        found = texts.combine_chunks().dictionary_encode()
        return pa.array(map(mask, found.dictionary.to_pylist()), pa.string()).take(found.indices)

    connection.create_function("masked", mask_all, ["VARCHAR"], "VARCHAR", type=ARROW)
    return connection


class _Long:
    """What took long to make, and until when it counts."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.made: tuple[Any] | DlqError | None = None
        self.until = -math.inf

    def is_due(self) -> bool:
        """Return whether it is to be made, for the first time or anew."""
        return self.made is None or time.monotonic() >= self.until


class _Moment(NamedTuple):
    """What tells whether the archive is still what it was."""

    manifests: Hashable
    analysis: str | None
    ledger: Hashable
    replays: Hashable
    said: Sequence[Event] | None
    """None: nobody can tell."""

    @property
    def archive(self) -> Hashable:
        """What of it is in the archive, and not in the ledger."""
        return self.manifests, self.analysis

    @property
    def letters(self) -> Hashable:
        """What of it is about letters: what people say of failures and plans is not."""
        return self.manifests, self.analysis, self.replays


class Look:
    """Views of the archive as it is now, for several who look at once, and anew when it has changed; what is
    made of it is kept until then."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self._lock = threading.Lock()
        """Of what follows; nobody does anything long under it."""
        self._moment: _Moment | None = None
        self.looked_at = -patience.FRESH
        self._changes = 0
        """By this page, of which the next look has to tell."""
        self._looking = threading.Lock()
        self._last_ledger: tuple[Hashable, Hashable, Sequence[Event] | None] | None = None
        """As it was looked at last, the version of its replays, and what people said."""
        self._letters: Hashable = None
        """Of the last moment."""
        self._idle: tuple[_Moment, duckdb.DuckDBPyConnection] | None = None
        """A connection that nobody looks by, and what it shows."""
        self._kept: dict[Hashable, tuple[Any, bool]] = {}
        """Name -> what was made, and whether of letters alone."""
        self.making: defaultdict[Hashable, threading.Lock] = defaultdict(threading.Lock)
        self._long: defaultdict[Hashable, _Long] = defaultdict(_Long)
        self._seats = threading.BoundedSemaphore(AT_ONCE)
        self._seated = threading.local()

    def forget(self) -> None:
        """Forget what was read once this page has changed something: the next look is at what it is then."""
        with self._lock:
            self._changes += 1
            self._moment = None
            for each in self._long.values():
                each.until = -math.inf

    @contextmanager
    def open(self) -> Iterator[Workspace]:
        """Open a workspace on the archive as it is now, with views of its own; a question that takes too long
        is ended. Not within another: who waits for a second place while they hold one may wait for ever.
        Raises TookTooLong."""
        if getattr(self._seated, "yes", False):
            raise RuntimeError("a look within a look")
        with self._seats:
            moment, connection = self._take()
            is_ended, is_over = threading.Event(), threading.Event()

            def end() -> None:
                is_ended.set()
                while not is_over.wait(patience.BLINK):  # between two statements there is none to end
                    connection.interrupt()

            watch = threading.Timer(patience.QUESTION, end)
            watch.start()
            self._seated.yes = True
            try:
                views = cast("duckdb.DuckDBPyConnection", Kept(connection))
                yield replace(self.workspace, views=views, said=moment.said)
            except DlqError as error:
                if not is_ended.is_set():
                    raise
                raise TookTooLong(_TOO_LONG.format(patience.QUESTION)) from error
            finally:
                self._seated.yes = False
                is_over.set()
                watch.cancel()
                watch.join()  # or it would end what the next look asks
                self._give_back(moment, connection)

    def keep(self, name: Hashable, make: Callable[[Workspace], _T], of_letters: bool = False) -> _T:
        """Return what `make` makes of the archive, made once while it stays as it is; whoever asks for the
        same meanwhile waits for it, and nobody else does. `of_letters`: whatever people say of failures and
        plans changes nothing of it."""
        moment = self._look()
        made_of = (moment.archive, moment.ledger, name)
        with self._lock:
            making = self.making[made_of]
        try:
            with making:
                return self._find_or_make(moment, name, make, of_letters)
        finally:  # who waits has it; of what cannot be made, anybody's words, nothing stays
            with self._lock:
                self.making.pop(made_of, None)

    def find(self, name: Hashable) -> Any:
        """Return what was made by this name of the archive as it is now; None where nobody asked for it."""
        moment = self._look()
        with self._lock:
            made, _ = self._kept.get(name, (None, False)) if moment is self._moment else (None, False)
        return made

    def keep_long(self, name: Hashable, make: Callable[[Workspace], _T]) -> _T:
        """Do `keep` of what reads the whole archive for its letters: made by one at a time, and, unless this
        page has changed something, not anew before nine times as long has passed as it took. Who may only
        look would keep the server at work while anything goes on. Raises what `make` raised, as long."""
        with self._lock:
            long = self._long[name]
        if long.is_due() and long.lock.acquire(blocking=long.made is None):  # nobody waits who has the last
            try:
                if long.is_due():
                    self._make_long(long, name, make)
            finally:
                long.lock.release()
        if isinstance(long.made, tuple):
            return cast(_T, long.made[0])
        raise cast(DlqError, long.made)

    def _make_long(self, long: _Long, name: Hashable, make: Callable[[Workspace], Any]) -> None:
        began, long.until = time.monotonic(), math.inf
        try:
            long.made = (self.keep(name, make, of_letters=True),)
        except DlqError as error:
            long.made = error
        finally:
            now = time.monotonic()
            # Earlier where this page has changed something meanwhile.
            long.until = min(long.until, now + _RESTS * (now - began))

    def _find_or_make(
        self, moment: _Moment, name: Hashable, make: Callable[[Workspace], _T], of_letters: bool
    ) -> _T:
        with self._lock:
            known = self._kept.get(name) if moment is self._moment else None
        if known is not None:
            return cast(_T, known[0])
        with self.open() as workspace:
            made = make(workspace)
        self._put(moment, name, made, of_letters)
        return made

    def _put(self, moment: _Moment, name: Hashable, made: Any, of_letters: bool) -> None:
        """Keep what was made. Of an archive that has changed since it is nobody's any more."""
        with self._lock:
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            if moment is self._moment:
                self._kept[name] = (made, of_letters)

    def _take(self) -> "tuple[_Moment, duckdb.DuckDBPyConnection]":
        moment = self._look()
        with self._lock:
            idle, self._idle = self._idle, None
        shown, connection = idle or (moment, _open_views(self.workspace))
        if shown.letters != moment.letters:
            look_again(self.workspace, connection)
        return moment, connection

    def _give_back(self, moment: _Moment, connection: "duckdb.DuckDBPyConnection") -> None:
        """Give a connection back. One waits for the next who looks; more would only hold memory."""
        with self._lock:
            if self._idle is None and self._moment and moment.archive == self._moment.archive:
                self._idle = moment, connection
                return
        connection.close()

    def _look(self) -> _Moment:
        """Return which archive it is. While one finds out, which takes a store far away its time, others take
        it for what it was, unless somebody has changed it by this page."""
        with self._lock:
            known, late = self._moment, time.monotonic() - self.looked_at >= patience.FRESH
        if known is not None and not (late and self._looking.acquire(blocking=False)):
            return known
        if known is None:
            self._looking.acquire()
        try:
            found = self._moment if known is None else None  # by whom this one waited for
            return found or self._find_out()
        finally:
            self._looking.release()

    def _find_out(self) -> _Moment:
        """Look anew where somebody has changed something meanwhile: what was read may be of before."""
        while True:
            changes = self._changes
            found, at = self.read_moment(), time.monotonic()
            with self._lock:
                if changes != self._changes:
                    continue
                if self._moment is None or found != self._moment:
                    self._forget_all_but(found)
                self.looked_at = at
                return self._moment or found

    def _forget_all_but(self, found: _Moment) -> None:
        """Forget all but what is found; what is of letters stays where they are the same."""
        if self._idle and self._idle[0].archive != found.archive:
            self._idle = None
        if found.letters != self._letters:
            self._letters = found.letters
            self._kept.clear()
        self._kept = {name: each for name, each in self._kept.items() if each[1]}
        self._moment = found

    def read_moment(self) -> _Moment:
        store = self.workspace.store
        known = analyses.ids(store)
        manifests: list[Hashable] = [tuple(store.list("manifests/")), tuple(store.list("losses/"))]
        if isinstance(store, LocalStore):
            with suppress(FileNotFoundError):
                manifests.append(os.stat(os.path.join(store.location, "manifests")).st_mtime_ns)
        else:
            manifests.append(int(time.monotonic() / _FAR_SECONDS))
        ledger, before = self._read_ledger(), self._last_ledger
        if before is None or before[0] != ledger:
            self._last_ledger = before = (ledger, *self._look_at_ledger())
        return _Moment(tuple(manifests), known[-1] if known else None, *before)

    def _look_at_ledger(self) -> tuple[Hashable, Sequence[Event] | None]:
        """Return what the ledger holds; nothing where it is out of reach, which who looks is told."""
        with suppress(DlqError):
            return look_at_ledger(self.workspace.settings.ledger, self.workspace.store)
        return None, None

    def _read_ledger(self) -> Hashable:
        settings, store = self.workspace.settings.ledger, self.workspace.store
        if location.is_server(settings):
            return int(time.monotonic() / _FAR_SECONDS), self._changes
        try:
            path = location.file_of(settings, store)
        except UsageError:
            return None
        found: list[Hashable] = []
        for name in (path, path.with_name(f"{path.name}-wal")):
            with suppress(OSError):
                stat = os.stat(name)
                found.append((stat.st_ino, stat.st_size, stat.st_mtime_ns))
        return tuple(found)
