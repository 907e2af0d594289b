"""Masking: personal data and secrets taken out of everything that leaves (`--mask`).

Works on documents (what `export`, `show`, `report` and bundles write): every text in them is searched for
e-mail addresses, payment cards, tokens and phone numbers, and for the user's own `[[mask]]` rules. What is
shown was understood to the end: what is no plain text, or is the encoding of a text in which something is
found (`hidden`), is withheld and counted. What cannot be masked byte by byte (`raw_properties_base64`, a
binary block with lengths in it) is left out. No letter can end or stall it.
"""

import base64
import binascii
import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from dlq.core.masks import OF_HEADERS, compile_pattern, steps
from dlq.core.settings import Mask
from dlq.reports.hidden import CLOSED, TOKEN, Beyond, Work, is_read, is_zlib, layers, text_of
from dlq.reports.unpacking import members

_MOST_UNPACKED = 4 * 2**20
"""Bytes of one letter: the largest message that RocketMQ takes by default."""
_DEEPEST = 8
"""Layers around one body; no producer has been seen to make more than two."""
_GZIP = b"\x1f\x8b"
_WIDE: Sequence[tuple[str, bytes, slice]] = (
    ("utf-16-le", b"\xff\xfe", slice(1, None, 2)),
    ("utf-16-be", b"\xfe\xff", slice(0, None, 2)),
)
"""UTF-16, its mark, and where Latin letters have their zero bytes."""
_CONTROLS = re.compile(rb"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f\x7f-\x9f]")


