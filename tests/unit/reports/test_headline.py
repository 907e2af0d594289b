"""The first sentence of a report says what happened."""

from typing import Any

from support.rows import each_row

from dlq.reports import headline


def document(*incidents: dict[str, Any], ongoing: int = 0) -> dict[str, Any]:
    letters = {"letters": 1240, "first": "2026-11-22T16:13:00Z", "last": "2026-11-22T16:53:00Z", "undated": 0}
    cause = {"name": "application_error", "share": 1.0, "meaning": "a framework parked it"}
    counts = {"incidents": len(incidents), "ongoing": ongoing, "in_doubt": 0, "sending": 0}
    counts |= {"confirmed": 0, "dismissed": 0}
    return {
        **letters, "sources": [{"still_queued": 0}], "causes": [cause], "advice": [], "counts": counts,
        "incidents": incidents, "created_at": "2026-11-22T17:00:00Z",
    }  # fmt: skip


def incident(**values: Any) -> dict[str, Any]:
    known = {
        "start": "2026-11-22T16:13:07Z", "end": "2026-11-22T16:53:01Z", "size": 1230, "waiting": 1230,
        "services": ["orders", "payments"], "causes": ["application_error"], "cause": "application_error",
        "origin": "orders", "exception_class": "java.net.SocketTimeoutException", "dated": True,
        "exception_message": "pay-gw did not answer", "ongoing": False, "broker_kinds": ["rabbitmq"],
    }  # fmt: skip
    return known | values


_WHO = "1,230 letters, orders and payments"
_WHEN = f"from 16:13 to 16:53 UTC: {_WHO}; over"
_GATEWAY = "pay-gw did not answer"
EXPIRED = {"exception_class": None, "cause": "expired"}


@each_row(("values", "said"), [
    ({}, f"{_GATEWAY} {_WHEN}."), ({"waiting": 0}, f"{_GATEWAY} {_WHEN}; none waits."),
    ({"ongoing": True}, f"{_GATEWAY} since 16:13 UTC: {_WHO}; going on at 16:53 UTC."),
    ({"start": "2026-11-20T16:13:07Z", "end": "2026-11-20T16:53:01Z"},
     f"{_GATEWAY} from 11-20 16:13 to 16:53 UTC: {_WHO}; over."),
    ({"start": "2025-12-31T23:13:07Z", "end": "2026-01-01T00:53:01Z"},
     f"{_GATEWAY} from 2025-12-31 23:13 to 2026-01-01 00:53 UTC: {_WHO}; over."),
    ({"dated": False}, f"{_GATEWAY}, time unknown: {_WHO}."),
    ({"exception_message": "refused\n\tat Frame"}, f"refused {_WHEN}."),
    ({"exception_message": ""}, f"SocketTimeoutException {_WHEN}."),
    ({"exception_message": "x" * 200}, f"{'x' * 119}… {_WHEN}."), (EXPIRED, f"expired in orders {_WHEN}."),
    ({**EXPIRED, "services": ["orders"]}, "expired in orders from 16:13 to 16:53 UTC: 1,230 letters; over."),
    ({"exception_class": None, "cause": None, "causes": ["expired"]}, f"expired {_WHEN}."),
    ({"size": 1, "services": ["a", "b", "c", "d", "e"]},
     f"{_GATEWAY} from 16:13 to 16:53 UTC: 1 letter, a, b, c and 2 more; over."),
])  # fmt: skip
def test_the_answer_says_what_happened_when_and_whether_it_lasts(values: dict[str, Any], said: str) -> None:
    assert headline.sentences(document(incident(**values)))[0] == said


def test_the_other_incidents_are_counted() -> None:
    assert headline.sentences(document(incident(), incident()))[1] == "1 more incident."
    three = document(*(incident() for _ in range(3)), ongoing=1)
    assert headline.sentences(three)[1] == "2 more incidents, 1 going on at the last pull."


@each_row(("state", "said"), [
    ("in_doubt", "in doubt: reconcile their plans first."),
    ("sending", "being sent, or in doubt if no apply runs."),
])  # fmt: skip
def test_what_is_on_the_way_is_not_called_in_doubt(state: str, said: str) -> None:
    known = document()
    known["counts"][state] = 2
    assert headline.sentences(known)[-1] == f"2 letters {said}"


@each_row(("letters", "said"), [(3, "3 letters lost"), (None, "0 letters or more lost")])
def test_what_nobody_captured_is_counted(letters: int | None, said: str) -> None:
    known = {**document(), "losses": [{"place": "orders.dlq", "letters": letters}]}
    assert f"{said} before any pull could take them: orders.dlq." in headline.sentences(known)


def test_without_an_incident_the_answer_is_how_many() -> None:
    first = headline.sentences(document())[0]
    assert first.startswith("1,240 dead letters in 1 source, from 2026-11-22 16:13")
