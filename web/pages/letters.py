"""Letters: chosen by filters, page by page, and one in full, masked unless somebody may see more."""

import math
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from starlette.responses import RedirectResponse, Response

from dlq.archive import short_ids
from dlq.archive.views import Order
from dlq.core.causes import TRANSACTION_STATES, cause_in_words
from dlq.core.clock import now
from dlq.core.errors import TookTooLong, UsageError
from dlq.core.failures import check_length, make_event
from dlq.core.text import sql_literal
from dlq.operations.dismissing import dismiss_letters, reopen_letters
from dlq.operations.reading.letters import (
    LettersWanted,
    condition_behind,
    count_letters,
    describe_owners,
    list_letters,
    list_values,
    preview_body,
    read_order,
    show_letter,
)
from dlq.operations.reading.selecting import Selection
from dlq.operations.reading.views import open_views
from dlq.operations.replays.plans import PlanWanted, make_plan
from dlq.operations.workspace import Workspace
from dlq.replay import ledger
from dlq.replay.plans.wanted import Wanted
from dlq.reports import failures as words
from dlq.reports.letters import letter as letters
from dlq.reports.letters import stack
from dlq.reports.letters.masking import Masker
from dlq.web.console import PageRequest, Refused, Undo
from dlq.web.pages import choosing, edits
from dlq.web.pages.failures import list_every
from dlq.web.pages.letter_values import add_trace, list_bodies
from dlq.web.pages.paging import PAGE
from dlq.web.pages.plans import NOTHING_SENT
from dlq.web.render import make_address

_COLUMNS = (
    "record_id", "dead_at", "source", "cause", "proof", "exception_class", "exception_message", "origin",
    "advice", "attempts", "replay_state", "broker_kind", "still_queued", "rule", "transaction_state", "key",
)  # fmt: skip
_TITLES = {
    "dead_at": "Died", "source": "Source", "cause": "Cause", "failure": "Failure", "key": "Key",
    "advice": "Advice", "attempts": "Attempts", "replay_state": "Replay",
}  # fmt: skip
"""Columns that are shown beside the id. One that says the same in each row is folded into a line."""
_SORTED = ("dead_at", "source", "cause", "advice", "attempts", "replay_state")
_FALL_FIRST = ("dead_at", "attempts")
"""Columns of which the largest is asked for first."""
_SHOWN = ("source", "cause", "advice", "replay_state")
"""Filters with a list of what there is."""
_MOST_CHOICES = 1_000
_MORE = tuple(name for name in choosing.EQUAL if name not in _SHOWN)


_LOOK_SECONDS, _MOST_LOOKS = 600.0, 1_000
"""After which a look at a letter as it is stands in the audit again, and how many are known meanwhile."""


class _Page(NamedTuple):
    """A page of the list, masked."""

    rows: Sequence[Mapping[str, Any]]
    last: str
    """The key of its last letter; nothing where no page follows."""


def list_page(ask: PageRequest) -> Response:
    """Show fifty letters, the newest dead first, unless another order is asked for. `part`: those that a
    search for a text finds at once, uncounted."""
    chosen = choosing.read_filters(ask, lambda name: ask.query.get(name, ""))
    after, sort = ask.query.get("after") or None, ask.query.get("sort", "")
    selection, look = choosing.select(chosen, sees_all=ask.sees_all), ask.console.look
    named, order = choosing.name(selection), read_order(sort) if sort else None
    is_part = "part" in ask.query and "text" in chosen
    wanted = LettersWanted(selection, _COLUMNS, PAGE, after, order, is_part)
    read = partial(_read_page, ask, wanted=wanted)
    count = partial(count_letters, selection=selection, is_dear="text" in chosen)
    page = look.keep(("letters", after, sort, named, is_part), read, of_letters=True)
    here: dict[str, Any] = {**chosen, "sort": sort}
    typed = [_with_page(chosen, after, order).options(), f"--sort={sort}" if sort else ""]
    return ask.page(
        "letters",
        " ".join(["dlq ls", *filter(None, typed), f"--limit {PAGE}"]),
        count=None if is_part else look.keep(("count", named), count, of_letters=True),
        sorted_by=f"by {order.column}" if order else "the newest dead first",
        first=make_address("/letters", **here) if after else "",
        following=make_address("/letters", **here, after=page.last) if page.last and not is_part else "",
        **_describe_filters(ask, chosen, here),
        **_describe_table(page.rows, chosen, here),
    )