def _wide(body: bytes) -> str | None:
    """Which UTF-16 a body is in: its mark says so, or the zero bytes of most of its letters."""
    for encoding, mark, high in _WIDE:
        zeros = body[high].count(0)
        if len(body) % 2 == 0 and (body.startswith(mark) or zeros > len(body) // 4 >= body.count(0) - zeros):
            return encoding
    return None


def _encoding_of(body: bytes) -> str | None:
    """How bytes are a plain text; None where they are none. Eight bits that are mostly ASCII are Latin."""
    if text_of(body) is not None:
        return "utf-8"
    if (encoding := _wide(body)) is not None:
        try:
            text = body.decode(encoding)
        except UnicodeDecodeError:
            return None
        return encoding if text_of(text.encode("utf-8")) is not None else None
    high = sum(map(body.count, range(0xA0, 0x100))) if len(body) < 1024 else len(body.translate(None, _ASCII))
    return "latin-1" if not _CONTROLS.search(body) and high <= len(body) // 4 else None


_ASCII = bytes(range(0x80))


_MASKED = "[masked]"


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
        value[key] = _MASKED
    return bool(keys)


_LEFT_OUT = ("raw_properties_base64", "raw_properties")
_OUR_IDS = {
    "record_id", "record_ids", "first_record_id", "real_record_id", "example", "fingerprint",
    "incident_id", "duplicate_group", "body_sha256", "pull_id",
    "plan", "analysis", "last",
}  # fmt: skip
_OUR_NAME = re.compile(r"[a-z][a-z0-9_]*")
_OF_STRANGERS = {
    "stripped", "targets", "target_brokers", "told_by_letters", "audience", "warnings", "still_queued",
    "brokers", "rows",
}  # fmt: skip
"""Of a plan, and of what SQL found: what has names that letters, brokers or people gave."""
_ID = re.compile(r"[0-9a-zT_-]+")
"""Digests and names of our own making: long runs of digits that no rule should spoil."""


def _passes_luhn(digits: str) -> bool:
    doubled = [int(d) * 2 for d in digits[-2::-2]]
    return (sum(map(int, digits[-1::-2])) + sum(d - 9 if d > 9 else d for d in doubled)) % 10 == 0


def _card(match: re.Match[str]) -> str:
    return "[card]" if _passes_luhn(re.sub(r"\D", "", match[0])) else match[0]


def _grouped_card(match: re.Match[str]) -> str:
    """Its groups are parted by the same signs, which part it from no other number: else it is a list."""
    parted = match[1] or match[2]
    before = match.string[max(0, match.start() - len(parted) - 1) : match.start()]
    behind = match.string[match.end() : match.end() + len(parted) + 1]
    is_of_list = (before[:1].isdigit() and before[1:] == parted) or (
        behind[-1:].isdigit() and behind[:-1] == parted
    )
    return match[0] if is_of_list else _card(match)


def _glued_card(match: re.Match[str]) -> str:
    """Behind or before letters, unless all of it may be a number in hexadecimal digits, as digests are."""
    before = match.string[max(0, match.start() - _NEAR) : match.start()]
    behind = match.string[match.end() : match.end() + _NEAR]
    around = re.split(r"[^\w-]", before)[-1] + re.split(r"[^\w-]", behind, maxsplit=1)[0]
    return _card(match) if _NO_HEX.search(around) else match[0]


_NEAR = 40
_NO_HEX = re.compile(r"[^0-9A-Fa-f-]")


def _phone(match: re.Match[str]) -> str:
    return "[phone]" if 8 <= sum(c.isdigit() for c in match[0]) <= 15 else match[0]


_CARD = "(?:2[2-7]|[3-6][0-9])[0-9]{2}"
"""How the numbers of cards begin, and years do not (ISO/IEC 7812, as their schemes use it)."""
_DOMAIN = r"(?:[\w-]+(?:\.[\w-]+)+|\[[\w.:]{3,45}\])"
_TELLS = r"(?:password|passwd|pwd|secret|api[_-]?key|access[_-]?key|token|authorization)"
_NO_VALUE = r"(?!\[(?:token|email|card|phone|masked|withheld)\b|(?:null|true|false)(?=[\s,;}\]&]|$))"
_SECRET_NAME = re.compile(rf"(?i){_TELLS}$")
_BUILT_IN: Sequence[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]] = (
    (re.compile(r"(://[^\s/:@\"]{0,64}:)(?!\[)[^\s/@\"]{1,200}@"), r"\1[token]@"),
    (re.compile(rf"(?<![\w.+'-])[\w.+'-]+(?:@|%40){_DOMAIN}"), "[email]"),
    (re.compile(rf"\"[\w.+' -]{{1,64}}\"(?:@|%40){_DOMAIN}"), "[email]"),
    (
        re.compile(
            r"(?<![\w.+'-])[\w.+'-]+(?:[ \t]{1,3}@[ \t]{0,3}|@[ \t]{1,3})"
            r"[\w-]+(?:\.[\w-]+)*\.[A-Za-z]{2,24}\b"
        ),
        "[email]",
    ),
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
        re.compile(rf"(?i)({_TELLS}['\"]?\s*(?:=>|[:=])\s*(?:[\[({{]\s?){{0,3}}['\"]){_NO_VALUE}[^'\"\\\n]+"),
        r"\1[token]",
    ),
    (
        re.compile(rf"(?i)({_TELLS}(?:['\"]?\s*(?:=>|[:=])|>)\s*['\"]?){_NO_VALUE}[^\s'\"&,;\\}}]{{3,}}"),
        r"\1[token]",
    ),
    (re.compile(rf"(?<![\w.-]){_CARD}(?:[ -]?\d){{8,15}}(?![\w-])"), _card),
    (re.compile(rf"(?<![\w.-]){_CARD}(?:[ ./_-]{{1,3}}\d{{2,6}}){{2,5}}(?![\w-])"), _card),
    (
        re.compile(
            rf"(?<!\d)(?:{_CARD}([\W_]{{1,3}})\d{{4}}\1\d{{4}}\1\d{{4}}(?:\1\d{{1,3}})?"
            r"|3[47]\d{2}([\W_]{1,3})\d{6}\2\d{5})(?!\d)"
        ),
        _grouped_card,
    ),
    (re.compile(rf"(?<![\d.])(?:{_CARD}\d{{12}}|3[47]\d{{13}})(?!\d|\.\d)"), _glued_card),
    (re.compile(r"(?<![\w.])\+\d(?:[ ()./-]{0,2}\d){7,14}(?!\w)"), _phone),
    (
        re.compile(r"(?<![\w.:+-])(?:\(\d{2,5}\)|0\d{1,4}|\d{3})[ ./-]\d{3,4}[ ./-]\d{3,6}(?![\w:.-]\w)"),
        _phone,
    ),
)
"""What leaves is searched for these, in order."""

WITHHELD = "[masked: withheld, because it is no plain text, or hides more than masking looks into]"
_HIDDEN = "[withheld]"
"""In the place of a word."""
_BEFORE_JSON = " \t\r\n\ufeff"


