"""Masking: personal data and secrets taken out of everything that leaves (`--mask`).

Works on documents (what `export`, `show` and `report` write): every text in them is searched for
e-mail addresses, payment cards, tokens and phone numbers, and for the user's own `[[mask]]` rules.
Text inside base64, at any depth, is masked too. What cannot be masked byte by byte
(`raw_properties_base64`, a binary block with lengths in it) is left out. No letter can end or stall it:
what packs more, or nests deeper, than is looked into is withheld.
"""

import base64
import binascii
import gzip
import json
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from dlq.core.masks import compiled, steps
from dlq.core.provenance import REPLAY_ID, REPLAY_OF
from dlq.core.settings import Mask

_PACKED: Sequence[tuple[bytes, int, Callable[[bytes], bytes]]] = (
    (b"\x1f\x8b", 31, lambda plain: gzip.compress(plain, mtime=0)),
    (b"\x78", 15, zlib.compress),  # RocketMQ's clients
)
CLOSED = (b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18", b"BZh", b"\xfd7zXZ", b"PK\x03\x04")
"""Zstandard, LZ4, bzip2, xz, zip: not looked into, so masked whole."""
MOST_UNPACKED = 4 * 2**20
"""Bytes: the largest message that RocketMQ takes by default. A search takes about half a second a MiB."""
DEEPEST = 4
"""Layers around one body, which is twice what any producer has been seen to make."""
_WIDE: Sequence[tuple[str, bytes, slice]] = (
    ("utf-16-le", b"\xff\xfe", slice(1, None, 2)),
    ("utf-16-be", b"\xfe\xff", slice(0, None, 2)),
)
"""UTF-16, its mark, and where Latin letters have their zero bytes."""


class Beyond(Exception):
    """A letter holds more than is unpacked of one, or packed more often."""


class Room:
    """What may still be unpacked of one letter: a few bytes can hold gigabytes, in any number of layers."""

    def __init__(self) -> None:
        self._left = MOST_UNPACKED

    def unpacked(self, body: bytes, layers: int) -> tuple[bytes, Callable[[bytes], bytes]] | None:
        """What is in a body with so many layers around it, and what packs it again; None when it is not
        packed. Raises Beyond."""
        for magic, wbits, pack in _PACKED:
            if body.startswith(magic) and (plain := self._inflated(body, wbits, layers)) is not None:
                return plain, pack
        return None

    def _inflated(self, body: bytes, wbits: int, layers: int) -> bytes | None:
        stream = zlib.decompressobj(wbits=wbits)
        try:
            plain = stream.decompress(body, self._left + 1)
        except zlib.error:
            return None
        if len(plain) > self._left or layers >= DEEPEST or not stream.eof:
            raise Beyond
        self._left -= len(plain)
        return plain


def wide(body: bytes) -> str | None:
    """Which UTF-16 a body is in: its mark says so, or the zero bytes of most of its letters."""
    for encoding, mark, high in _WIDE:
        zeros = body[high].count(0)
        if len(body) % 2 == 0 and (body.startswith(mark) or zeros > len(body) // 4 >= body.count(0) - zeros):
            return encoding
    return None


MASKED = "[masked]"


def hide(value: Any, path: Sequence[str]) -> bool:
    """Mask what `path` leads to inside `value`, in place; whether there was anything."""
    step, *rest = path
    if isinstance(value, list):
        keys: Sequence[Any] = [i for i in range(len(value)) if step in ("*", str(i))]
    elif isinstance(value, dict):
        keys = [name for name in value if step in ("*", name)]
    else:
        return False
    if rest:
        return sum(hide(value[key], rest) for key in keys) > 0
    for key in keys:
        value[key] = MASKED
    return bool(keys)


_LEFT_OUT = ("raw_properties_base64", "raw_properties")
_OUR_IDS = {
    "record_id", "record_ids", "first_record_id", "real_record_id", "example", "fingerprint",
    "former_fingerprint", "former_fingerprints", "incident_id", "duplicate_group", "body_sha256", "pull_id",
    "plan", "analysis",
}  # fmt: skip
_OUR_HEADERS = {REPLAY_ID, REPLAY_OF}
_ID = re.compile(r"[0-9A-Za-z_-]+")
"""Digests and names of our own making: long runs of digits that no rule should spoil."""
_ASCII_RUN = re.compile(rb"[\t\n\r\x20-\x7e]{6,}")
_WIDE_RUN = re.compile(rb"(?:[\t\n\r\x20-\x7e]\x00){6,}")


def _passes_luhn(digits: str) -> bool:
    doubled = [int(d) * 2 for d in digits[-2::-2]]
    return (sum(map(int, digits[-1::-2])) + sum(d - 9 if d > 9 else d for d in doubled)) % 10 == 0


def _card(match: re.Match[str]) -> str:
    return "[card]" if _passes_luhn(re.sub(r"\D", "", match[0])) else match[0]


def _phone(match: re.Match[str]) -> str:
    return "[phone]" if 8 <= sum(c.isdigit() for c in match[0]) <= 15 else match[0]


_BUILT_IN: Sequence[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]] = (
    (re.compile(r"(?<![\w.+'-])[\w.+'-]+(?:@|%40)[\w-]+(?:\.[\w-]+)+"), "[email]"),
    # JSON web tokens, bearer and basic credentials, keys of well-known clouds and forges.
    # (?!-eyJ): else each of many beginnings would be read to the end of the text.
    (re.compile(r"\beyJ(?:(?!-eyJ)[\w-]){5,}\.[\w-]+(?:\.[\w-]*)?"), "[token]"),
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/-]{8,}=*"), r"\1 [token]"),
    (re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"), "[token]"),
    (
        re.compile(r"\b(?:gh[pousr]_|github_pat_|glpat-|xox[abprs]-|[sr]k_(?:live|test)_|SG\.)[\w.-]{8,}"),
        "[token]",
    ),
    (
        re.compile(
            r"(?i)((?:password|passwd|pwd|secret|api[_-]?key|access[_-]?key|token|authorization)"
            r"['\"]?\s*[:=]\s*['\"]?)(?!\[)(?:[^\s'\"&,;\\}]{3,})"
        ),
        r"\1[token]",
    ),
    (re.compile(r"(?<![\w.-])[2-6]\d{3}(?:[ -]?\d){8,15}(?![\w-])"), _card),
    (re.compile(r"(?<![\w.])\+\d(?:[ ()./-]{0,2}\d){7,14}(?!\w)"), _phone),
    (
        re.compile(r"(?<![\w.:+-])(?:\(\d{2,5}\)|0\d{1,4}|\d{3})[ ./-]\d{3,4}[ ./-]\d{3,6}(?![\w:.-]\w)"),
        _phone,
    ),
)
"""What leaves is searched for these, in order."""

WITHHELD = "[masked: withheld, because it unpacks to more, or nests deeper, than masking looks into]"
_SHORTEST_JSON = 7
"""Characters: `{"a":1}`. A shorter line hides nothing, and a letter may have a million of them."""
_BEFORE_JSON = " \t\r\n\ufeff"
_BASE64 = re.compile(r"(?<![\w+/=-])[A-Za-z0-9+/_-]{16,}={0,2}(?![\w+/=])")


class Masker:
    """The built-in rules and the user's own, which the configuration has checked."""

    def __init__(self, rules: Sequence[Mask] = ()) -> None:
        self._headers = [rule.header.lower() for rule in rules if rule.header]
        self._paths = [steps(rule.json) for rule in rules if rule.json]
        own = [(compiled(rule.pattern), MASKED) for rule in rules if rule.pattern]
        self._substitutions = [*own, *_BUILT_IN]
        self._room = Room()
        self.withheld = 0
        """Bodies and letters so far that hold more than is looked into, so that it was withheld."""

    def document(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """A letter, or another JSON-able object, with everything masked; its shape stays, but for what is
        left out. Of one that nests too deep, only the ids and numbers stay."""
        self._room = Room()
        try:
            return self._document(document)
        except (RecursionError, MemoryError):
            self.withheld += 1
            return {name: value if _is_plain(name, value) else WITHHELD for name, value in document.items()}

    def _document(self, document: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: value if name in _OUR_IDS and _is_id(value) else self._member(name, value)
            for name, value in document.items()
            if name not in _LEFT_OUT
        }

    def text(self, text: str) -> str:
        """A text with everything masked: as JSON when it is JSON, and inside its base64."""
        return self._text(text, depth=2)

    def body(self, body: bytes) -> bytes:
        """A body with everything masked; gzip stays gzip, zlib zlib, UTF-16 UTF-16. Of other binary
        bodies only the runs of ASCII (also as UTF-16) are read, and JSON in any 8-bit encoding."""
        try:
            return self._body(body, layers=0)
        except Beyond:
            self.withheld += 1
            return WITHHELD.encode()

    def _body(self, body: bytes, layers: int) -> bytes:
        if body.startswith(CLOSED):
            return MASKED.encode()
        if packed := self._room.unpacked(body, layers):
            plain, pack = packed
            return pack(self._body(plain, layers + 1))
        encoding = wide(body) or "utf-8"
        try:
            masked = self.text(body.decode(encoding)).encode(encoding)
        except UnicodeError:
            return self._binary(body)
        return self._binary(masked) if b"\0" in masked else masked

    def _binary(self, body: bytes) -> bytes:
        if body.lstrip()[:1] in (b"{", b"["):
            body = self.text(body.decode("latin-1")).encode("latin-1", "backslashreplace")
        body = _WIDE_RUN.sub(lambda run: self._run(run[0], "utf-16-le"), body)
        return _ASCII_RUN.sub(lambda run: self._run(run[0], "ascii"), body)

    def _run(self, run: bytes, encoding: str) -> bytes:
        return self.text(run.decode(encoding)).encode(encoding, "backslashreplace")

    def _member(self, name: str, value: Any) -> Any:
        if name in ("headers", "properties") and isinstance(value, Mapping):
            return {self.text(header): self._header(header, item) for header, item in value.items()}
        if name.endswith("base64") and isinstance(value, str):
            return self._base64(value)
        return self._value(value)

    def _value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return self._document(value)
        if isinstance(value, list | tuple):
            return [self._value(item) for item in value]
        return value

    def _header(self, name: str, value: Any) -> Any:
        hidden = any(fnmatchcase(name.lower(), pattern) for pattern in self._headers)
        if name in _OUR_HEADERS and _is_id(value):
            return value
        if hidden:
            return MASKED
        return self._nested(value) if isinstance(value, Mapping | list | tuple) else self._member(name, value)

    def _nested(self, value: Any) -> Any:
        """A header that is an object or a list: masked like the JSON text that it was."""
        masked = self.text(json.dumps(value, ensure_ascii=False))
        try:
            return json.loads(masked)
        except ValueError:
            return masked

    def _base64(self, value: str) -> str:
        try:
            return base64.b64encode(self.body(base64.b64decode(value, validate=True))).decode()
        except binascii.Error:
            return self.text(value)

    def _text(self, text: str, depth: int) -> str:
        return self._json(text, depth) if self._is_worth_parsing(text) else self._plain(text, depth)

    def _is_worth_parsing(self, text: str) -> bool:
        """It may be JSON, in which a path or an escape hides what the text alone does not show."""
        return text.lstrip(_BEFORE_JSON)[:1] in ("{", "[", '"') and (bool(self._paths) or "\\" in text)

    def _plain(self, text: str, depth: int) -> str:
        masked = self._substituted(text)
        return _BASE64.sub(lambda match: self._inside(match[0], depth), masked) if depth else masked

    def _inside(self, token: str, depth: int) -> str:
        """Base64 in a text: encoded again when something in it had to be masked."""
        padded = token.rstrip("=") + "=" * (-len(token.rstrip("=")) % 4)
        for decode, encode in (
            (base64.b64decode, base64.b64encode),
            (base64.urlsafe_b64decode, base64.urlsafe_b64encode),
        ):
            try:
                plain = decode(padded.encode()).decode("utf-8")
            except ValueError:
                continue
            masked = self._text(plain, depth - 1)
            if masked != plain:
                return encode(masked.encode("utf-8")).decode()
        return token

    def _json(self, text: str, depth: int) -> str:
        """Masked as it reads without its escapes, too; the text itself is what it was without a find."""
        try:
            value = json.loads(text.lstrip(_BEFORE_JSON))
            before = _dumped(value, text)
            for path in self._paths:
                hide(value, path)
            after = _dumped(self._decoded(value, depth), text)
        except RecursionError:
            return MASKED
        except ValueError:
            return self._plain(self._json_lines(text, depth), depth)
        return self._plain(text if after == before else after, depth)

    def _json_lines(self, text: str, depth: int) -> str:
        """A text that is no JSON as a whole may have it in its lines."""
        lines = text.split("\n")
        if len(lines) == 1:
            return text
        return "\n".join(self._json(x, depth) if self._is_json_line(x) else x for x in lines)

    def _is_json_line(self, line: str) -> bool:
        return len(line) >= _SHORTEST_JSON and self._is_worth_parsing(line)

    def _decoded(self, value: Any, depth: int) -> Any:
        if isinstance(value, dict):
            return {self._text(name, depth): self._decoded(item, depth) for name, item in value.items()}
        if isinstance(value, list):
            return [self._decoded(item, depth) for item in value]
        return self._text(value, depth) if isinstance(value, str) else value

    def _substituted(self, text: str) -> str:
        for pattern, replacement in self._substitutions:
            text = pattern.sub(replacement, text)
        return text


def _dumped(value: Any, like: str) -> str:
    """JSON without escapes and as tight as `like`, so that patterns find what they were written for."""
    separators = (", ", ": ") if '": ' in like else (",", ":")
    text = json.dumps(value, ensure_ascii=False, separators=separators)
    return text.encode("utf-8", "backslashreplace").decode()  # half a surrogate pair stays an escape


def _is_plain(name: str, value: Any) -> bool:
    return value is None or isinstance(value, int | float) or (name in _OUR_IDS and _is_id(value))


def _is_id(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(_is_id(item) for item in value)
    return isinstance(value, str) and _ID.fullmatch(value) is not None
