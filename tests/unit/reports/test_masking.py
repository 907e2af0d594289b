"""What leaves under --mask holds no personal data, and everything else as it was."""

import base64
import gzip
import json
import zlib
from typing import Any

import pytest

from dlq.core.settings import Mask
from dlq.reports.masking import Masker

CANARIES = [
    "jane.doe+test@example.co.uk", "4111 1111 1111 1111", "5500005555555559", "3782-822463-10005",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl", "AKIAIOSFODNN7EXAMPLE",
    "ghp_0123456789abcdefghij0123456789abcdef", "+49 170 1234567", "+14155550123", "(415) 555-0123",
    "415-555-0123",
]  # fmt: skip
HARMLESS = [
    "2026-11-02T03:12:09Z", "1762053120000", "order 17 of 2026-11-02", "10.20.30.40:5672", "at Stock.java:42",
    "d2c1f0e9b8a79685746352413029181f", "4111 1111 1111 1112", "v1.2.3-456", "com.shop.StockException",
    "amount 123456.78", "2026-11-02 03:12:09,123",
]  # fmt: skip


@pytest.mark.parametrize("canary", CANARIES)
@pytest.mark.parametrize("around", ["{}", 'say "{}", please', '{{"a":"{}"}}', "x={}&y=1", "({})"])
def test_personal_data_is_found_in_any_surrounding(canary: str, around: str) -> None:
    assert canary not in Masker().text(around.format(canary))


@pytest.mark.parametrize("text", HARMLESS)
def test_what_is_not_personal_stays(text: str) -> None:
    assert Masker().text(text) == text


def test_a_password_beside_its_name_is_masked_and_the_name_stays() -> None:
    assert (
        Masker().text('{"password": "hunter2!", "user": "jane"}') == '{"password": "[token]", "user": "jane"}'
    )
    assert Masker().text("Authorization: Bearer abcdefgh12345") == "Authorization: [token] [token]"


def everything(canary: str) -> dict[str, Any]:
    return {
        "record_id": "4" * 32,
        "headers": {"from": canary, "nested": json.dumps({"mail": [canary]})},
        "deaths": [{"queue": f"q {canary}"}],
        "body_text": f"hello {canary}",
        "body_base64": base64.b64encode(f"\x00\xff{canary}".encode("latin-1")).decode(),
        "failure_text": "seen " + base64.b64encode(f"mail {canary}".encode()).decode(),
        "record": {"raw_properties_base64": base64.b64encode(canary.encode()).decode(), "offset": 7},
    }


def found_anywhere(document: Any, canary: str) -> bool:
    if isinstance(document, dict):
        return any(found_anywhere(value, canary) for value in document.values())
    if isinstance(document, list):
        return any(found_anywhere(value, canary) for value in document)
    text = str(document)
    if canary in text:
        return True
    for word in text.split():
        try:
            if canary.encode() in base64.b64decode(word, validate=True):
                return True
        except ValueError:
            continue
    return False


@pytest.mark.parametrize("canary", CANARIES)
def test_a_planted_canary_is_nowhere_in_a_document_even_inside_base64(canary: str) -> None:
    document = everything(canary)
    assert found_anywhere(document, canary)

    masked = Masker().document(document)

    assert not found_anywhere(masked, canary)
    assert masked["record_id"] == "4" * 32
    assert masked["record"] == {"offset": 7}


def test_a_compressed_body_is_masked_inside_and_stays_compressed() -> None:
    body = Masker().body(gzip.compress(b"to jane@example.com"))

    assert gzip.decompress(body) == b"to [email]"


def test_a_body_that_a_rocketmq_client_compressed_is_masked_inside() -> None:
    assert zlib.decompress(Masker().body(zlib.compress(b"to jane@example.com"))) == b"to [email]"


