"""Incidents: letters that died in bursts, what to look at first on top."""

from contextlib import closing

from dlq.archive import analyses, short_ids
from dlq.archive.user_sql import list_objects
from dlq.core.clock import now
from dlq.core.documents import Document
from dlq.core.errors import UsageError
from dlq.operations.reading.views import open_views, read_events
from dlq.operations.workspace import Workspace
from dlq.reports.failures import states
from dlq.reports.incidents import gather, next_step

COLUMNS = (
    "incident_id", "start", "peak", "end", "size", "sources", "causes", "ongoing", "new", "waiting",
    "services", "failures", "fingerprint", "exception_class", "exception_message", "first_record_id", "state",
)  # fmt: skip
"""What is told of an incident; `list_incidents` has more of each, for words."""
_FAILURES = """
    SELECT fingerprint, count(*) AS letters, min(cause) AS cause, min(exception_class) AS exception_class,
           min(exception_message) AS exception_message, min(record_id) AS example
    FROM letters WHERE incident_id = ? GROUP BY 1 ORDER BY 2 DESC, 1"""


def list_incidents(workspace: Workspace) -> list[Document]:
    """Return first those of which most letters wait, last those whose failures are all resolved or snoozed.
    Raises UsageError where there is no analysis."""
    if analyses.latest(workspace.store) is None:
        raise UsageError("no analysis yet: run dlq analyze")
    with closing(open_views(workspace)) as connection:
        return gather(
            connection, states=states(connection, read_events(workspace), now(), workspace.settings)
        )


def show_incident(workspace: Workspace, prefix: str) -> Document:
    """Return the incident whose id begins so: its COLUMNS, its failures with the letters that it has of each
    (`by_failure`), and the command that looks into it (`next`). Raises UsageError for none or several."""
    with closing(open_views(workspace)) as connection:
        name = short_ids.incident(connection, prefix)
        every = gather(
            connection, states=states(connection, read_events(workspace), now(), workspace.settings)
        )
        failures = list_objects(connection, _FAILURES, [name])
    row = next((one for one in every if one["incident_id"] == name), None)
    if row is None:
        raise UsageError(
            f"the archive no longer holds letters of incident {name}; choose another: dlq incidents"
        )
    return {**{name: row[name] for name in COLUMNS}, "by_failure": failures, "next": next_step(row)}
