"""What must add up: the books, RocketMQ's transactions, and who did what."""

from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from dlq.core.causes import TRANSACTION_STATES
from dlq.core.clock import iso, now
from dlq.operations.reading.books import count_books, list_audit, list_transactions, verify_books
from dlq.web.console import PageRequest
from dlq.web.pages.paging import show_part

_COLUMNS = ("captured", "replayed", "held", "dismissed", "purged", "waiting", "in_doubt", "lost")
_PLACES = {"failure": "/failures", "plan": "/plans", "letter": "/letters"}
_MOST = 10_000


def list_transactions_page(ask: PageRequest) -> Response:
    """Return those that were checked most on top."""
    rows = ask.console.look.keep("transactions", list_transactions)
    shown = show_part(ask, rows, _place_of, "/transactions")
    command = 'dlq query "select * from transactions order by checks desc, unique_key"'
    return ask.page("transactions", command, **shown, states=TRANSACTION_STATES)


def _place_of(row: Mapping[str, Any]) -> str:
    """Name a place by one of its letters: its own key is a producer's word, which the address of a page would
    show unmasked, and confirm to who guesses it."""
    return str(min(row["record_ids"] or [""]))


def show_books(ask: PageRequest) -> Response:
    """Return whether all that was captured is accounted for, once: as it was proven, else by the numbers."""
    look = ask.console.look
    document, proven = look.find("books") or (look.keep("counted", count_books, of_letters=True), None)
    return ask.page("books", "dlq verify", document=document, columns=_COLUMNS, proven=proven)


def prove_books(ask: PageRequest) -> Response:
    """Compare all that the archive holds with its digests."""
    look = ask.console.look
    _, proven = look.keep_long("books", lambda workspace: (verify_books(workspace), iso(now())))
    told = [] if look.find("books") else [f"They were proven {proven}, and not again so soon: wait a minute."]
    return ask.go_on("/books", *told, is_changed=False)


def list_audit_page(ask: PageRequest) -> Response:
    """Return who did what, the last first."""
    rows = ask.console.look.keep("audit", lambda workspace: list_audit(workspace, limit=_MOST))
    shown = show_part(ask, rows, lambda row: f"{row['done_at']}~{row['subject']}", "/audit")
    return ask.page("audit", 'dlq query "select * from audit order by done_at desc"', **shown, places=_PLACES)