@pytest.mark.parametrize("magic", [b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18", b"PK\x03\x04"])
def test_a_body_that_cannot_be_looked_into_is_masked_whole(magic: bytes) -> None:
    assert Masker().body(magic + b"anything") == b"[masked]"


def test_a_text_that_only_begins_like_a_compressed_body_is_masked_as_text() -> None:
    assert Masker().body(b"x of jane@example.com") == b"x of [email]"


def test_a_binary_body_without_anything_personal_is_unchanged() -> None:
    body = bytes(range(256)) * 3

    assert Masker().body(body) == body


def test_a_header_rule_hides_the_whole_value_whatever_its_case() -> None:
    masked = Masker([Mask(header="x-customer-*")]).document(
        {"headers": {"X-Customer-Name": "Jane", "x-id": "7"}}
    )

    assert masked == {"headers": {"X-Customer-Name": "[masked]", "x-id": "7"}}


def test_a_json_rule_hides_members_in_text_and_in_base64() -> None:
    body = json.dumps({"card": {"number": 12, "kind": "x"}, "items": [{"name": "Jane"}, {"name": "Joe"}]})
    masker = Masker([Mask(json="$.card.number"), Mask(json="$.items[*].name")])
    expected = {"card": {"number": "[masked]", "kind": "x"}, "items": [{"name": "[masked]"}] * 2}

    masked = masker.document({"body_text": body, "body_base64": base64.b64encode(body.encode()).decode()})

    assert json.loads(masked["body_text"]) == expected
    assert json.loads(base64.b64decode(masked["body_base64"])) == expected


CARD = '{"card":{"number":"abc-SECRET-2"}}'


@pytest.mark.parametrize("value", [CARD, json.loads(CARD), [json.loads(CARD)["card"]], "\ufeff" + CARD])
def test_a_json_rule_hides_members_of_a_header_be_it_text_or_object(value: object) -> None:
    masker = Masker([Mask(json="$.card.number"), Mask(json="$[0].number")])

    masked = masker.document({"headers": {"h": value}})

    assert "SECRET" not in json.dumps(masked)


def test_a_header_that_is_an_object_and_holds_nothing_personal_stays() -> None:
    document = {"headers": {"x-death": [{"queue": "orders", "count": 2, "time": "2026-11-02T03:12:09Z"}]}}

    assert Masker([Mask(json="$.card.number")]).document(document) == document


def test_json_escapes_hide_nothing() -> None:
    masked = Masker().body(rb'{"mail":"a.b\u0040example.com","in":"{\"p\":\"a.b\\u0040example.com\"}"}')

    assert b"example.com" not in masked
    assert json.loads(masked)["mail"] == "[email]"


def test_json_with_harmless_escapes_stays_to_the_byte() -> None:
    body = rb'{"name": "M\u00fcller", "half": "\ud83d", "line": "a\nb"}'

    assert Masker([Mask(json="$.card")]).body(body) == body


def test_half_a_surrogate_pair_beside_something_personal_stays_an_escape() -> None:
    assert Masker().text(r'{"half":"\ud83d","to":"a@example.com\n"}') == r'{"half":"\ud83d","to":"[email]\n"}'


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "latin-1", "utf-8-sig"])
def test_a_body_in_another_encoding_is_masked_and_keeps_it(encoding: str) -> None:
    body = '{"to":"jane@example.com","name":"José","card":{"number":"abc-SECRET-2"}}'.encode(encoding)

    text = Masker([Mask(json="$.card.number")]).body(body).decode(encoding)

    assert "jane" not in text
    assert "SECRET" not in text
    assert "José" in text


def test_utf_16_inside_a_binary_body_is_masked() -> None:
    around = bytes(range(128, 255))
    masked = Masker().body(around + "jane@example.com".encode("utf-16-le") + around)

    assert masked == around + "[email]".encode("utf-16-le") + around


def test_json_in_lines_is_masked_line_by_line() -> None:
    masker = Masker([Mask(json="$.card.number")])
    lines = '{"card": {"number": 4, "of": "ann@example.com"}}\r\n\nno json\n{"card": {"number": 5}}\n'
    expected = (
        '{"card": {"number": "[masked]", "of": "[email]"}}\n\nno json\n{"card": {"number": "[masked]"}}\n'
    )
    assert masker.text(lines) == expected
    assert gzip.decompress(masker.body(gzip.compress(lines.encode()))).decode() == expected


def test_a_line_that_holds_nothing_to_mask_stays_as_it_is() -> None:
    lines = '{"a":1.50}\n[ 1,  2 ]\n{torn'
    assert Masker([Mask(json="$.card.number")]).text(lines) == lines


def test_a_pattern_of_the_users_own_is_masked_everywhere() -> None:
    assert Masker([Mask(pattern=r"CUST-\d+")]).text("of CUST-4711.") == "of [masked]."


def test_a_long_run_of_letters_is_searched_once() -> None:
    text = "a" * 2**20

    assert Masker().text(text) == text
