"""Which letters an operation is about."""

import re
import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from dlq.core.clock import from_iso, iso, now
from dlq.core.errors import UsageError
from dlq.core.text import sql_literal
from dlq.core.values.suggestions import suggest
from dlq.core.values.units import seconds
from dlq.operations.workspace import Workspace

if TYPE_CHECKING:
    import duckdb


class Selection(NamedTuple):
    """The letters that fulfil all of it; all letters when nothing is given."""

    where: str | None = None
    sources: Sequence[str] | None = None
    since: str | None = None
    incident: str | None = None
    failure: str | None = None
    text: str | None = None
    """What is said of a letter holds this, or its id begins so."""

    @property
    def is_all(self) -> bool:
        """Nothing is given, so no letter is left out."""
        return not self.sources and all(part is None for part in self._replace(sources=None))

    def condition(self, workspace: Workspace, connection: "duckdb.DuckDBPyConnection") -> str | None:
        """Return the condition as SQL over the columns of `letters`, with whole ids; None for all. Raises
        UsageError for what is not there: a misspelt name must not look like "no letters"."""
        from dlq.archive import short_ids, user_sql

        if self.where is not None:
            user_sql.condition(self.where)
        parts = [*self._conditions(workspace, connection)]
        if self.where is not None:
            where = short_ids.expand(connection, self.where)
            parts.append(f"({where}\n)" if parts else where)
        return " AND ".join(parts) or None

    def options(self) -> str:
        """Return the options as they are typed in a shell."""
        given = [("where", self.where), *(("source", name) for name in self.sources or ())]
        given += [(name, getattr(self, name)) for name in ("since", "incident", "failure", "text")]
        return " ".join(f"--{name} {shlex.quote(text)}" for name, text in given if text is not None)

    def narrow(self, command: str) -> str:
        """Return a dlq ls or replay plan of all letters, for these letters alone; other commands stay."""
        if not command.startswith(("dlq ls ", "dlq replay plan ")):
            return command
        rest = self._replace(incident=None) if " --incident " in command else self
        if self.where is not None and ' --where "' in command:
            where = re.sub(r'(["\\$`])', r"\\\1", self.where)
            command = command.replace(' --where "', f' --where "({where}) and ', 1)
            rest = rest._replace(where=None)
        return f"{command} {rest.options()}".rstrip()

    def _conditions(self, workspace: Workspace, connection: "duckdb.DuckDBPyConnection") -> Iterator[str]:
        from dlq.archive import short_ids

        if self.sources:
            yield f"source IN ({', '.join(map(sql_literal, _check_sources(workspace, self.sources)))})"
        if self.since is not None:
            yield f"coalesce(dead_at, captured_at) >= TIMESTAMPTZ '{iso(read_moment(self.since))}'"
        if self.incident is not None:
            yield f"incident_id = {sql_literal(short_ids.incident(connection, self.incident))}"
        if self.failure is not None:
            yield f"fingerprint = {sql_literal(short_ids.failure(connection, self.failure))}"
        if self.text is not None:
            yield _holds(self.text)


_SEARCHED = ("exception_class", "exception_message", "failure_text", "message_id", "key", "correlation_id")


def _holds(text: str) -> str:
    wanted = sql_literal(text.lower())
    found = " or ".join(f"contains(lower({name}), {wanted})" for name in _SEARCHED)
    return f"(starts_with(record_id, {wanted}) or {found})"


def choose(
    workspace: Workspace, connection: "duckdb.DuckDBPyConnection", ids: Sequence[str], selection: "Selection"
) -> str | None:
    """Return the condition of the letters that are named by `ids`, else of those selected. Raises
    UsageError."""
    from dlq.archive.short_ids import record_id
    from dlq.replay.plans.wanted import condition_of_ids

    if not ids:
        return selection.condition(workspace, connection)
    if not selection.is_all:
        raise UsageError(f"letters are chosen by id or with {selection.options()}; use one of the two")
    return condition_of_ids(record_id(connection, one) for one in ids)


def read_moment(since: str) -> int:
    """Return a time, or how long ago, in microseconds since the epoch. Raises UsageError."""
    at = from_iso(since)
    try:
        return at if at is not None else max(0, now() - int(seconds(since) * 1_000_000))
    except UsageError as error:
        raise UsageError(
            f"--since {since}: neither a time (2026-11-02T03:00:00Z) nor a duration (24h); write one"
        ) from error


def _check_sources(workspace: Workspace, sources: Sequence[str]) -> Sequence[str]:
    from dlq.archive import manifests

    known = {
        *workspace.settings.sources,
        *(manifest.source for manifest in manifests.list_committed(workspace.store)),
    }
    for source in sources:
        if source not in known:
            raise UsageError(
                f"--source {source}: neither in the archive nor in the configuration{suggest(source, known)}"
                "; check its name"
            )
    return sources


EVERY = Selection()
"""All letters."""
