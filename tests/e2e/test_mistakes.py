"""A user's mistake gets one clear line and the right exit code, never a traceback."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

BROKER = '[brokers.shop]\nkind = "rabbitmq"\nurl = "amqp://guest@127.0.0.1:1/"\npassword_env = "SECRET"\n'
SOURCE = '[sources.orders]\nbroker = "shop"\nqueue = "orders.dlq"\n'

CONFIGURATIONS = {
    "no TOML": ("[brokers", "dlq.toml"),
    "an unknown key": (BROKER.replace("url", "urll"), "did you mean 'url'"),
    "an unknown section": ("[broker.x]\n", "did you mean 'brokers'"),
    "an unknown kind": ('[brokers.x]\nkind = "rabitmq"\n', "did you mean 'rabbitmq'"),
    "an unknown broker": ('[sources.x]\nbroker = "nowhere"\nqueue = "q"\n', "nowhere"),
    "a queue and a group": (BROKER + SOURCE + 'group = "g"\n', "exactly one of"),
    "a bad key": (BROKER + SOURCE + 'key = "body:x"\n', "json:$.path"),
    "a bad duration": ('[ledger]\nlease = "soon"\n', "duration"),
    "a mask of before": ('[[mask]]\npattern = "x"\n', "[[mask]] is no longer read"),
    "a bad mask": ('[mask]\nshow = ["tenant"]\n', "mask.show: 'tenant' names nothing"),
    "a bad threshold": ('[profiles.x]\nfail_on = ["much"]\n', "profiles.x: fail_on 'much' is no threshold"),
    "a profile of no source": (BROKER + SOURCE + '[profiles.x]\nsources = ["bills"]\n', "no source matches"),
    "an empty archive name": ('archive = ""\n', "archive is empty"),
    "a number for a text": ("archive = 5\n", "archive must be text, not 5"),
    "a number for a table": ("[spark]\nconf = 5\n", "spark.conf must be a table, not 5"),
    "a bad name": ('[sources."../x"]\nbroker = "b"\nqueue = "q"\n', "letters, digits"),
}


def one_line(text: str) -> bool:
    return text.startswith("dlq: ") and len(text.splitlines()) == 1 and "Traceback" not in text


@pytest.mark.parametrize("mistake", CONFIGURATIONS)
def test_a_wrong_configuration_is_named_in_one_line(
    dlq: Callable[..., Any], tmp_path: Path, mistake: str
) -> None:
    text, expected = CONFIGURATIONS[mistake]
    (tmp_path / "dlq.toml").write_text(text)
    done = dlq("ls")
    assert done.code == 2
    assert one_line(done.err), done.err
    assert done.err.startswith("dlq: dlq.toml")
    assert expected in done.err


@pytest.mark.parametrize(("words", "expected"), [
    (["pull", "ordrs"], "did you mean 'orders'"),
    (["pull", "--mode", "move"], "copy or drain"),
    (["pull", "--max-time", "long"], "duration"),
    (["pull", "--limit", "x"], "limit"),
    (["nonsense"], "nonsense"),
    (["ls", "--where", "no_such = 1"], "no_such"),
    (["ls", "--where", "1 = 1; drop table x"], ""),
    (["show", "12345678"], "12345678"),
    (["query", "copy (select 1) to '/tmp/x'"], "SELECT"),
    (["query", "select * from read_csv('/etc/passwd')"], ""),
    (["import", "missing.jsonl"], "missing.jsonl"),
    (["ls", "-o", "xml"], "xml"),
    (["report", "-o", "csv"], "dlq ls -o csv"),
    (["ls", "--columns", ""], "--columns is empty"),
    (["ls", "--columns", ","], "unknown column ''"),
    (["ls", "-o"], "-o needs a value"),
    (["show"], "see dlq show --help"),
    (["demo", "--folder", "dlq.toml"], "dlq.toml is there already"),
    (["demo", "--folder", "/proc/x"], "--folder /proc/x: No such file or directory"),
    (["-c", "nowhere.toml", "pull"], "nowhere.toml"),
])  # fmt: skip
def test_a_wrong_call_is_named_in_one_line(
    dlq: Callable[..., Any], tmp_path: Path, words: list[str], expected: str
) -> None:
    (tmp_path / "dlq.toml").write_text(BROKER + SOURCE)
    done = dlq(*words)
    assert done.code == 2
    assert one_line(done.err), done.err
    assert expected in done.err


def test_a_broker_that_is_not_there_is_4(dlq: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "dlq.toml").write_text(BROKER + SOURCE)
    done = dlq("pull", SECRET="hush-hush")
    assert done.code == 4
    assert one_line(done.err), done.err
    assert "127.0.0.1:1" in done.err
    assert "hush-hush" not in done.err


@pytest.mark.parametrize("url", ["postgresql://dlq@127.0.0.1:1/dlq", "mysql://dlq@127.0.0.1:1/dlq"])
def test_a_ledger_whose_server_is_not_there_is_4(dlq: Callable[..., Any], tmp_path: Path, url: str) -> None:
    (tmp_path / "dlq.toml").write_text(f'[ledger]\nurl = "{url}"\n')
    done = dlq("ls")
    assert done.code == 4
    assert one_line(done.err), done.err
    assert "cannot be reached" in done.err


def test_a_password_variable_that_is_not_set_is_2(dlq: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "dlq.toml").write_text(BROKER + SOURCE)
    done = dlq("pull")
    assert done.code == 2
    assert "SECRET" in done.err


@pytest.mark.parametrize(("archive", "code", "expected"), [
    ("/proc/nowhere", 3, "cannot write analyses/ in the archive /proc/nowhere"),
    ("a.jsonl", 2, "archive = 'a.jsonl' is not a folder"),
    ("a.jsonl/below", 3, "Not a directory"),
    ("s3://", 2, "names no bucket"),
])  # fmt: skip
def test_an_archive_where_none_can_be_is_named(
    dlq: Callable[..., Any], tmp_path: Path, archive: str, code: int, expected: str
) -> None:
    (tmp_path / "dlq.toml").write_text(f'archive = "{archive}"\n')
    (tmp_path / "a.jsonl").write_text('{"broker_kind": "rabbitmq"}\n')
    done = dlq("import", "a.jsonl")
    assert done.code == code
    assert one_line(done.err), done.err
    assert expected in done.err


def test_an_empty_archive_is_said_to_be_empty(dlq: Callable[..., Any]) -> None:
    done = dlq("verify")
    assert (done.code, done.out) == (0, "")
    assert "archive is empty" in done.err


def test_common_options_stand_before_or_after_the_command(dlq: Callable[..., Any]) -> None:
    assert dlq("-o", "json", "rules").out == dlq("rules", "-o", "json").out
