"""Where an operation works: configuration, archive, who acts, and who is told what goes on meanwhile."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING, Protocol

from dlq.core.errors import UsageError
from dlq.core.text import encodable
from dlq.core.values.suggestions import suggest

if TYPE_CHECKING:
    import duckdb

    from dlq.archive.storage.store import Store
    from dlq.core.documents import Document
    from dlq.core.failures import Event
    from dlq.core.settings import Settings, Source
    from dlq.operations.progress import Line


class Listener(Protocol):
    """Who hears what an operation has to say beside its result."""

    def say(self, text: str) -> None:
        """Tell news to a person, who may not want any."""

    def complain(self, text: str) -> None:
        """Complain of a problem with which the operation goes on; it may quote what strangers wrote."""

    def warn(self, text: str) -> None:
        """Warn of a danger that changes nothing now; the same may come several times."""

    def follow(self, lines: "Sequence[Line]") -> AbstractContextManager[None]:
        """Show how these go on while the block runs."""


@dataclass
class Notes:
    """A listener that keeps what it hears."""

    said: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    warnings: dict[str, None] = field(default_factory=dict)
    lines: "Sequence[Line]" = ()
    """How what goes on goes on; `str(line)` at any time."""

    def say(self, text: str) -> None:
        self.said.append(text)

    def complain(self, text: str) -> None:
        self.problems.append(text)

    def warn(self, text: str) -> None:
        self.warnings[text] = None

    def follow(self, lines: "Sequence[Line]") -> AbstractContextManager[None]:
        self.lines = lines
        return nullcontext()


@dataclass(frozen=True)
class Workspace:
    """What every operation is given. `archive` opens the archive, once; `name` is who acts, None: the user of
    this process."""

    settings: "Settings"
    archive: "Callable[[], Store]"
    listener: Listener
    name: str | None = None
    views: "duckdb.DuckDBPyConnection | None" = None
    """Views that are open already, for who looks again and again; they stay open."""
    said: "Sequence[Event] | None" = None
    """What people said by the moment of these views, where that is known."""
    failures: "Sequence[Document] | None" = None
    """What `find_failures` has found in these views, where that is known."""

    @property
    def store(self) -> "Store":
        """The archive, which is opened when it is first needed."""
        return self.archive()

    @property
    def actor(self) -> str:
        """Who acts, as the ledger writes it."""
        from dlq.replay.actor import actor

        return encodable(actor(self.name))

    def sources(self, names: Sequence[str] = ()) -> "list[Source]":
        """Return the named sources, or all; raises UsageError for an unknown name, with the one probably
        meant."""
        known = self.settings.sources
        for name in names:
            if name not in known:
                listed = f"configured are: {', '.join(known)}" if known else "none is configured"
                raise UsageError(f"unknown source {name!r}{suggest(name, known)}; {listed}; check its name")
        if not known and self.settings.brokers:
            raise UsageError("no source is configured; run dlq discover --write, which adds them")
        if not known:
            raise UsageError(
                "no source is configured; go to the folder of dlq.toml, or name it with -c; or run dlq init"
            )
        return [known[name] for name in dict.fromkeys(names or known)]


def open_workspace(settings: "Settings", listener: Listener, name: str | None = None) -> Workspace:
    """Return a workspace on the configured archive."""
    from dlq.archive.storage.store import open_store

    return Workspace(settings, cache(partial(open_store, settings.archive)), listener, name)
