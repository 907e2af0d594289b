"""What a terminal gets: nothing of a letter that steers it, and no escapes for who wants none."""

import json
from pathlib import Path

import pytest
from support import preloaded
from support.terminals import converse

HOSTILE = "a\u2028b\x9b31mc\u202ed\x7fe\x1b[2Jf"
STEERING = ("\u2028", "\x9b", "\u202e", "\x7f", "\x1b")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("terminal")
    letter = {"broker_kind": "rabbitmq", "queue": "orders.dlq", "message_id": HOSTILE, "body_text": "x"}
    (folder / "a.jsonl").write_text(json.dumps(letter) + "\n")
    assert preloaded.run(["-q", "import", "a.jsonl"], folder).returncode == 0
    return folder


def on_a_terminal(folder: Path, *words: str, **environment: str) -> str:
    """What a terminal gets of the command, from both streams."""
    return converse(folder, words, TERM="xterm-256color", **environment)[1]


@pytest.mark.parametrize("output", ["json", "jsonl", "csv", "table"])
def test_nothing_in_a_letter_steers_the_terminal(folder: Path, output: str) -> None:
    seen = on_a_terminal(folder, "ls", "--columns", "message_id", "-o", output, NO_COLOR="1")
    assert "31mc" in seen
    assert not [character for character in STEERING if character in seen]


def test_json_is_the_same_on_a_terminal_and_in_a_pipe_and_keeps_every_character(folder: Path) -> None:
    words = ["ls", "--columns", "message_id", "-o", "jsonl"]
    piped = preloaded.run(words, folder).stdout
    assert on_a_terminal(folder, *words) == piped
    assert json.loads(piped) == {"message_id": HOSTILE}


def test_csv_in_a_pipe_steers_no_terminal_later_unless_it_is_wanted_raw(folder: Path) -> None:
    def piped(*words: str) -> str:
        return preloaded.run(["ls", "--columns", "message_id", "-o", "csv", *words], folder).stdout

    assert not [character for character in STEERING if character in piped()]
    assert HOSTILE in piped("--raw")


@pytest.mark.parametrize("words", [["ls"], ["--help"], ["import", "a.jsonl"]])
def test_who_wants_no_colour_gets_no_escape_sequence_at_all(folder: Path, words: list[str]) -> None:
    assert "\x1b" not in on_a_terminal(folder, *words, "--no-color")
    assert "\x1b" not in on_a_terminal(folder, *words, NO_COLOR="1")


def test_others_see_bold_headings(folder: Path) -> None:
    assert "\x1b[1m" in on_a_terminal(folder, "ls", NO_COLOR="")
