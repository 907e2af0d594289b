"""A user's mistake gets one clear line and the right exit code, never a traceback."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.rows import each_row

Dlq = Callable[..., Any]
BROKER = '[brokers.shop]\nkind = "rabbitmq"\nurl = "amqp://guest@127.0.0.1:1/"\npassword_env = "SECRET"\n'
SOURCE = '[sources.orders]\nbroker = "shop"\nqueue = "orders.dlq"\n'
SOUND = BROKER + SOURCE


@each_row(("text", "expected"), [
    ("[brokers", "dlq.toml"),
    (BROKER.replace("url", "urll"), "did you mean 'url'"),
    ("[broker.x]\n", "did you mean 'brokers'"),
    ('[brokers.x]\nkind = "rabitmq"\n', "did you mean 'rabbitmq'"),
    ('[sources.x]\nbroker = "nowhere"\nqueue = "q"\n', "'nowhere' is not configured; add it"),
    (SOUND + 'group = "g"\n', "exactly one of"),
    ('[[mask]]\npattern = "x"\n', "[[mask]] is no longer read"),
    ('[mask]\nshow = ["tenant"]\n', "mask.show: 'tenant' names nothing"),
    ('[profiles.x]\nfail_on = ["much"]\n', "profiles.x: fail_on 'much' is no threshold"),
    (SOUND + '[profiles.x]\nsources = ["bills"]\n', "no source matches"),
    ('archive = ""\n', "archive is empty"),
    ("archive = 5\n", "archive must be text, not 5"),
    ("[spark]\nconf = 5\n", "spark.conf must be a table, not 5"),
])  # fmt: skip
def test_a_wrong_configuration_is_named_in_one_line(
    dlq: Dlq, tmp_path: Path, text: str, expected: str
) -> None:
    (tmp_path / "dlq.toml").write_text(text)
    err = refused(dlq("ls"))
    assert err.startswith("dlq: dlq.toml")
    assert expected in err


@each_row(("words", "expected"), [
    ("pull ordrs", "did you mean 'orders'"),
    ("pull --mode move", "copy or drain"),
    ("pull --max-time long", "duration"),
    ("pull --limit x", "limit"),
    ("pull", "SECRET"),
    ("nonsense", "nonsense"),
    ("ls --where no_such=1", "no_such"),
    ("ls --where 1=1;drop", ""),
    ("show 12345678", "12345678"),
    (("query", "copy (select 1) to '/tmp/x'"), "SELECT"),
    (("query", "select * from read_csv('/etc/passwd')"), ""),
    ("import missing.jsonl", "missing.jsonl"),
    ("ls -o xml", "xml"),
    ("report -o csv", "dlq ls -o csv"),
    (("ls", "--columns", ""), "--columns is empty"),
    ("ls --columns ,", "unknown column ''"),
    ("ls -o", "-o needs a value"),
    ("show", "see dlq show --help"),
    ("demo --folder dlq.toml", "dlq.toml is there already"),
    ("demo --folder /proc/x", "--folder /proc/x: No such file or directory"),
    ("-c nowhere.toml pull", "nowhere.toml"),
])  # fmt: skip
def test_a_wrong_call_is_named_in_one_line(
    dlq: Dlq, tmp_path: Path, words: str | tuple[str, ...], expected: str
) -> None:
    (tmp_path / "dlq.toml").write_text(SOUND)
    assert expected in refused(dlq(*(words.split() if isinstance(words, str) else words)))


@each_row(("text", "words", "code", "expected"), [
    (SOUND, "pull", 4, "127.0.0.1:1"),
    ('[ledger]\nurl = "postgresql://dlq@127.0.0.1:1/dlq"\n', "ls", 4, "cannot be reached"),
    ('[ledger]\nurl = "mysql://dlq@127.0.0.1:1/dlq"\n', "ls", 4, "cannot be reached"),
    ('[ledger]\nurl = "oracle://dlq@db/dlq"\n', "replay status", 2,
     "'oracle' is unknown; known are sqlite, postgresql"),
    ('archive = "/proc/nowhere"\n', "import a.jsonl", 3,
     "cannot write analyses/ in the archive /proc/nowhere: No such file or directory; check its path"),
    ('archive = "a.jsonl"\n', "import a.jsonl", 2, "archive = 'a.jsonl' is not a folder"),
    ('archive = "a.jsonl/below"\n', "import a.jsonl", 3, "Not a directory"),
    ('archive = "s3://"\n', "import a.jsonl", 2, "names no bucket"),
])  # fmt: skip
def test_a_place_that_is_not_there_is_named_in_one_line(
    dlq: Dlq, tmp_path: Path, text: str, words: str, code: int, expected: str
) -> None:
    (tmp_path / "dlq.toml").write_text(text)
    (tmp_path / "a.jsonl").write_text('{"broker_kind": "rabbitmq"}\n')
    err = refused(dlq(*words.split(), SECRET="hush-hush"), code)
    assert expected in err
    assert "hush-hush" not in err


def refused(done: Any, code: int = 2) -> str:
    """What was said, which is one line."""
    said = str(done.err)
    assert done.code == code, (done.code, said)
    assert (said[:5], said.count("\n"), "Traceback" in said) == ("dlq: ", 1, False), said
    return said


def test_an_empty_archive_is_said_to_be_empty(dlq: Dlq) -> None:
    done = dlq("verify")
    assert (done.code, done.out) == (0, "")
    assert "archive is empty" in done.err


def test_common_options_stand_before_or_after_the_command(dlq: Dlq) -> None:
    assert dlq("-o", "json", "rules").out == dlq("rules", "-o", "json").out
