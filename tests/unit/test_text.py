"""What strangers wrote never steers the terminal."""

import json
import unicodedata

import pytest

from dlq.core.text import for_terminal, json_for_terminal, lines_for_terminal, shorten


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("\x1b[2Jgone", "\\x1b[2Jgone"),
        ("\x9b31m", "\\x9b31m"),
        ("a\nb\r\tc", "a\\nb\\r\\tc"),
        ("evil\u202egpj.exe", "evil\\u202egpj.exe"),
        ("lone \ud83d half", "lone \\ud83d half"),
        ("tag \U000e0041", "tag \\U000e0041"),
        ("Ünïcode ☕ 你好", "Ünïcode ☕ 你好"),
    ],
)
def test_control_characters_are_shown_as_escapes(hostile: str, shown: str) -> None:
    assert for_terminal(hostile) == shown


def test_no_control_or_surrogate_of_unicode_gets_through() -> None:
    every = "".join(
        c for c in map(chr, range(0x110000)) if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp")
    )

    assert for_terminal(every).encode("ascii").isascii()


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
