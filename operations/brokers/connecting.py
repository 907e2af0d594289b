"""How an operation reaches a broker, and the dangers that it names before."""

from collections.abc import Callable, Sequence
from contextlib import closing
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, TypeVar

from dlq.core.errors import DlqError, UsageError, with_next_step
from dlq.core.text import quote_value
from dlq.core.values import cleartext
from dlq.core.values.suggestions import suggest
from dlq.operations.workspace import Workspace

if TYPE_CHECKING:
    from dlq.connectors.base import Connector
    from dlq.core.settings import Broker, Source

_T = TypeVar("_T")


def connect(workspace: Workspace, broker: "Broker") -> "Connector":
    """Do `open_connector`, after a warning where the broker's password goes out in the clear."""
    from dlq.connectors import open_connector

    for line in cleartext.of_broker(broker):
        workspace.listener.warn(line)
    return open_connector(broker)


def ask_each(
    workspace: Workspace, broker: str | None, ask: Callable[["Connector"], _T]
) -> tuple[dict[str, _T], dict[str, DlqError]]:
    """Ask one broker, or all: by name, what each answers, and what went wrong with others, of which
    the listener hears. Raises UsageError for an unknown one."""
    known = workspace.settings.brokers
    if broker is not None and broker not in known:
        raise UsageError(
            f"unknown broker {broker!r}{suggest(broker, known)}; configured are: {', '.join(known)}"
        )
    found: dict[str, _T] = {}
    errors: dict[str, DlqError] = {}
    for name in known if broker is None else (broker,):
        try:
            with closing(connect(workspace, known[name])) as connector:
                found[name] = ask(connector)
        except DlqError as error:
            errors[name] = error
            workspace.listener.complain(f"{name}: {with_next_step(error)}")
    return found, errors


def warn_of_overlaps(workspace: Workspace, sources: Sequence["Source"]) -> None:
    """Warn where the letters of these sources are archived by another name, too."""
    from dlq.capture import source_aliases

    for line in source_aliases.warnings(workspace.settings, workspace.store, sources):
        workspace.listener.warn(line)


def warn_of_ledger(workspace: Workspace) -> None:
    """Warn where the ledger's password goes out in the clear."""
    for line in cleartext.of_store("ledger", workspace.settings.ledger):
        workspace.listener.warn(line)


def warn_of_evidence(workspace: Workspace) -> None:
    """Warn where the password of a store of evidence goes out in the clear."""
    for store in workspace.settings.evidence.values():
        for line in cleartext.of_store(f"evidence.{store.name}", store):
            workspace.listener.warn(line)


def warn_of_patterns(workspace: Workspace) -> None:
    """Warn where the sources of an owner's word, or of a store of evidence, are no sources: nothing would
    hold, though it looks as if it did."""
    from dlq.archive import manifests

    settings = workspace.settings
    of_owners = ((f"consumers.{name}", one.sources) for name, one in settings.consumers.items())
    of_stores = ((f"evidence.{name}", one.sources) for name, one in settings.evidence.items())
    places = [*of_owners, *of_stores]
    archived = (one.source for one in manifests.list_committed(workspace.store)) if places else ()
    known = {*settings.sources, *archived}
    for place, pattern in ((place, pattern) for place, patterns in places for pattern in patterns):
        if known and not any(fnmatchcase(name, pattern) for name in known):
            meant = f"{quote_value(pattern)}{suggest(pattern, known)}"
            workspace.listener.warn(f"{place}.sources: no source matches {meant}; correct it")
