"""Masking: personal data and secrets taken out of everything that leaves (`--mask`).

Works on documents (what `export`, `show` and `report` write): every text in them is searched for
e-mail addresses, payment cards, tokens and phone numbers, and for the user's own `[[mask]]` rules.
Text inside base64, at any depth, is masked too. What cannot be masked byte by byte
(`raw_properties_base64`, a binary block with lengths in it) is left out.
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

from dlq.core.errors import ConfigError
from dlq.core.settings import Mask

MASKED = "[masked]"
_LEFT_OUT = ("raw_properties_base64", "raw_properties")
_OUR_IDS = {
    "record_id", "record_ids", "first_record_id", "real_record_id", "example", "fingerprint", "incident_id",
    "duplicate_group", "body_sha256", "pull_id", "plan", "analysis",
}  # fmt: skip
_OUR_HEADERS = {"dlq_replay_id", "dlq_replay_of"}
_ID = re.compile(r"[0-9A-Za-z_-]+")
"""Digests and names of our own making: long runs of digits that no rule should spoil."""
_PACKED: Sequence[tuple[bytes, int, Callable[[bytes], bytes]]] = (
    (b"\x1f\x8b", 31, lambda plain: gzip.compress(plain, mtime=0)),
    (b"\x78", 15, zlib.compress),  # RocketMQ's clients
)
_CLOSED = (b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18", b"BZh", b"\xfd7zXZ", b"PK\x03\x04")
"""Zstandard, LZ4, bzip2, xz, zip: not looked into, so masked whole."""
_LARGEST_INFLATED = 64 * 2**20

_ASCII_RUN = re.compile(rb"[\t\n\r\x20-\x7e]{6,}")


def _passes_luhn(digits: str) -> bool:
    doubled = [int(d) * 2 for d in digits[-2::-2]]
    return (sum(map(int, digits[-1::-2])) + sum(d - 9 if d > 9 else d for d in doubled)) % 10 == 0


def _card(match: re.Match[str]) -> str:
    return "[card]" if _passes_luhn(re.sub(r"\D", "", match[0])) else match[0]


def _phone(match: re.Match[str]) -> str:
    return "[phone]" if 8 <= sum(c.isdigit() for c in match[0]) <= 15 else match[0]


_BUILT_IN: Sequence[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]] = (
    (re.compile(r"[\w.+'-]+(?:@|%40)[\w-]+(?:\.[\w-]+)+"), "[email]"),
    # JSON web tokens, bearer and basic credentials, keys of well-known clouds and forges.
    (re.compile(r"\beyJ[\w-]{5,}\.[\w-]+(?:\.[\w-]*)?"), "[token]"),
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/-]{8,}=*"), r"\1 [token]"),
    (re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"), "[token]"),
    (
        re.compile(r"\b(?:gh[pousr]_|github_pat_|glpat-|xox[abprs]-|[sr]k_(?:live|test)_|SG\.)[\w.-]{8,}"),
        "[token]",
    ),
    (
        re.compile(
            r"(?i)((?:password|passwd|pwd|secret|api[_-]?key|access[_-]?key|(?:\w+[_-])?token|authorization)"
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

_BASE64 = re.compile(r"(?<![\w+/=-])[A-Za-z0-9+/_-]{16,}={0,2}(?![\w+/=])")


class Masker:
    """The built-in rules and the user's own. Raises ConfigError for a rule that says nothing."""

    def __init__(self, rules: Sequence[Mask] = ()) -> None:
        self._headers = [rule.header.lower() for rule in rules if rule.header]
        self._paths = [_steps(rule.json) for rule in rules if rule.json]
        own = [(_compiled(rule.pattern), MASKED) for rule in rules if rule.pattern]
        self._substitutions = [*own, *_BUILT_IN]
        for place, rule in enumerate(rules):
            if sum(value is not None for value in (rule.header, rule.json, rule.pattern)) != 1:
                raise ConfigError(f"[[mask]] number {place + 1} needs exactly one of header, json, pattern")

    def document(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """A JSON-able object with everything masked; its shape stays, but for what is left out."""
        return {
            name: value if name in _OUR_IDS and _is_id(value) else self._member(name, value)
            for name, value in document.items()
            if name not in _LEFT_OUT
        }

    def text(self, text: str) -> str:
        """A text with everything masked: as JSON when it is JSON, and inside its base64."""
        return self._text(text, depth=2)

    def body(self, body: bytes) -> bytes:
        """A body with everything masked; gzip stays gzip, zlib stays zlib. Of other binary bodies only the
        runs of ASCII are read."""
        if body.startswith(_CLOSED):
            return MASKED.encode()
        for magic, wbits, pack in _PACKED:
            if body.startswith(magic) and (plain := _inflated(body, wbits)) is not None:
                return pack(self.body(plain))
        try:
            return self.text(body.decode("utf-8")).encode("utf-8")
        except UnicodeError:
            return _ASCII_RUN.sub(lambda run: self.text(run[0].decode("ascii")).encode(), body)

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
            return self.document(value)
        if isinstance(value, list | tuple):
            return [self._value(item) for item in value]
        return value

    def _header(self, name: str, value: Any) -> Any:
        hidden = any(fnmatchcase(name.lower(), pattern) for pattern in self._headers)
        if name in _OUR_HEADERS and _is_id(value):
            return value
        return MASKED if hidden else self._member(name, value)

    def _base64(self, value: str) -> str:
        try:
            return base64.b64encode(self.body(base64.b64decode(value, validate=True))).decode()
        except binascii.Error:
            return self.text(value)

    def _text(self, text: str, depth: int) -> str:
        if self._paths and text.lstrip()[:1] in ("{", "["):
            text = self._json(text)
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

    def _json(self, text: str) -> str:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return text
        found = sum(_hide(value, path) for path in self._paths)
        return json.dumps(value, ensure_ascii=False) if found else text

    def _substituted(self, text: str) -> str:
        for pattern, replacement in self._substitutions:
            text = pattern.sub(replacement, text)
        return text


def _is_id(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(_is_id(item) for item in value)
    return isinstance(value, str) and _ID.fullmatch(value) is not None


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ConfigError(f"[[mask]] pattern = {pattern!r} is no regular expression: {error}") from error


_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+|\*)\]|\['([^']+)'\]")


