"""What leaves under --mask holds no personal data, and everything else as it was."""

import base64
import bz2
import gzip
import json
import lzma
import textwrap
import unicodedata
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.rows import each_row

from dlq.core.configuration import parse
from dlq.core.settings import Mask
from dlq.reports.masking import WITHHELD, Masker

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


@each_row("canary", CANARIES)
@each_row("around", ["{}", 'say "{}", please', '{{"a":"{}"}}', "x={}&y=1", "({})"])
def test_personal_data_is_found_in_any_surrounding(canary: str, around: str) -> None:
    assert canary not in Masker().text(around.format(canary))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "utf-16-be"])
def test_a_card_in_digits_of_any_script_is_found_within_bytes(encoding: str) -> None:
    zeros = [at for at in range(0x80, 0xFFFF) if unicodedata.decimal(chr(at), None) == 0]
    for zero in zeros:
        card = "".join(chr(zero + int(digit)) for digit in "4111111111111111")
        shown = Masker().text("\x90\xff".encode("latin-1").hex() + card.encode(encoding).hex())
        assert "withheld" in shown, hex(zero)
    assert len(zeros) > 30


def test_names_that_letters_or_brokers_gave_are_masked() -> None:
    masker = Masker([Mask(pattern="jane")])
    names = ("stripped", "targets", "audience", "warnings", "still_queued", "brokers")
    plan = {name: {"jane": 1, "of jane": 2} for name in names}
    assert masker.document({**plan, "headers": {"jane": "jane"}}) == {
        **{name: {"[masked]": 1, "of [masked]": 2} for name in plan},
        "headers": {"[masked]": "[masked]"},
    }
    assert masker.document({"jane": "jane", "Jane jane": {"joe@example.com": 1}}) == {
        "jane": "[masked]",
        "Jane [masked]": {"[email]": 1},
    }
    assert masker.document({"sk_live_0123456789": 1}) == {"[token]": 1}


def test_names_that_sql_makes_of_values_are_masked_and_ids_stay() -> None:
    record_id = "4111111111111111" * 2
    found = {"rows": [{"jane": 1, "record_id": record_id, "h": {"jane": [{"jane": "jane"}]}}]}
    shown = {"[masked]": 1, "record_id": record_id, "h": {"[masked]": [{"[masked]": "[masked]"}]}}
    assert Masker([Mask(pattern="jane")]).document(found) == {"rows": [shown]}


def test_names_below_the_name_of_a_secret_are_masked() -> None:
    header = {"x-token": {"joe@example.com": [{"jane": "hush"}]}}
    body = json.dumps({"token": {"joe@example.com": 1, "of jane": True}})
    masked = Masker([Mask(pattern="jane")]).document({"headers": header, "body_text": body})
    assert masked["headers"] == {"x-token": {"[email]": [{"[masked]": "[token]"}]}}
    assert json.loads(masked["body_text"]) == {"token": {"[email]": "[token]", "of [masked]": True}}


@each_row("text", HARMLESS)
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


@each_row("canary", CANARIES)
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


UNREADABLE: Mapping[str, bytes] = {
    "Zstandard": b"\x28\xb5\x2f\xfdanything",
    "LZ4": b"\x04\x22\x4d\x18anything",
    "zip": b"PK\x03\x04anything",
    "bzip2": bz2.compress(b"a"),
    "xz": lzma.compress(b"a"),
    "all bytes": bytes(range(256)),
    "no whole UTF-16": "jane@example.com".encode("utf-16-le") + b"\xff\xd8\xff",
    "gzip behind a byte": b"x" + gzip.compress(b"a"),
    "gzip before a byte": gzip.compress(b"a") + b"b",
    "gzip that breaks off": gzip.compress(b"a" * 50)[:-4],
    "gzip of bytes": gzip.compress(b"\0"),
    "NUL in a text": b"a\0b",
    "NUL": b"\0",
}


