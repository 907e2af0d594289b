"""What leaves masked shows structure, and of a message's content only what the configuration lists."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.rows import each_row

from dlq.core.configuration import parse
from dlq.core.errors import ConfigError
from dlq.core.settings import Mask
from dlq.reports.letters.masking import Masker

CANARY = "Jane.Doe-4711@example.com"
FRAME = "\tat com.Shop.take(Shop.java:17)"
HIDDEN = base64.b64encode(CANARY.encode()).decode()


def letter(canary: str) -> dict[str, Any]:
    """A letter with a value in each place that its producer fills."""
    return {
        "record_id": "4" * 32, "broker_kind": "rabbitmq", "origin": "orders-2024", "attempts": 3,
        "dead_at": "2026-11-02T03:12:09Z", "exception_class": "com.shop.StockException",
        "message_id": canary, "physical_id": canary, "keys": [canary], "raw_properties_base64": HIDDEN,
        "headers": {"from": canary, "nested": json.dumps({"mail": [canary]}), "object": {"mail": canary}},
        "properties": {"correlation_id": canary, "priority": "5"},
        "record": {"physical_id": canary}, "transactions": [{"unique_key": canary}],
        "audit": [{"action": "release", "value": canary}],
        "failure_text": f'no stock for "{canary}" of order 17',
        "body_base64": base64.b64encode(json.dumps({"mail": canary, "n": 7}).encode()).decode(),
    }  # fmt: skip


@pytest.mark.parametrize("canary", [CANARY, HIDDEN, f"%4a{CANARY}", "Jane"])
def test_nothing_that_a_producer_wrote_leaves(canary: str) -> None:
    masked = Masker().document(letter(canary))
    masked["body"] = base64.b64decode(masked["body_base64"]).decode()
    assert canary not in json.dumps(masked)
    assert json.loads(masked["body"]) == {"mail": f"text of {len(canary)}", "n": "number"}


def test_structure_places_times_and_what_programs_wrote_stay() -> None:
    known = letter(CANARY)
    masked = Masker().document(known)
    same = ("record_id", "origin", "dead_at", "attempts", "exception_class")
    assert {name: masked[name] for name in same} == {name: known[name] for name in same}
    assert masked["failure_text"] == "no stock for ? of order ?"
    assert masked["properties"] == {"correlation_id": "text of 25", "priority": "5"}
    hidden = "text of 25"
    assert masked["headers"] == {"from": hidden, "nested": {"mail": [hidden]}, "object": {"mail": hidden}}
    assert "raw_properties_base64" not in masked


@each_row("name, value, shown", [
    ("x-death", [{"queue": "orders", "count": 2}], [{"queue": "orders", "count": 2}]),
    ("x-death", [{"routing-keys": ["to.jane@example.com"]}], [{"routing-keys": ["?"]}]),
    ("x-exception-message", {"card": "4111", "who": ["Jane"]}, {"card": "text of 4", "who": ["text of 4"]}),
    ("x-exception-message", ["Jane"], ["text of 4"]),
    ("x-exception-message", "no stock for 'Jane' of 17", "no stock for ? of ?"),
    ("x-exception-stacktrace", f"X: no 4711\n{FRAME}", f"X: no ?\n{FRAME}"),
    ("kafka_dlt-exception-fqcn", "com.shop.StockException", "com.shop.StockException"),
    ("MT-Fault-Message", "jane@example.com", "?"), ("error", "unclosed 'Jane and more", "unclosed …"),
    ("error", "4111111111111111", "?"), ("error", "4111 1111 1111 1111", "? ? ? ?"),
    ("x-error", "sk_live_0123456789", "?"), ("x-delivery-count", 3, 3),
    ("x-original-offset", "1762053", "1762053"),
    ("failed-at", "2026-11-02T03:12:09.123456Z", "2026-11-02T03:12:09.123456Z"),
    ("error", "x" * 400, "x" * 300 + "…"), ("tenant", "acme", "text of 4"), ("count", 7, "number"),
    ("is_test", True, "true or false"), ("empty", "", ""), ("nothing", None, None),
])  # fmt: skip
def test_headers_show_what_brokers_and_frameworks_wrote(name: str, value: object, shown: object) -> None:
    masked = Masker().document({"broker_kind": "rabbitmq", "headers": {name: value}})
    assert masked["headers"] == {name: shown}


def test_the_configuration_lists_what_may_be_shown() -> None:
    masker = Masker(Mask(("header:x-ten*", "json:$.status", "json:$.items[*].sku", "key", "failure_text")))
    body = {"status": "paid", "items": [{"sku": "A-1", "who": "Jane"}] * 5, "who": {"status": "Jane"}}
    known = {"headers": {"X-Tenant": "acme", "who": "Jane"}, "key": "o-1", "failure_text": "no 17"}
    masked = masker.document({**known, "body_text": json.dumps(body)})
    assert masked["headers"] == {"X-Tenant": "acme", "who": "text of 4"}
    assert (masked["key"], masked["failure_text"]) == ("o-1", "no 17")
    item = {"sku": "A-1", "who": "text of 4"}
    shape = {"status": "paid", "items": [item, item, item, "2 more"], "who": {"status": "text of 4"}}
    assert json.loads(masked["body_text"]) == shape


def test_names_that_are_hidden_stay_apart() -> None:
    masked = Masker().document({"targets": {"ann@example.com": 1, "bob@example.com": 2, "orders": 3}})
    assert masked["targets"] == {"[name of 15]": 1, "[name of 15] (2)": 2, "orders": 3}


@each_row("body, shown", [
    (b"to Jane", "[masked: 7 bytes]"), (b"\x1f\x8b\x00", "[masked: 3 bytes]"),
    (b'"Jane"', "[masked: 6 bytes]"), (b"[" * 100_000, "[masked: 100,000 bytes]"),
    (b'{"jane@example.com": 1}', '{"[name of 16]": "number"}'),
])  # fmt: skip
def test_a_body_is_its_shape_or_its_length(body: bytes, shown: str) -> None:
    assert Masker().body(body) == shown


SCALARS = st.text() | st.integers() | st.none() | st.booleans()


@given(st.recursive(SCALARS, lambda of: st.lists(of) | st.dictionaries(st.text(), of)))
def test_no_document_ends_it(value: object) -> None:
    known = {"headers": {"h": value}, "failure_text": "'\"[«", "x": value}
    Masker().document({**known, "body_text": json.dumps(value)})


@each_row("setting, said", [
    ({"show": ["tenant"]}, "mask.show: 'tenant' names nothing"),
    ({"show": ["json:status"]}, "mask.show: 'json:status' names nothing"),
    ({"show": ["header:"]}, "mask.show: 'header:' names nothing"),
    ([{"header": "x-customer"}], r"\[\[mask\]\] is no longer read"),
])  # fmt: skip
def test_a_setting_that_shows_nothing_is_refused(setting: object, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse({"mask": setting})


@each_row(("written", "shown"), [
    ("error: shop refused 'inv 7': 406 - invalid expiration 'it's secret'; 18 letters stay",
     "error: shop refused '…'; 18 letters stay"),
    ('letter ab12: it is a time, and cannot become "sec', "letter ab12: it is a time, and cannot become '…'"),
    ("orders: 3 letters\nnote: run `dlq doctor`: it's quicker", None),
    ("sent to ann@example.org\n3 letters", "sent to ?\n3 letters"),
])  # fmt: skip
def test_what_a_command_quotes_in_an_error_is_not_shown(written: str, shown: str | None) -> None:
    assert Masker().errors(written) == (written if shown is None else shown)