def _steps(path: str) -> list[str]:
    """`$.card.number`, `$.items[*].email`: names and indices; `*` is every member."""
    rest = path.removeprefix("$")
    steps = [match[1] or match[2] or match[3] for match in _STEP.finditer(rest)]
    if not path.startswith("$") or not steps or "".join(match[0] for match in _STEP.finditer(rest)) != rest:
        raise ConfigError(
            f"[[mask]] json = {path!r} is no path; write it like $.card.number or $.items[*].email"
        )
    return steps


def _hide(value: Any, path: Sequence[str]) -> bool:
    """Mask what `path` leads to inside `value`, in place; whether there was anything."""
    step, *rest = path
    if isinstance(value, list):
        keys: Sequence[Any] = [i for i in range(len(value)) if step in ("*", str(i))]
    elif isinstance(value, dict):
        keys = [name for name in value if step in ("*", name)]
    else:
        return False
    if rest:
        return sum(_hide(value[key], rest) for key in keys) > 0
    for key in keys:
        value[key] = MASKED
    return bool(keys)


def _inflated(body: bytes, wbits: int) -> bytes | None:
    """The unpacked body; None when it is not packed after all. What is too large is masked whole."""
    stream = zlib.decompressobj(wbits=wbits)
    try:
        plain = stream.decompress(body, _LARGEST_INFLATED)
    except zlib.error:
        return None
    return plain if stream.eof else MASKED.encode()