@each_row("what", UNREADABLE)
def test_a_body_that_is_no_plain_text_is_withheld_and_counted(what: str) -> None:
    body = UNREADABLE[what]
    masker = Masker()
    masked = masker.body(body)
    plain = gzip.decompress(masked) if masked.startswith(b"\x1f\x8b") else masked
    assert (plain.decode(), masker.withheld) == (WITHHELD, 1)


def test_all_members_of_a_gzip_are_masked() -> None:
    members = gzip.compress(b"to jane@example.com ") + gzip.compress(b"and joe@example.com")
    assert gzip.decompress(Masker().body(members)) == b"to [email] and [email]"


def test_a_text_that_only_begins_like_a_compressed_body_is_masked_as_text() -> None:
    assert Masker().body(b"x of jane@example.com") == b"x of [email]"


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


@each_row(
    ("key", "rule", "hidden"),
    [
        ("header:X-Customer", {"header": "x-cust*"}, {"key"}),
        ("property:KEYS", {"header": "keys"}, {"key", "keys"}),
        ("message_id", {"header": "Message_Id"}, {"key", "message_id"}),
        ("message_id", {"header": "correlation_id"}, {"correlation_id"}),
        ("json:$.customer.id", {"json": "$.customer.id"}, {"key"}),
        ("json:$.customer.id", {"json": "$.customer"}, {"key"}),
        ("json:$.items[0].id", {"json": "$.items[*].id"}, {"key"}),
        ("json:$.customer", {"json": "$.customer.id"}, {"key"}),
        ("json:$.items[0]", {"json": "$.items[*].id"}, {"key"}),
        ("json:$.order", {"json": "$.customer"}, set()),
        ("header:order", {"json": "$.order"}, set()),
        ("header:order", {"header": "x-order"}, set()),
        ("header:order", {"pattern": "no such"}, set()),
    ],
)
def test_a_column_that_is_made_of_what_is_masked_is_masked(
    key: str, rule: dict[str, str], hidden: set[str]
) -> None:
    source = {"broker": "shop", "queue": "orders.dlq", "key": key}
    broker = {"kind": "rabbitmq", "url": "amqp://127.0.0.1"}
    settings = parse({"brokers": {"shop": broker}, "sources": {"orders": source}, "mask": [rule]})
    row = {"message_id": "a", "correlation_id": "b", "key": "c", "keys": ["d"], "cause": "rejected"}
    masked = Masker(settings.mask).document(row)
    assert {name for name in row if masked[name] != row[name]} == hidden
    assert all(masked[name] in ("[masked]", ["[masked]"]) for name in hidden)


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


MAIL = "jane.doe@example.com"
CONTENT = f"the mail of Jané is {MAIL}, by the way".encode()


def deflated(wbits: int) -> Callable[[bytes], bytes]:
    def pack(content: bytes) -> bytes:
        stream = zlib.compressobj(wbits=wbits)
        return stream.compress(content) + stream.flush()

    return pack


PACKED: Mapping[str, Callable[[bytes], bytes]] = {
    "nothing": bytes,
    "gzip": gzip.compress,
    "gzip behind a byte": lambda content: b"x" + gzip.compress(content),
    "zlib": zlib.compress,
    "zlib that begins 0x18": deflated(9),
    "zlib that begins 0x68": deflated(14),
    "raw deflate": deflated(-15),
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "UTF-16": lambda content: content.decode().encode("utf-16"),
    "UTF-16, low byte first": lambda content: content.decode().encode("utf-16-le"),
    "UTF-16, high byte first": lambda content: content.decode().encode("utf-16-be"),
    "Latin": lambda content: content.decode().encode("latin-1"),
    "bytes around it": lambda content: b"\xff\0" + content + b"\0\xff",
}
WRITTEN: Mapping[str, Callable[[bytes], str]] = {
    "base64": lambda content: base64.b64encode(content).decode(),
    "base64 without padding": lambda content: base64.b64encode(content).decode().rstrip("="),
    "base64 for URLs": lambda content: base64.urlsafe_b64encode(content).decode(),
    "base64 in lines": lambda content: base64.encodebytes(content).decode(),
    "base64 in short lines": lambda content: "\r\n".join(
        base64.b64encode(content).decode()[at : at + 20] for at in range(0, 4 * len(content), 20)
    ),
    "base64 as a value": lambda content: f"data={base64.b64encode(content).decode()}&x=1",
    "base64 behind a name": lambda content: f"id-{base64.b64encode(content).decode()}",
    "base64 glued to letters": lambda content: f"x{base64.b64encode(content).decode()}",
    "base64 before a letter": lambda content: f"{base64.b64encode(content).decode()}é",
    "base64 in JSON": lambda content: json.dumps({"a": [base64.b64encode(content).decode()]}),
}


