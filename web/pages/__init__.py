"""The pages: which address is which, and what right it asks for. A change has an address of its own."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from starlette.responses import Response

from dlq.web.console import PageRequest
from dlq.web.pages import books, commands, coverage, failures, incidents, letters, now, plans, replays
from dlq.web.people import Right


class Route(NamedTuple):
    """One address. `{name}` in it is an id, which the page is given."""

    method: str
    path: str
    right: Right
    page: Callable[[PageRequest], Response]
    on: tuple[str, ...] = ()
    """Of a change: the pages that offer it."""
    commands: tuple[str, ...] = ()
    """What does the same in a shell. What the form asks for stands there in capitals."""


_FAILURE, _LETTER, _PLAN, _REPLAY = (
    "/failures/{fingerprint}",
    "/letters/{record_id}",
    "/plans/{plan}",
    "/replays/{plan}",
)
_OF_FAILURES = {
    "assign": "dlq failures assign {fingerprint:.12} OWNER --reason WHY",
    "note": "dlq failures note {fingerprint:.12} TEXT",
    "snooze": "dlq failures snooze {fingerprint:.12} --until TIME --reason WHY",
    "resolve": "dlq failures resolve {fingerprint:.12} --reason HOW",
    "reopen": "dlq failures reopen {fingerprint:.12} --reason WHY",
}
_OF_LETTERS = ("dlq replay plan ID", "dlq dismiss ID --reason WHY", "dlq dismiss ID --undo")

ROUTES = (
    Route("GET", "/", "read", now.show_now),
    Route("POST", "/depths", "read", now.ask_depths, ("/",), ("dlq doctor",)),
    Route("GET", "/pull", "apply", commands.show_pull),
    Route("POST", "/pull", "apply", commands.pull, ("/pull",), ("dlq pull",)),
    Route("POST", "/analyze", "plan", commands.analyze, ("/",), ("dlq analyze",)),
    Route("GET", "/failures", "read", failures.list_page),
    Route("GET", _FAILURE, "read", failures.show_page),
    *(
        Route("POST", f"{_FAILURE}/{action}", "triage", page, (_FAILURE,), (_OF_FAILURES[action],))
        for action, page in failures.ACTIONS.items()
    ),
    Route(
        "POST",
        _FAILURE + "/proposals/{proposal}",
        "triage",
        failures.carry_out_page,
        (_FAILURE,),
        ("dlq failures show {fingerprint:.12}",),
    ),
    Route("GET", "/letters", "read", letters.list_page),
    Route("POST", "/letters/chosen", "read", letters.act_on_chosen, ("/letters",), _OF_LETTERS),
    Route(
        "POST",
        _FAILURE + "/dismiss",
        "triage",
        letters.dismiss_failure,
        (_FAILURE,),
        ("dlq dismiss --failure {fingerprint:.12} --reason WHY",),
    ),
    Route("GET", _LETTER, "read", letters.show_page),
    Route(
        "POST", _LETTER + "/plain", "unmask", letters.show_plain, (_LETTER,), ("dlq show {record_id:.12}",)
    ),
    Route(
        "POST",
        _LETTER + "/draft",
        "unmask",
        letters.show_draft,
        (_LETTER,),
        ("dlq export --where \"record_id = '{record_id:.12}'\" FILE",),
    ),
    Route("POST", _LETTER + "/edit", "plan", letters.plan_edit, (_LETTER,), ("dlq replay plan --edit FILE",)),
    Route("GET", "/incidents", "read", incidents.list_page),
    Route("GET", "/incidents/{incident_id}", "read", incidents.show_page),
    Route("GET", "/plans", "read", plans.list_page),
    Route("GET", "/plans/new", "plan", plans.show_form),
    Route("POST", "/plans", "plan", plans.make, ("/plans/new",), ("dlq replay plan ID",)),
    Route("GET", _PLAN, "read", plans.show_page),
    Route("POST", _PLAN + "/approve", "approve", plans.approve, (_PLAN,), ("dlq replay approve {plan}",)),
    Route("POST", _PLAN + "/apply", "apply", replays.apply, (_PLAN,), ("dlq replay apply {plan} --ramp",)),
    Route("POST", _PLAN + "/rate", "apply", replays.change, (_REPLAY,), ("dlq replay rate {plan} RATE",)),
    Route("POST", _PLAN + "/stop", "apply", replays.stop, (_REPLAY,), ("dlq replay stop {plan}",)),
    Route(
        "POST",
        _PLAN + "/reconcile",
        "apply",
        replays.reconcile,
        (_PLAN, _REPLAY),
        ("dlq replay reconcile {plan}",),
    ),
    Route(
        "POST",
        _PLAN + "/decide",
        "reconcile",
        replays.decide,
        (_REPLAY,),
        ("dlq replay reconcile {plan} --sent ID",),
    ),
    Route("GET", _REPLAY, "read", replays.show_page),
    Route("GET", _REPLAY + "/events", "read", replays.follow),
    Route("GET", "/transactions", "read", books.list_transactions_page),
    Route("GET", "/books", "read", books.show_books),
    Route("POST", "/books", "read", books.prove_books, ("/books",), ("dlq verify",)),
    Route("GET", "/audit", "read", books.list_audit_page),
    Route("GET", "/coverage", "read", coverage.show_coverage),
    Route("GET", "/commands/{job}", "read", commands.show_page),
    Route("GET", "/commands/{job}/events", "read", commands.follow),
)

ACTS: Mapping[str, Sequence[str]] = {
    page.path: [command for route in ROUTES if page.path in route.on for command in route.commands]
    for page in ROUTES
    if page.method == "GET"
}
"""A page -> the commands that do what it offers."""
