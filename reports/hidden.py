"""What a text says beside what it shows: texts that it is an encoding of, layer by layer.

Looked into: base64 (also glued to other letters, wrapped into lines, and cut by dots and the like), base32 of
both alphabets, hexadecimal digits, percent encoding, HTML entities, quoted-printable, escapes of JSON, of
program text and of CSS, characters that look like others or like nothing, and UTF-16 within any of them.
"""

import base64
import html
import re
import unicodedata
import zlib
from collections.abc import Iterator
from functools import cache, lru_cache
from itertools import chain
from urllib.parse import unquote_to_bytes

from dlq.core.invisible import INVISIBLE

CLOSED = (b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18", b"BZh", b"\xfd7zXZ", b"PK\x03\x04", b"\x1f\x8b\x08")
"""How Zstandard, LZ4, bzip2, xz, zip and gzip begin."""
_MARK = re.compile(b"|".join(map(re.escape, CLOSED)))
_SHORTEST = 6
"""Characters of a text that is looked for in bytes: `a@b.de`."""
_RUN = re.compile(r"[A-Za-z0-9+/_-]+(?:\s+[A-Za-z0-9+/_-]+)*")
_CUT = re.compile(r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{2,}(?:\s?[.,:;|*~]\s?[A-Za-z0-9+/_-]{2,})+")
"""What may be one run, with something else than blanks between its parts."""
_NO_LETTER = re.compile(r"[^A-Za-z0-9+/_-]+")
TOKEN = re.compile(r"[A-Za-z0-9+/_-]{12,}={0,2}")
"""What may be base64."""
_URL_SAFE = str.maketrans("-_", "+/")
_HEX = re.compile(r"(?:(?:0x)?[0-9A-Fa-f]{1,2}(?:[ \t,:;-]|\r?\n)*){6,}")
_BETWEEN = re.compile(r"0x|[\s,:;-]")
_DIGITS = re.compile(r"(?:[0-9A-Fa-f]{2})+")
_BASE32 = re.compile(r"[A-Z2-7]{12,}(?:\s+[A-Z2-7]{2,})*|[a-z2-7]{12,}(?:\s+[a-z2-7]{12,})*")
_BASE32_HEX = re.compile(r"[0-9A-V]{12,}(?:\s+[0-9A-V]{2,})*|[0-9a-v]{12,}(?:\s+[0-9a-v]{12,})*")
_HEX_DIGITS = "0123456789ABCDEF"
_AS_BASE32 = str.maketrans("0123456789ABCDEFGHIJKLMNOPQRSTUV", "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567")
_ASCII = re.compile(rb"[\t\n\r\x20-\x7e]{6,}")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f\x7f-\x9f]")
_ODD = re.compile(r"\x1b\[[0-9;]*[A-Za-z]|[^\t\n\r\x20-\x7e]")
_HIGH = re.compile(r"[\x80-\xff]{2,}")
_UPPER = rb"[\x00-\x13\x17-\x1c\x20-\x31\xa6-\xab\xd8-\xdf\xfe\xff]"
_WIDE = (
    (re.compile(rb"(?:[\t\n\r\x20-\x7e]|[\xc2-\xf4][\x80-\xbf]{1,3}){6}"), (("utf-8", 0),)),
    (
        re.compile(rb"(?:" + _UPPER + rb"[\s\S]){5}" + _UPPER),
        (("utf-16-le", 0), ("utf-16-be", 0), ("utf-16-le", 1), ("utf-16-be", 1)),
    ),
)
"""What bytes have in which `_folding` may find something, and encodings, from which byte on. Of most bytes it
tells at once that there is nothing."""
_UNSEEN = re.compile(f"[{INVISIBLE}]")
_DOTS = dict.fromkeys("\u3002\uff61\u2024", ".")
_WIDE_PERCENT = re.compile(r"%u([0-9A-Fa-f]{4})")
_ENTITY = re.compile(r"&#(?:[xX]0*([0-9A-Fa-f]{1,2})|0*([0-9]{1,3}))(?![0-9A-Fa-f]);?")
"""Of a byte: browsers show some of these as other characters, and leave others out."""
_ENTITIES = re.compile(rf"(?:{_ENTITY.pattern}){{8,}}")
_CSS = re.compile(r"\\([0-9A-Fa-f]{1,6})[ \t\n]?")
_PRINTABLE = re.compile(r"=\r?\n|=([0-9A-Fa-f]{2})")
_ESCAPE = re.compile(
    r"\\(?:u([0-9A-Fa-f]{4})|u\{([0-9A-Fa-f]{1,6})\}|U([0-9A-Fa-f]{8})|x([0-9A-Fa-f]{2})|([0-7]{1,3})|(.))",
    re.DOTALL,
)
_NAMED = {"n": "\n", "r": "\r", "t": "\t"}
_WORD = re.compile(r"[A-Z]?[a-z]+\d*|[A-Z]+\d*|\d+")
_PARTS = re.compile(r"[-_/+]")
_SHORT_WORDS, _SHORTEST_PART = 3.25, 6
"""Letters that the words of a name have on average, at least; those of 24 in 25 random texts have fewer."""
_WORK = 8
"""How much longer than a text all that is within it may be: base64 in base64 and so on makes three times."""
_LEAST = 400
"""Letters as which a shorter one counts: it takes as long to be looked into."""


class Beyond(Exception):
    """There is more in it than is looked into."""


class Work:
    """How much may still be looked into of what is within a text, its words or its lines."""

    def __init__(self, text: str) -> None:
        self._left = _WORK * len(text) + 4096

    def take(self, inner: str) -> None:
        """Raises Beyond where more was within it than a text of its length has."""
        self._left -= max(len(inner), _LEAST)
        if self._left < 0:
            raise Beyond


def layers(text: str, work: Work) -> Iterator[str]:
    """The texts within a text, and within those. Raises Beyond."""
    waiting, known = [text], {text}
    while waiting:
        for inner in _decoded(waiting.pop()):
            if inner not in known:
                work.take(inner)
                known.add(inner)
                yield inner
                waiting.append(inner)


def _decoded(text: str) -> Iterator[str]:
    for plain in dict.fromkeys(_spelled_out(text)):
        if plain == text:
            continue
        data = plain.encode("latin-1", "replace")
        if _holds_packed(data):
            raise Beyond
        yield plain
        if wide := _wide_text_in(data):
            yield wide
    if "\\" in text and (styled := _CSS.sub(_of_css, text)) != text:
        yield styled
    for data in _bytes_in(text):
        if _begins_packed(data) or (_is_marked(data) and text_of(data) is None):
            raise Beyond
        if found := _text_in(data):
            yield found


def _spelled_out(text: str) -> Iterator[str]:
    """Without what is written in another way than it reads, step by step: what one step leaves may be
    something else for the next, as the sign in `card=4111` is the beginning of a byte in quoted-printable."""
    if not text.isascii() or "\x1b" in text or _CONTROL.search(text):
        text = _ODD.sub(lambda odd: _alike(odd[0]), text)
    whole = text
    if "&" in text:
        text = html.unescape(_ENTITY.sub(_of_entity, text))
    if "%" in text:
        text = _of_percent(text)
    yield text
    if "=" in text:
        text = _of_printable(text)
        yield text
    if "&" in whole and "=" in whole:  # a soft break within an entity
        yield _of_printable(_of_percent(whole))
    if "\\" in text:
        yield _as_utf8(_ESCAPE.sub(_unescaped, text))


def _of_percent(text: str) -> str:
    text = _WIDE_PERCENT.sub(lambda code: chr(int(code[1], 16)), text)
    return _decoded_bytes(unquote_to_bytes(text.encode("utf-8", "surrogatepass")))


def _of_printable(text: str) -> str:
    return _as_utf8(_PRINTABLE.sub(lambda code: bytes.fromhex(code[1] or "").decode("latin-1"), text))


def _as_utf8(text: str) -> str:
    """Runs of bytes that are characters of UTF-8 as those."""
    return text if text.isascii() else _HIGH.sub(lambda run: _decoded_bytes(run[0].encode("latin-1")), text)


def _decoded_bytes(data: bytes) -> str:
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _of_entity(entity: re.Match[str]) -> str:
    number = int(entity[1], 16) if entity[1] else int(entity[2])
    return chr(number) if number < 0x100 else entity[0]


def _of_css(escape: re.Match[str]) -> str:
    number = int(escape[1], 16)
    return chr(number) if number < 0x110000 else escape[0]


def _unescaped(escape: re.Match[str]) -> str:
    *codes, octal, other = escape.groups()
    if other is not None:
        return _NAMED.get(other, other)
    number = int(octal, 8) if octal else int("".join(filter(None, codes)), 16)
    return chr(number) if number < 0x110000 else escape[0]


@lru_cache(4096)
def _alike(odd: str) -> str:
    """The ASCII that a character looks like, nothing for one that nobody sees, else itself."""
    if len(odd) > 1 or unicodedata.category(odd) in ("Cc", "Cf") or _UNSEEN.match(odd):
        return ""
    if (digit := unicodedata.digit(odd, None)) is not None:
        return str(digit)
    if unicodedata.category(odd) == "Pd" or odd == "\u2212":
        return "-"
    folded = _DOTS.get(odd) or unicodedata.normalize("NFKC", odd)
    return folded if folded.isascii() else odd


def _bytes_in(text: str) -> Iterator[bytes]:
    for run in _RUN.finditer(text):
        joined = "".join(run[0].split())
        if len(joined) >= 8:
            yield from _readings(joined)
    for run in _ENTITIES.finditer(text):
        yield _ENTITY.sub(_of_entity, run[0]).encode("latin-1", "replace")
    for run in _CUT.finditer(text):
        yield from _readings(_NO_LETTER.sub("", run[0]))
    for run in _HEX.finditer(text):
        digits = _BETWEEN.sub("", run[0])
        yield from (bytes.fromhex(digits[start : start + (len(digits) - start) // 2 * 2]) for start in (0, 1))
    for run in _BASE32.finditer(text):
        yield from _readings_of_base32("".join(run[0].split()).upper())
    for run in _BASE32_HEX.finditer(text):
        letters = "".join(run[0].split()).upper()
        if letters.strip(_HEX_DIGITS):  # else a number, which was looked into
            yield from _readings_of_base32(letters.translate(_AS_BASE32))


def _readings_of_base32(letters: str) -> Iterator[bytes]:
    for start in range(min(8, len(letters))):
        yield _of_base32(letters[start:])


def _of_base32(letters: str) -> bytes:
    kept = letters[:-1] if len(letters) % 8 in (1, 3, 6) else letters
    return base64.b32decode(kept + "=" * (-len(kept) % 8))


def _readings(run: str) -> Iterator[bytes]:
    """Base64, whichever of its letters is the first: what stands before it may be glued to it."""
    run = run.translate(_URL_SAFE)
    for start in range(min(4, len(run))):
        rest = run[start:]
        kept = rest[:-1] if len(rest) % 4 == 1 else rest
        yield base64.b64decode(kept + "=" * (-len(kept) % 4))


def _text_in(data: bytes) -> str:
    """The text that bytes are, else the runs of letters in them."""
    if (text := text_of(data)) is not None:
        return text if len(text) >= _SHORTEST else ""
    narrow = data.replace(b"\0", b"")  # UTF-16 and UTF-32 have zeros between Latin letters
    return "\n".join([*(run[0].decode("ascii") for run in _ASCII.finditer(narrow)), *_wide_runs(data)])


def _wide_text_in(data: bytes) -> str:
    """What bytes say as UTF-16 or UTF-8, where they have some that no text has."""
    return "\n".join(_wide_runs(data)) if text_of(data) is None else ""


def _wide_runs(data: bytes) -> Iterator[str]:
    """Runs in bytes, wherever they begin, of letters that look like ASCII, or like nothing."""
    for may_be, encodings in _WIDE:
        for encoding, start in encodings if may_be.search(data) else ():
            runs = _folding().findall(data[start:].decode(encoding, "replace"))
            yield from (run for run in runs if not run.isascii())  # else the bytes themselves tell it


@cache
def _folding() -> re.Pattern[str]:
    """Some characters in a row that `_alike` leaves as ASCII, makes ASCII or takes away."""
    digits = "".join(filter(str.isdigit, map(chr, chain(range(0x80, 0xD800), range(0xE000, 0x10000)))))
    odd = rf"{re.escape(digits)}\uff01-\uff5e\u200b-\u200f\u2060-\u2064\u2010-\u2015\u2212\ufeff{INVISIBLE}"
    return re.compile(rf"[\t\n\r\x20-\x7e{odd}]{{{_SHORTEST},}}")


def text_of(data: bytes) -> str | None:
    """Bytes that are plain text in UTF-8."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return None if _CONTROL.search(text) else text


def is_read(token: str) -> bool:
    """Whether what looks like base64 is understood: as a name made of words or of digits, or as the text that
    it encodes. Nobody knows what else may be in it."""
    if _DIGITS.fullmatch(token):
        return not _begins_packed(bytes.fromhex(token))
    if token.upper() == token or token.lower() == token:
        return True
    data = [*_readings(token.rstrip("="))]
    if any(map(_begins_packed, data)) or _inflates(data[0], -15):
        return False
    return all(map(_is_name, _PARTS.split(token.rstrip("=")))) or text_of(data[0]) is not None


def _is_name(part: str) -> bool:
    """Of words in CamelCase, or all in one case."""
    one_case = part.upper() == part or part.lower() == part
    return one_case or len(part) < _SHORTEST_PART or len(part) >= _SHORT_WORDS * len(_WORD.findall(part))


def _begins_packed(data: bytes) -> bool:
    """Whether it is packed, perhaps behind some other bytes."""
    return any(data.startswith(CLOSED, at) or _inflates(data[at:], 15) for at in range(4))


def _holds_packed(data: bytes) -> bool:
    return _is_marked(data) or _begins_packed(data)


def _is_marked(data: bytes) -> bool:
    """Whether something packed may begin anywhere in it."""
    return _MARK.search(data) is not None


def _inflates(data: bytes, wbits: int) -> bool:
    """Whether it is a whole Deflate stream."""
    if len(data) < 8 or (wbits > 0 and not is_zlib(data)):
        return False
    stream = zlib.decompressobj(wbits=wbits)
    try:
        plain = stream.decompress(data, 1024)
    except zlib.error:
        return False
    return len(plain) == 1024 or (stream.eof and not stream.unused_data)


def is_zlib(data: bytes) -> bool:
    """Whether it begins as zlib does (RFC 1950): the method is 8, and both bytes are a multiple of 31."""
    return len(data) > 1 and data[0] & 0x8F == 8 and (data[0] << 8 | data[1]) % 31 == 0