def leaks(masked: str, content: bytes) -> bool:
    """Whether what was written is still there, whole or but for its ends."""
    plain = "".join(masked.split())
    encoded = base64.b64encode(content).decode()
    return MAIL in masked or encoded[8:-8] in plain


@each_row("written", WRITTEN)
@each_row("packed", PACKED)
def test_no_way_of_packing_passes(packed: str, written: str) -> None:
    content = PACKED[packed](CONTENT)
    text, masker = WRITTEN[written](content), Masker()
    masked = masker.text(f"seen {text}" if written != "base64 in JSON" else text)
    assert not leaks(masked, content)
    assert masker.withheld > 0


@each_row("deep", range(1, 10))
def test_no_number_of_layers_passes(deep: int) -> None:
    text = MAIL
    for _ in range(deep):
        text = base64.b64encode(text.encode()).decode()
    assert text not in Masker().text(f"seen {text}")
    body = MAIL.encode()
    for _ in range(deep):
        body = base64.b64encode(gzip.compress(body, mtime=0))
    assert body.decode() not in Masker().text(f"seen {body.decode()}")


WIDE_CARD = "４" + 15 * "１"


def by_byte(form: str, data: bytes) -> str:
    return "".join(map(form.format, data))


SPELLED: Mapping[str, str] = {
    "percent": MAIL.replace("@", "%40").replace(".", "%2E"),
    "all by percent": "".join(f"%{ord(c):02x}" for c in MAIL),
    "entities": "".join(f"&#{ord(c)};" for c in MAIL),
    "an entity": MAIL.replace("@", "&commat;"),
    "quoted-printable": MAIL.replace("@", "=40"),
    "soft breaks": "jane.d=\noe@exa=\r\nmple.com",
    "JSON's escapes": MAIL.replace("@", "\\u0040"),
    "escapes of escapes": MAIL.replace("@", "\\\\u0040"),
    "Python's escapes": MAIL.replace("@", "\\x40"),
    "octal escapes": MAIL.replace("@", "\\100"),
    "wide letters": "".join(chr(ord(c) + 0xFEE0) for c in MAIL),
    "nothing between": "\u200b".join(MAIL),
    "soft hyphens": "\u00ad".join(MAIL),
    "NULs": "\0".join(MAIL),
    "colours": MAIL.replace("@", "\x1b[1m@\x1b[0m"),
    "hexadecimal": MAIL.encode().hex(),
    "gzip in hexadecimal": gzip.compress(MAIL.encode()).hex(),
    "hexadecimal with blanks": MAIL.encode().hex(" "),
    "hexadecimal glued to a digit": "d" + MAIL.encode().hex(),
    "hexadecimal with commas": MAIL.encode().hex(","),
    "hexadecimal with 0x": ", ".join(f"0x{c:x}" for c in MAIL.encode()),
    "hexadecimal in lines": f"{MAIL.encode().hex()[:19]}\n{MAIL.encode().hex()[19:]}",
    "zlib in hexadecimal with colons": zlib.compress(MAIL.encode()).hex(":"),
    "gzip in hexadecimal glued to a digit": "d" + gzip.compress(MAIL.encode()).hex(),
    "gzip behind a text in hexadecimal": (b"hello, world: " + gzip.compress(MAIL.encode())).hex(),
    "gzip behind a text in base32": base64.b32encode(
        b"hello, world: " + gzip.compress(MAIL.encode())
    ).decode(),
    "gzip by percent": "".join(f"%{c:02x}" for c in gzip.compress(MAIL.encode())),
    "gzip in escapes": "".join(f"\\x{c:02x}" for c in gzip.compress(MAIL.encode())),
    "UTF-32 in hexadecimal": MAIL.encode("utf-32-le").hex(),
    "UTF-32 in base64": base64.b64encode(MAIL.encode("utf-32-be")).decode(),
    "gzip in short lines of base64": "\n".join(
        textwrap.wrap(base64.b64encode(gzip.compress(MAIL.encode())).decode(), 8)
    ),
    "short octal escapes": MAIL.replace("@", "\\100").replace(".", "\\56"),
    "JavaScript's escape()": MAIL.replace("@", "%u0040"),
    "base32": base64.b32encode(MAIL.encode()).decode(),
    "base32 in small letters": base64.b32encode(MAIL.encode()).decode().lower(),
    "base32 glued to letters": "ID" + base64.b32encode(MAIL.encode()).decode(),
    "base32 in lines": "\n".join(textwrap.wrap(base64.b32encode(MAIL.encode()).decode(), 12)),
    "gzip in base32": base64.b32encode(gzip.compress(MAIL.encode())).decode(),
    "a card with dots": "4111.1111.1111.1111",
    "a card with odd blanks": "4111\u00a01111\u20091111\u20031111",
    "a card in wide digits": "４１１１１１１１１１１１１１１１",
    "a card in Arabic digits": "".join(chr(0x660 + int(c)) for c in "4111111111111111"),
    "a card with dashes": "4111–1111–1111–1111",
    "a card with middle dots": "4111·1111·1111·1111",
    "a card with slashes": "4111/1111/1111/1111",
    "a card with commas": "4111,1111,1111,1111",
    "a card with colons": "4111 : 1111 : 1111 : 1111",
    "a card in lines": "4111\n1111\n1111\n1111",
    "a card in lines of Windows": "4111\r\n1111\r\n1111\r\n1111",
    "a card of 15 digits with colons": "3782:822463:10005",
    "a card behind letters": "card4111111111111111",
    "a card between letters": "x4111111111111111y",
    "a card behind a name": "pan_4111111111111111",
    "a card behind a hyphen": "visa-4111111111111111",
    "blanks around the sign": "jane.doe @ example.com",
    "a blank before the sign": "jane.doe @example.com",
    "a name in quotes": "'jane doe'@example.com".replace("'", '"'),
    "an address as the domain": "jane.doe@[192.168.1.20]",
    "CSS's escapes": "jane.doe\\40 example.com",
    "CSS's long escapes": "jane.doe\\000040example.com",
    "base32hex": base64.b32hexencode(MAIL.encode()).decode(),
    "base32hex in small letters": base64.b32hexencode(MAIL.encode()).decode().lower().rstrip("="),
    "base64 cut by dots": ".".join(textwrap.wrap(base64.b64encode(MAIL.encode()).decode(), 8)),
    "base64 cut by commas": ", ".join(textwrap.wrap(base64.b64encode(MAIL.encode()).decode(), 6)),
    "zlib in entities": "".join(f"&#{c};" for c in zlib.compress(MAIL.encode())),
    "gzip in entities": "".join(f"&#x{c:x};" for c in gzip.compress(MAIL.encode())),
    "a card behind a sign of a URL within a URL": "https://a.example/?next=%2Fpay%3Fcard%3D4111111111111111",
    "a card behind a sign by percent, and another": "card%3D%34111111111111111",
    "a card in wide digits in quoted-printable": by_byte("={:02X}", WIDE_CARD.encode()),
    "a card in wide digits in escapes of bytes": by_byte("\\x{:02x}", WIDE_CARD.encode()),
    "a card in wide digits in octal escapes": by_byte("\\{:03o}", WIDE_CARD.encode()),
    "a card in wide digits in UTF-16 in hexadecimal": WIDE_CARD.encode("utf-16-be").hex(),
    "a card in wide digits in UTF-16 by percent": by_byte("%{:02X}", WIDE_CARD.encode("utf-16-le")),
    "a card in wide digits in UTF-16 in lines of base64": "\n".join(
        textwrap.wrap(base64.b64encode(WIDE_CARD.encode("utf-16")).decode(), 8)
    ),
    "a card in wide digits in hexadecimal glued to a digit": "d" + WIDE_CARD.encode().hex(),
    "nothing between in UTF-16 in hexadecimal": "\u200b".join(MAIL).encode("utf-16-le").hex(),
    "CSS's escapes by percent": by_byte("%{:02X}", b"jane.doe\\40 example.com"),
    "CSS's escapes in quoted-printable": "jane.doe=5C40 example.com",
    "a soft break in an entity": "jane.doe&#6=\n4;example.com",
    "escapes in UTF-16 by percent": by_byte("%{:02X}", "jane.doe\\u0040example.com".encode("utf-16-be")),
    "a password in a URL": "amqp://jane:hunter2@broker:5672",
    "a password in XML": "<password>hunter2</password>",
    "a password in Ruby": "'password' => 'hunter2'",
    "a password that begins as a word of JSON": "password=true-love",
    "a password in a list": "password: ['x7']",
}


