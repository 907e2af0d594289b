"""Incidents: letters that died in bursts."""

from starlette.responses import Response

from dlq.core.documents import Document
from dlq.operations.reading.incidents import list_incidents, show_incident
from dlq.reports import incidents as words
from dlq.web.console import PageRequest
from dlq.web.pages.failures import list_states
from dlq.web.pages.paging import show_part


def list_page(ask: PageRequest) -> Response:
    """Return what to look at first on top."""
    rows = _list_every(ask)
    shown = show_part(ask, rows, lambda row: str(row["incident_id"]), "/incidents")
    return ask.page("incidents", "dlq incidents", **shown, words=words)


def _list_every(ask: PageRequest) -> list[Document]:
    return ask.console.look.keep(("incidents", *list_states(ask)), list_incidents, of_letters=True)


def show_page(ask: PageRequest) -> Response:
    """Return one incident, with its failures."""
    prefix = ask.names["incident_id"]
    named = ("incident", prefix, *list_states(ask))
    row = ask.console.look.keep(named, lambda seen: show_incident(seen, prefix), of_letters=True)
    whole = ask.mask(next(one for one in _list_every(ask) if one["incident_id"] == row["incident_id"]))
    return ask.page(
        "incident",
        [str(row["next"]["command"]), "dlq incidents"],
        row=ask.mask(row),
        what=words.describe(whole),
        where=words.places_of(whole),
    )