def _describe_filters(ask: PageRequest, chosen: Mapping[str, str], here: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is chosen, and what could be."""
    return {
        "chosen": _Chosen(chosen),
        "selection": chosen,
        "chips": [
            (_label(name), _name_of(ask, name, value), _remove(here, name)) for name, value in chosen.items()
        ],
        "options": _list_options(ask),
        "more_columns": _MORE,
        "sort": here["sort"],
    }


def _describe_table(
    rows: Sequence[Mapping[str, Any]], chosen: Mapping[str, str], here: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the rows, and which columns they need."""
    same, columns = _fold(rows)
    return {
        "rows": rows,
        "shown": f"{len(rows)} on this page" if rows else "",
        "titles": _TITLES,
        "same": [(name, value) for name, value in same if name not in chosen],
        "columns": columns,
        "orders": _Orders({name: _order_by(here, name) for name in _SORTED}),
    }


def _label(name: str) -> str:
    return {"text": "holds", "where": "condition", "replay_state": "replay"}.get(name, name.replace("_", " "))


def _name_of(ask: PageRequest, name: str, value: str) -> str:
    """Return what a filter asks for, in words."""
    if name != "failure":
        return value
    found = [row for row in list_every(ask) if row["fingerprint"].startswith(value)]
    return words.describe(ask.mask(found[0]) | {"broker_kinds": found[0]["broker_kinds"]}) if found else value


def _remove(here: Mapping[str, Any], name: str) -> str:
    return make_address("/letters", **{**here, name: ""})


def _order_by(here: Mapping[str, Any], column: str) -> Mapping[str, str]:
    """Return how the list is sorted by a column now, and the address where it is sorted by it, or the other
    way."""
    now = {column: "ascending", f"-{column}": "descending"}.get(here["sort"] or "-dead_at", "none")
    falls = now == "ascending" or (now == "none" and column in _FALL_FIRST)
    return {"now": now, "address": make_address("/letters", **{**here, "sort": "-" * falls + column})}


class _Orders(dict[str, Mapping[str, str]]):
    """Of which a column by which nothing is sorted has none."""

    def __missing__(self, _name: str) -> None:
        return None


def _fold(rows: Sequence[Mapping[str, Any]]) -> tuple[Sequence[tuple[str, Any]], Sequence[str]]:
    """Return what is the same in each row, and the columns of what is not. What is empty everywhere is
    neither."""
    values = {name: {row[name] for row in rows} for name in _TITLES}
    is_same = {name for name, found in values.items() if len(rows) > 1 and len(found) == 1}
    queued = {"replay_state"} if any(row["still_queued"] for row in rows) else set()
    same = [(name, *values[name]) for name in _TITLES if name in is_same and values[name] - {None, ""}]
    return same, [name for name in _TITLES if name not in is_same or name in queued]


def _read_page(ask: PageRequest, workspace: Workspace, wanted: LettersWanted) -> _Page:
    found = list_letters(workspace, wanted)
    rows = [dict(zip(_COLUMNS, row, strict=True)) for row in found.rows]
    last = found.last if found.is_more and found.last else ""
    return _Page([ask.mask(_with_failure(row)) for row in rows], last)


class _Chosen(dict[str, str]):
    """The filters, of which one that is not given is no text."""

    def __missing__(self, _name: str) -> str:
        return ""


def _with_page(chosen: Mapping[str, str], after: str | None, order: Order | None) -> Selection:
    """Return the selection of the command that lists the same page."""
    if after is None:
        return choosing.select(chosen)
    return choosing.select(chosen, " ".join(condition_behind(after, order).split()))


def _with_failure(row: Mapping[str, Any]) -> dict[str, Any]:
    kinds = {**row, "broker_kinds": [row["broker_kind"]]}
    said = words.describe(kinds) if row["cause"] or row["exception_class"] else ""
    where = f" in {row['origin']}" if row["origin"] and not row["exception_class"] else ""
    missing = "evidence" if letters.is_analysed(row) else "no verdict"
    cause = f"{row['cause']}?" if row["proof"] == "likely" else row["cause"]
    return {**row, "cause": cause or missing, "failure": said + where if row["cause"] else ""}


def _list_options(ask: PageRequest) -> Mapping[str, Sequence[str]]:
    """Return what there is of the filters that are chosen from a list."""
    try:
        found = ask.console.look.keep(
            "choices", lambda workspace: list_values(workspace, _SHOWN, _MOST_CHOICES), of_letters=True
        )
    except TookTooLong:
        return dict.fromkeys(_SHOWN, ())
    return {
        name: [ask.mask({name: value})[name] or choosing.NOTHING for value in values]
        for name, values in found.items()
    }


def show_page(ask: PageRequest) -> Response:
    """Return one letter, masked."""
    masker, one = ask.masker(), ask.names["record_id"]
    show = partial(show_letter, prefix=one, masker=masker, explained=True)
    found = ask.console.look.keep(("letter", one), show, of_letters=True)
    return _show(ask, found | {"owners": describe_owners(found, ask.console.settings)}, masker)


_NO_PLAN = {
    "confirmed": "it went back already", "dismissed": "it is dismissed: open it again first",
    **dict.fromkeys(("sending", "in_doubt"), "it may have gone back already: reconcile its plan first"),
    "held": "it is set aside: reconcile its plan first",
}  # fmt: skip
"""State of a replay -> why no plan takes the letter in."""


def _show(ask: PageRequest, found: dict[str, Any], masker: Masker | None) -> Response:
    missing = "No dead letter, but evidence" if letters.is_analysed(found) else "Not analysed yet"
    plain = "" if masker is None else " --mask"
    return ask.page(
        "letter",
        f"dlq show {shlex.quote(found['record_id'][:12])} --explain{plain}",
        letter={"explain": [], **add_trace(found)},
        cause=cause_in_words(found["cause"], [found["broker_kind"]], found["proof"])
        if found["cause"]
        else missing,
        way=list(letters.list_way(found)),
        identity=list(letters.identify(found).items()),
        bodies=list_bodies(found),
        body_title=letters.describe_body(found, preview_body(found)),
        shown_plain=masker is None,
        no_plan=_NO_PLAN.get(found["replay_state"] or "", ""),
        transaction_states=TRANSACTION_STATES,
        marks=stack.MARKS,
    )


def show_plain(ask: PageRequest) -> Response:
    """Return one letter as it is, once the audit says who looked."""
    record_id = _note_look(ask, ask.form.text("reason"))
    with ask.console.look.open() as workspace:
        return _show(ask, show_letter(workspace, record_id, None, explained=True), None)


def _note_look(ask: PageRequest, reason: str) -> str:
    """Write down that this person sees the letter as it is, once while they load the page again; its whole
    id."""
    check_length(reason)
    with ask.console.look.open() as workspace:
        record_id = short_ids.record_id(open_views(workspace), ask.names["record_id"])
    looks, look = ask.console.looks, (ask.person.session, ask.path, record_id, reason)
    if time.monotonic() < looks.get(look, -math.inf):
        return record_id
    workspace = ask.workspace(proven=True)
    with ledger.opened(workspace.settings.ledger, workspace.store) as book:
        book.append([make_event(now(), workspace.actor, record_id, "unmask", "", reason)])
    if len(looks) >= _MOST_LOOKS:
        looks.clear()
    looks[look] = time.monotonic() + _LOOK_SECONDS
    ask.console.look.forget()
    return record_id


def act_on_chosen(ask: PageRequest) -> Response:
    """Plan, dismiss or open again the letters that are ticked, or all that the filters choose."""
    ids = ask.form.several("id")
    chosen = choosing.read_filters(ask, ask.form.text)
    act = ask.form.text("act")
    if act == "plan":
        return RedirectResponse(make_address("/plans/new", id=ids, **({} if ids else chosen)), 303)
    if barrier := ask.barrier("triage"):
        raise UsageError(barrier)
    back = make_address("/letters", **chosen)
    return _close(ask, ids, chosen, act == "undo", back)


def dismiss_failure(ask: PageRequest) -> Response:
    """Close all letters of a failure."""
    chosen = {"failure": ask.names["fingerprint"]}
    return _close(ask, [], chosen, False, make_address("/letters", **chosen))


def _close(
    ask: PageRequest, ids: Sequence[str], chosen: Mapping[str, str], undo: bool, back: str
) -> Response:
    workspace, selection = ask.workspace(proven=True), choosing.select_to_change(ask, {} if ids else chosen)
    if undo:
        done = reopen_letters(workspace, ids, selection)
        told = f"{done['reopened']:,} open again" + _tell(done["known"], "were not dismissed")
        return ask.go_on(back, told)
    done = dismiss_letters(workspace, ids, selection, ask.form.text("reason"))
    told = f"{done['dismissed']:,} dismissed" + _tell(done["known"], "were left alone")
    return ask.go_on(back, told, undo=_undo(ids, chosen, done))


def _tell(known: int, what: str) -> str:
    return f"; {known:,} {what}." if known else "."


def _undo(ids: Sequence[str], chosen: Mapping[str, str], done: Mapping[str, int]) -> Undo | None:
    """Return what opens the same letters again, where these are exactly those that were closed now."""
    if not done["dismissed"] or done["known"] or (not ids and chosen.keys() & {"replay_state", "where"}):
        return None
    return Undo("/letters/chosen", [("act", "undo"), *(("id", one) for one in ids), *chosen.items()])


def show_draft(ask: PageRequest) -> Response:
    """Return a form with the letter as it is, to be changed before its replay."""
    record_id = _note_look(ask, "to edit it")
    with ask.console.look.open() as workspace:
        found = show_letter(workspace, record_id)
    headers = sorted((found["headers"] or {}).items())
    return _show_edit(ask, record_id, headers, edits.read_text(found))


def _show_edit(
    ask: PageRequest, record_id: str, headers: Sequence[tuple[str, str]], body: str | None
) -> Response:
    only = f"record_id = {sql_literal(record_id[:12])}"
    return ask.page(
        "edit",
        [f"dlq export --where {shlex.quote(only)} edited.jsonl", "dlq replay plan --edit edited.jsonl"],
        409 if ask.refused else 200,
        record_id=record_id,
        headers=headers,
        body=body,
    )


def plan_edit(ask: PageRequest) -> Response:
    """Return a plan of the letter as the form has it. Raises UsageError for who may not see it: whether
    anything is changed tells what it holds."""
    if barrier := ask.barrier("unmask"):
        raise UsageError(barrier)
    record_id = ask.names["record_id"]
    with ask.console.look.open() as workspace:
        found = show_letter(workspace, record_id)
    workspace = ask.workspace(proven=True)
    try:
        how = Wanted(edits=edits.read_edit(found, ask.form), reason=ask.form.text("reason") or None)
        made = make_plan(workspace, PlanWanted(how=how))
    except UsageError as error:
        headers = [*zip(ask.form.several("header_name"), ask.form.several("header_value"), strict=False)]
        body = ask.form.exact("body") if "body" in ask.form.names() else None
        refused = Refused(ask.path, ask.form, ask.masker().sentence(str(error)))
        return _show_edit(replace(ask, refused=refused), record_id, headers, body)
    return ask.go_on(f"/plans/{made.header.plan}", NOTHING_SENT, *ask.list_notes(workspace))
