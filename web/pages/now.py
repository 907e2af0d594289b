"""How it stands: the headline of the report, what goes on, and what needs a person first."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from starlette.responses import Response

from dlq.core import clock
from dlq.core.documents import Document
from dlq.core.errors import NoLetters
from dlq.operations.brokers.sources import list_sources
from dlq.operations.reading.reporting import describe_now
from dlq.operations.reading.views import open_views
from dlq.replay.states import STATES
from dlq.reports import failures as words
from dlq.reports import headline, incidents, timeline
from dlq.web.console import PageRequest
from dlq.web.pages.failures import count_each, list_every, list_states
from dlq.web.pages.links import list_steps
from dlq.web.pages.plans import list_waiting, read_plans

_FAILURES = 10
_REPLAYS = 10
_COMMANDS = ["dlq report", "dlq incidents", "dlq failures", "dlq replay status"]
_OPEN = ("planned", "sending", "in_doubt")
_NEED_SOMEBODY = ("new", "open", "regressed")


def show_now(ask: PageRequest) -> Response:
    """Return the first page."""
    try:
        document = read_report(ask)
    except NoLetters as error:
        return ask.page("empty", "dlq pull", text=str(error))
    waiting, every = list_waiting(ask), list_every(ask)
    consent = {row["plan"] for row in waiting}
    replays = [row for row in _list_open_replays(read_plans(ask).plans) if row["plan"] not in consent]
    return ask.page(
        "now",
        [*_COMMANDS, *(step["command"] for step in document["next"])],
        document=document,
        headline=[one for one in document["headline"] if one != headline.tell_what_to_do(document)],
        steps=list_steps(document["next"]),
        day=_count_day(ask),
        failures=ask.mask_all(every[:_FAILURES]),
        sparks=count_each(ask, every[:_FAILURES]),
        sources=_list_sources(ask, document),
        asked=ask.console.depths.asked_at,
        replays=ask.mask_all(replays[:_REPLAYS]),
        running=ask.console.jobs.list_running(),
        waiting=waiting,
        mine=[row for row in every if row["owner"] == ask.person.name and row["state"] in _NEED_SOMEBODY],
        incidents=incidents,
        words=words,
        states=STATES,
    )


def read_report(ask: PageRequest) -> Mapping[str, Any]:
    """Return the report without letters, masked. Raises NoLetters where there are none."""
    named = ("now", *list_states(ask))
    return ask.console.look.keep(named, lambda seen: ask.mask(describe_now(seen)), of_letters=True)


def _list_open_replays(plans: Sequence[Document]) -> list[Document]:
    """Return plans that have begun and are not over, and the newest that have not."""
    rows = [row for row in plans if any(row[state] for state in _OPEN)]
    begun = [row for row in rows if row["planned"] < row["letters"]]
    return [*begun, *(row for row in reversed(rows) if row not in begun)]


def _count_day(ask: PageRequest) -> list[dict[str, Any]]:
    """Return what died in the last 24 hours, by half hours; nothing where none did."""
    hour = clock.now() // 3_600_000_000
    count = partial(timeline.count_last_day, now=clock.now() / 1_000_000)
    found = ask.console.look.keep(
        ("last day", hour), lambda workspace: count(open_views(workspace)), of_letters=True
    )
    return found if any(one["letters"] for one in found) else []


def _list_sources(ask: PageRequest, document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return every source that is configured or has letters, with what the brokers said last."""
    told = {row["source"]: row for row in document["sources"]}
    rows = []
    for row in ask.console.look.keep("sources", list_sources, of_letters=True):
        depth, note = ask.console.depths.find(row["source"])
        known = {"depth": depth, "depth_at": ask.console.depths.asked_at} if depth is not None else {}
        of_report = told.get(row["source"], {"still_queued": 0, "last": None, "broker_kind": row["kind"]})
        rows.append(
            {**row, **of_report, "letters": row["letters"], **known, "note": ask.masker().sentence(note)}
        )
    return rows


def ask_depths(ask: PageRequest) -> Response:
    """Ask the brokers how much lies there; changes nothing there."""
    why_not = ask.console.depths.read(ask.workspace())
    return ask.go_on("/", *filter(None, [why_not]), is_changed=False)
