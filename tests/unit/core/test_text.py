"""What strangers wrote never steers the terminal."""

import json
import re
import unicodedata

import pytest
from support.rows import each_row

from dlq.core.text import for_terminal, json_for_terminal, lines_for_terminal, list_names, shorten


@each_row(("hostile", "shown"), [
    ("\x1b[2Jgone", "\\x1b[2Jgone"),
    ("\x9b31m", "\\x9b31m"),
    ("a\nb\r\tc", "a\\nb\\r\\tc"),
    ("evil\u202egpj.exe", "evil\\u202egpj.exe"),
    ("lone \ud83d half", "lone \\ud83d half"),
    ("tag \U000e0041", "tag \\U000e0041"),
    ("or\u00adders", "or\\xadders"),
    ("or\u200dders", "or\\u200dders"),
    ("or\U000e01efders", "or\\U000e01efders"),
    ("Ünïcode ☕ 你好", "Ünïcode ☕ 你好"),
])  # fmt: skip
def test_control_characters_are_shown_as_escapes(hostile: str, shown: str) -> None:
    assert for_terminal(hostile) == shown


VISIBLE = "\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd"
"""Signs of scripts that Unicode counts among its formats."""
IGNORABLE = (
    (0xAD, 0xAD), (0x34F, 0x34F), (0x61C, 0x61C), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F),
    (0x200B, 0x200F), (0x202A, 0x202E), (0x2060, 0x206F), (0x3164, 0x3164), (0xFE00, 0xFE0F),
    (0xFEFF, 0xFEFF), (0xFFA0, 0xFFA0), (0xFFF0, 0xFFF8), (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A),
    (0xE0000, 0xE0FFF),
)  # fmt: skip
"""Default_Ignorable_Code_Point of Unicode's DerivedCoreProperties."""


def test_nothing_that_nobody_sees_gets_through_between_letters() -> None:
    every = [*map(chr, range(0x110000))]
    controls = "".join(c for c in every if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp"))
    assert for_terminal(controls).encode("ascii").isascii()
    formats = {c for c in every if unicodedata.category(c) == "Cf"}
    ignorable = {chr(code) for first, last in IGNORABLE for code in range(first, last + 1)}
    seen = {c for c in formats if re.match(f"[{VISIBLE}]", c)}
    for character in sorted((formats - seen) | ignorable | {"\u2800", "\U0001d159"}):
        assert character not in for_terminal(f"or{character}ders"), hex(ord(character))
        assert character not in json_for_terminal(f'"or{character}ders"'), hex(ord(character))


def test_lines_keep_their_borders_and_lose_their_controls() -> None:
    assert lines_for_terminal("a\n\tb\x07\r\nc") == ["a", "    b\\x07", "c"]


def test_shortening_marks_the_cut() -> None:
    assert shorten("abcdef", 4) == "abc…"
    assert shorten("abcd", 4) == "abcd"


@pytest.mark.parametrize(
    "hostile", ["\x1b[2J", "\x9b31m", "\x7f", "a\u2028b", "a\u202eb", "\U000e0041", "\ud83d"]
)
def test_json_is_escaped_to_the_same_value(hostile: str) -> None:
    shown = json_for_terminal(json.dumps([hostile, "Ü ☕"], ensure_ascii=False, indent=2))
    assert json.loads(shown) == [hostile, "Ü ☕"]
    assert for_terminal(shown) == shown.replace("\n", "\\n")


NEEDED = {
    "a family": "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "a rainbow flag": "\U0001f3f3\ufe0f\u200d\U0001f308",
    "a red heart": "\u2764\ufe0f",
    "a keycap": "1\ufe0f\u20e3",
    "Persian": "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
    "Sinhala": "\u0dc1\u0dca\u200d\u0dbb\u0dd3",
    "a variant of Han": "\u845b\U000e0101",
    "old Hangul": "\u115f\u1161",
    "braille": "\u2813\u2800\u2811",
    "hieroglyphs": "\U00013000\U00013431\U00013001",
}


@each_row("what", NEEDED)
def test_invisible_characters_stay_where_a_script_or_an_emoji_needs_them(what: str) -> None:
    text = NEEDED[what]
    assert for_terminal(text) == text
    assert json_for_terminal(f'"{text}"') == f'"{text}"'


@pytest.mark.parametrize(
    "text", ["\u0645\u200c\u200c\u062e", "1\ufe0f", "\u2764\ufe0f\ufe0f", "a\u200d\U0001f467"]
)
def test_invisible_characters_beyond_what_is_needed_are_escaped(text: str) -> None:
    assert "\\u" in for_terminal(text)
    assert json.loads(json_for_terminal(json.dumps(text, ensure_ascii=False))) == text
    assert "\\u" in json_for_terminal(json.dumps(text, ensure_ascii=False))


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ([], ""), (["a"], "a"), (["a", "b"], "a and b"), (["a", "b", "c"], "a, b and c"),
        (["a", "b", "c", "d", "e"], "a, b, c and 2 more"),
    ],
)  # fmt: skip
def test_a_list_of_names_reads_as_a_sentence(names: list[str], said: str) -> None:
    assert list_names(names) == said