@pytest.mark.parametrize("number", [4111111111111111, 4111111111111111.0])
def test_a_header_that_is_a_number_may_be_a_card(number: float) -> None:
    masked = Masker().document({"headers": {"card": number, "tries": 3, "ok": True, "none": None}})
    assert "4111" not in str(masked)
    assert masked["headers"] | {"card": ""} == {"card": "", "tries": 3, "ok": True, "none": None}


@each_row("how", SPELLED)
@each_row("around", ["{}", "seen {} there", "first\n{}\nlast", '{{"a": "{}",}}'])
def test_no_other_spelling_passes(how: str, around: str) -> None:
    text = around.format(SPELLED[how])
    masked = Masker().text(text)
    assert SPELLED[how] not in masked
    if around.startswith("first") and "\n" not in SPELLED[how]:
        assert masked.startswith("first\n")
        assert masked.endswith("\nlast")


SECRETS = [
    {"password": ["hush"]}, {"password": {"of jane": "hush"}}, {"a": {"x-api-key": "hush"}},
    {"secret": [["hush"], 7]},
    {"id_token": "hu\"sh"}, {"Authorization": [{"a": "hush"}]}, {"password": "hush", "token": None},
]  # fmt: skip


@pytest.mark.parametrize("secret", SECRETS)
def test_what_stands_by_the_name_of_a_secret_is_masked_whatever_its_shape(secret: dict[str, Any]) -> None:
    body = json.dumps(secret)
    document = {"headers": secret, "properties": secret, "body_text": body}
    masked = Masker().document(document)
    assert "hu" not in json.dumps(masked)
    assert "sh" not in json.dumps(masked)
    assert json.loads(masked["body_text"]).keys() == secret.keys()
    assert base64.b64encode(body.encode()).decode() not in Masker().text(
        f"seen {base64.b64encode(body.encode()).decode()}"
    )


