"""`dlq import --from`: letters as they were printed."""

import gzip
import inspect
import json
import random
import zlib
from pathlib import Path
from typing import Any

import pytest
from support.builders import Dlq

from dlq.archive.storage.store import LocalStore
from dlq.cli.commands import import_
from dlq.connectors.jsonl.console_formats import printers
from dlq.core.brokers import resolve
from dlq.core.errors import ArchiveError


def got(**values: Any) -> str:
    message = {
        "payload_bytes": 1, "redelivered": False, "exchange": "", "routing_key": "q", "message_count": 0,
        "properties": {"headers": {"x-death": [{"reason": "expired", "queue": "q", "count": 1}]}},
        "payload": "x", "payload_encoding": "string",
    }  # fmt: skip
    return json.dumps(message | values)


def test_what_cannot_be_read_is_named_by_line_and_the_rest_is_imported_once(dlq: Dlq) -> None:
    hostile = got(payload_encoding="\x1b[2J")
    Path("answers.json").write_text(f"[{got()}, {got()}]\n[{got(payload_bytes=9)}]\n{hostile}")
    words = ("-o", "json", "import", "answers.json", "--from", "rabbitmq-management")
    code, out, err = dlq(*words)
    told = json.loads(out)
    assert (code, told["records"], told["refused"], told["causes"]) == (3, 2, 2, {"expired": 2})
    assert "answers.json: line 2: the payload is not whole: 1 bytes of 9" in err
    assert "\x1b" not in err
    assert json.loads(dlq(*words)[1])["known"] == 2


def test_a_file_of_which_nothing_could_be_archived_is_not_called_imported(
    dlq: Dlq, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("answers.json").write_text(got())
    words = ("-o", "json", "import", "answers.json", "--from", "rabbitmq-management")
    with monkeypatch.context() as patched:
        patched.setattr(LocalStore, "put", fail)
        code, out, err = dlq(*words)
    assert (code, json.loads(out)["records"]) == (3, 0)
    assert err == "dlq: answers.json: no room; run dlq verify\n"
    code, out, _err = dlq(*words)
    assert (code, json.loads(out)["records"]) == (0, 1)


def fail(*_: object) -> None:
    raise ArchiveError("no room")


def test_what_shells_write_is_read_packed_or_not(dlq: Dlq) -> None:
    for encoding in ("utf-16", "utf-8-sig"):
        Path("a.json.gz").write_bytes(gzip.compress(f"[\r\n{got()}\r\n]".encode(encoding)))
        assert dlq("import", "a.json.gz", "--from", "rabbitmqadmin")[0] == 0, encoding


def test_a_packed_file_with_a_wrong_byte_is_refused_in_a_line(dlq: Dlq) -> None:
    Path("good.json").write_text(got())
    dlq("import", "good.json", "--from", "rabbitmq-management")
    packed = bytearray(gzip.compress(bytes(random.Random(1).choices(b" \t\n", k=20_000))))
    packed[100] ^= 255
    Path("a.json.gz").write_bytes(packed)
    with pytest.raises(zlib.error):
        gzip.decompress(packed)
    for words in (
        ("import", "a.json.gz"), ("import", "a.json.gz", "--from", "rabbitmqadmin"),
        ("replay", "plan", "--edit", "a.json.gz"), ("analyze", "--client-log", "a.json.gz"),
    ):  # fmt: skip
        code, _, err = dlq(*words)
        assert (code, err.count("\n"), "a.json.gz" in err) == (2, 1, True), err


def test_an_unknown_printer_is_refused_with_those_there_are(dlq: Dlq) -> None:
    Path("a.json").write_text(got())
    code, _, err = dlq("import", "a.json", "--from", "rabbitmq-managment")
    assert (code, "did you mean 'rabbitmq-management'" in err) == (2, True)


def test_the_help_names_what_the_descriptions_name_and_each_has_a_reader() -> None:
    for name, reader in printers().items():
        assert name in import_.PRINTERS
        assert inspect.isfunction(resolve(reader))