class Masker:
    """The built-in rules and the user's own, which the configuration has checked."""

    def __init__(self, rules: Sequence[Mask] = ()) -> None:
        self._headers = [rule.header.lower() for rule in rules if rule.header]
        self._paths = [steps(rule.json) for rule in rules if rule.json]
        names = [*map(re.escape, _last_names(self._paths))]
        self._members = [re.compile(rf"[\"'\\]{name}[\"'\\]") for name in names]
        self._bare = [re.compile(rf"\b{name}\s*:") for name in names]
        own = [(compile_pattern(rule.pattern), _MASKED) for rule in rules if rule.pattern]
        self._substitutions = [*own, *_BUILT_IN]
        self._left = _MOST_UNPACKED
        self.withheld = 0
        """Bodies, texts and words so far that were not understood to their end, and are not shown."""

    def document(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """A letter, or another JSON-able object, with everything masked; its shape stays, but for what is
        left out. Of one that nests too deep, only the ids and numbers stay."""
        self._left = _MOST_UNPACKED
        try:
            return self._document(document)
        except (RecursionError, MemoryError):
            self.withheld += 1
            return {name: value if _is_plain(name, value) else WITHHELD for name, value in document.items()}

    def _document(self, document: Mapping[str, Any]) -> dict[str, Any]:
        return _named(
            (self._name(name), value if name in _OUR_IDS and _is_id(value) else self._member(name, value))
            for name, value in document.items()
            if name not in _LEFT_OUT
        )

    def body(self, body: bytes) -> bytes:
        """A body with everything masked; gzip stays gzip, zlib zlib, UTF-16 UTF-16."""
        try:
            return self._body(body, 0)
        except Beyond:
            return self._withhold().encode()

    def _body(self, body: bytes, depth: int) -> bytes:
        """Raises Beyond."""
        if (plain := self._unpacked(body, depth)) is not None:
            masked = self._body(plain, depth + 1)
            return gzip.compress(masked, mtime=0) if body.startswith(_GZIP) else zlib.compress(masked)
        encoding = _encoding_of(body)
        if encoding is None or body.startswith(CLOSED):
            raise Beyond
        return self.text(body.decode(encoding)).encode(encoding, "backslashreplace")

    def _unpacked(self, body: bytes, depth: int) -> bytes | None:
        """What is in a body with so many layers around it; None when it is not packed, or a text that only
        begins so. Raises Beyond."""
        if not (body.startswith(_GZIP) or is_zlib(body)):
            return None
        plain = bytearray()
        try:
            for piece in members(body):
                plain += piece
                if depth >= _DEEPEST or len(plain) > self._left:
                    raise Beyond
        except zlib.error:
            return None
        self._left -= len(plain)
        return bytes(plain)

    def text(self, text: str) -> str:
        """A text with everything masked: as JSON when it is JSON, whole or line by line. What hides something
        is withheld."""
        try:
            masked = self._json(text)
        except RecursionError:
            return self._withhold()
        if masked is not None:
            return masked
        lines = text.split("\n")
        if len(lines) == 1 or not any(map(_may_be_json, lines)):
            return self._plain(text)
        return self._clear(self._substituted("\n".join(self._line(line) for line in lines)))

    def _line(self, line: str) -> str:
        masked = self._json(line) if _may_be_json(line) else None
        return self._plain(line) if masked is None else masked

    def _plain(self, text: str) -> str:
        """A text that is no JSON, so that no path leads to what it holds."""
        if any(member.search(text) for member in self._members) or self._is_like_json(text):
            return self._withhold()
        work = Work(text)
        return self._clear(TOKEN.sub(lambda word: self._word(word[0], work), self._substituted(text)))

    def _is_like_json(self, text: str) -> bool:
        """Whether a path would lead into it, if it were JSON: names may be bare, and a path may have none."""
        if text.lstrip(_BEFORE_JSON)[:1] not in ("[", "{"):
            return False
        return len(self._bare) < len(self._paths) or any(member.search(text) for member in self._bare)

    def _word(self, word: str, work: Work) -> str:
        if is_read(word) and not self._hides(word, work):
            return word
        self.withheld += 1
        return _HIDDEN

    def _clear(self, text: str) -> str:
        """The text without the lines that hide something; nothing of it where that lies in several."""
        if not self._hides(text):
            return text
        lines, work = text.split("\n"), Work(text)
        shown = "\n".join(_HIDDEN if self._hides(line, work) else line for line in lines)
        if len(lines) == 1 or self._hides(shown):
            return self._withhold()
        self.withheld += 1
        return shown

    def _hides(self, text: str, work: Work | None = None) -> bool:
        """Whether something is found in a text that this one is an encoding of."""
        try:
            return any(self._finds(inner) for inner in layers(text, work or Work(text)))
        except Beyond:
            return True

    def _finds(self, text: str) -> bool:
        return self._substituted(text) != text or any(member.search(text) for member in self._members)

    def _withhold(self) -> str:
        self.withheld += 1
        return WITHHELD

    def _json(self, text: str) -> str | None:
        """Masked as it reads without its escapes; the text itself where nothing was found. None: it is no
        JSON, or has two members of one name."""
        if not _may_be_json(text):
            return None
        try:
            value = json.loads(text.lstrip(_BEFORE_JSON), object_pairs_hook=_once)
        except ValueError:
            return None
        before = _dumped(value, text)
        for path in self._paths:
            _hide(value, path)
        after = _dumped(self._inside(value), text)
        return self._substituted(text if after == before else after)

    def _inside(self, value: Any) -> Any:
        if isinstance(value, dict):
            return _named(
                (self.text(name), self._secret(item) if _SECRET_NAME.search(name) else self._inside(item))
                for name, item in value.items()
            )
        if isinstance(value, list):
            return [self._inside(item) for item in value]
        return self.text(value) if isinstance(value, str) else value

    def _name(self, name: str) -> str:
        """Programs and pages look for the names that are ours: a pattern of the user's leaves them."""
        is_ours = _OUR_NAME.fullmatch(name) and not any(found.search(name) for found, _ in _BUILT_IN)
        return name if is_ours else self.text(name)

    def _member(self, name: str, value: Any) -> Any:
        if name in _OF_STRANGERS:
            return self._of_strangers(value)
        if name in ("headers", "properties") and isinstance(value, Mapping):
            return _named((self.text(header), self._header(header, item)) for header, item in value.items())
        if name.endswith("base64") and isinstance(value, str):
            return self._base64(value)
        if name in OF_HEADERS and value and self._is_masked(name):
            return [_MASKED] if _is_list(value) else _MASKED
        return self._value(value)

    def _of_strangers(self, value: Any) -> Any:
        """No name in it is ours, however deep."""
        if isinstance(value, Mapping):
            return _named(
                (self.text(name), item if _is_own_id(name, item) else self._of_strangers(item))
                for name, item in value.items()
            )
        return [self._of_strangers(one) for one in value] if _is_list(value) else self._value(value)

    def _value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return self._document(value)
        return [self._value(item) for item in value] if _is_list(value) else value

    def _header(self, name: str, value: Any) -> Any:
        if self._is_masked(name):
            return _MASKED
        if _SECRET_NAME.search(name):
            return self._secret(value)
        return self._member(name, value) if isinstance(value, str) else self._nested(value)

    def _is_masked(self, header: str) -> bool:
        return any(fnmatchcase(header.lower(), pattern) for pattern in self._headers)

    def _secret(self, value: Any) -> Any:
        """What stands by the name of a secret: its shape, and nothing that is in it but names."""
        if isinstance(value, dict):
            return _named((self.text(name), self._secret(item)) for name, item in value.items())
        if isinstance(value, list):
            return [self._secret(item) for item in value]
        return value if value in (None, "") or isinstance(value, bool) else "[token]"

    def _nested(self, value: Any) -> Any:
        """A header that is no text: masked like the JSON text that it was."""
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

    def _substituted(self, text: str) -> str:
        for pattern, replacement in self._substitutions:
            text = pattern.sub(replacement, text)
        return text


def describe_withheld(withheld: int) -> str:
    """How much was withheld, for people."""
    what = "1 place was" if withheld == 1 else f"{withheld} places were"
    return f"{what} withheld: no plain text, or more hidden than --mask looks into; without it all is there"


def _may_be_json(text: str) -> bool:
    return text.lstrip(_BEFORE_JSON)[:1] in ("{", "[", '"')


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Which of two members with one name counts is each reader's own choice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name comes twice")
    return found


def _named(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """A map whose names may have become equal."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        shown, number = name, 1
        while shown in found:
            number += 1
            shown = f"{name} ({number})"
        found[shown] = value
    return found


def _last_names(paths: Sequence[Sequence[str]]) -> list[str]:
    named = ([step for step in path if step != "*" and not step.isdigit()] for path in paths)
    return [names[-1] for names in named if names]


def _dumped(value: Any, like: str) -> str:
    """JSON without escapes and as tight as `like`, so that patterns find what they were written for."""
    separators = (", ", ": ") if '": ' in like else (",", ":")
    text = json.dumps(value, ensure_ascii=False, separators=separators)
    return text.encode("utf-8", "backslashreplace").decode()  # half a surrogate pair stays an escape


def _is_plain(name: str, value: Any) -> bool:
    return value is None or isinstance(value, int | float) or (name in _OUR_IDS and _is_id(value))


def _is_own_id(name: str, value: Any) -> bool:
    return name in _OUR_IDS and isinstance(value, str) and _is_id(value)


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _is_id(value: Any) -> bool:
    if _is_list(value):
        return all(_is_id(item) for item in value)
    return isinstance(value, str) and _ID.fullmatch(value) is not None