LISTS = [
    "ports 4000,4001,4002,4003,4004,4005", "4111\n1111\n1111\n1111\n1111", "years 2020, 2021, 2022, 2023",
    "0.4111111111111111", "-4111111111111111 points", "a4111111111111111f", "at 2026-11-25 16:27:39,123",
    "2026/11/25 16:27:39", "id ORD4111111111111112", "[5672,5671,4369,25672]", "a.b @Override",
    "see http://shop.example/a:b@c", "http://shop.example:8080/a@b", "token count 512", "4.17.21 @ 1.2",
    "x @ 10.0.0.1",
]  # fmt: skip


@each_row("text", LISTS)
def test_numbers_in_lists_dates_and_digests_are_no_cards(text: str) -> None:
    masker = Masker()
    assert (masker.text(text), masker.withheld) == (text, 0)


@given(st.text(st.sampled_from('\\\ud800%&#x;udA4{}[]":,@. \n0123456789abcdefJANE=')) | st.text())
def test_no_text_ends_the_masking_and_masked_once_is_masked(text: str) -> None:
    masker = Masker([Mask(json="$.a")])
    once = masker.text(text)
    Masker().document({"headers": {text: text}, "body_text": text, text: [text]})
    assert masker._substituted(once) == masker._substituted(masker._substituted(once))


@pytest.mark.parametrize("text", [r"\ud800\x2541", "\ud800%41", "&#xd800;%41", r"\d800 %41"])
def test_half_a_surrogate_pair_in_a_spelling_ends_nothing(text: str) -> None:
    assert Masker().text(text) == text


@each_row(
    "torn",
    [
        '{"n": ' + "9" * 5000 + ', "card": {"number": "SECRET"}}',
        '{"a": "\t", "card": {"number": "SECRET"}}',
        '{"card": {"number": "SECRET"},}',
        '{"card": {"number": "SECRET"}} behind',
        'before {"card": {"number": "SECRET"}}',
        '{"card": {"number": "SECRET"}}{"b": 1}',
        '{"card": {"number": "SECRET"}, "card": 1}',
        '{"card": {"number": "SECRET", "number": 1}}',
        "{'card': {'number': 'SECRET'}}",
        "{card: {number: 'SECRET'}}",
        '[{"card": {"number": "SECRET"}}',
        '{"c\\u0061rd": {"numb\\u0065r": "SECRET"},}',
        '"{\\"card\\": {\\"number\\": \\"SECRET\\"},}"',
    ],
)
def test_no_oddity_of_json_hides_from_a_path(torn: str) -> None:
    masker = Masker([Mask(json="$.card.number")])
    for text in (torn, json.dumps({"inner": torn}), f"one\n{torn}\ntwo"):
        assert "SECRET" not in masker.text(text)
        assert b"SECRET" not in masker.body(text.encode())
    assert "SECRET" not in json.dumps(masker.document({"headers": {"h": torn}}))
    assert masker.withheld > 0


@each_row("name", ["dlq_replay_of", "dlq_replay_id", "record_id", "plan", "fingerprint"])
@each_row("value", ["4111111111111111", base64.b64encode(MAIL.encode()).decode().rstrip("=")])
def test_what_a_letter_calls_by_our_names_is_masked_as_all_else(name: str, value: str) -> None:
    assert value not in json.dumps(Masker().document({"headers": {name: value}, "properties": {name: value}}))


def test_names_inside_maps_are_masked_and_none_is_lost() -> None:
    plan = {"targets": {"queue:inbox.jane@example.com": 1, "queue:inbox.joe@example.com": 2}}
    assert Masker().document(plan) == {"targets": {"queue:[email]": 1, "queue:[email] (2)": 2}}


NAMES = [
    "com.shop.OrderServiceImplementation$$EnhancerBySpringCGLIB.handle(OrderServiceImplementation.java:42)",
    "01ARZ3NDEKTSV4RRFFQ69G5FAV", "550e8400-e29b-41d4-a716-446655440000", "/usr/lib/python3.11/site-packages",
    "ID:host-12345-1700000000000-3:1:1:1:1", "20261125T110359-a1b2c3", "x-first-death-exchange", "order%2017",
    "OAuth2TokenValidator", "github.com/shop/orders/v2", "Müller &amp; Söhne", r"C:\new\table",
]  # fmt: skip


@each_row("name", NAMES)
def test_names_are_no_base64(name: str) -> None:
    masker = Masker()
    assert (masker.text(f"at {name} there"), masker.withheld) == (f"at {name} there", 0)
