"""Import and export, both ways."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

Dlq = Callable[..., Any]
LETTERS = [
    {
        "broker_kind": "rabbitmq", "queue": "orders.dlq", "body_text": "{}",
        "headers": {"x-death": [{"count": 1, "reason": "rejected", "queue": "orders"}], "odd": 1.5},
    },
    {
        "broker_kind": "rabbitmq", "queue": "orders.dlq", "body_base64": "AAEC/w==",
        "published_at": "2026-11-02T03:12:09Z",
    },
    {
        "broker_kind": "activemq", "queue": "ActiveMQ.DLQ",
        "headers": {"message-id": "ID:a-1-2-3:1:1:1:1", "original-destination": "/queue/orders"},
    },
    {
        "broker_kind": "rocketmq", "topic": "%DLQ%pay", "headers": {"reconsumeTimes": 17},
        "properties": {"UNIQ_KEY": "7F", "KEYS": "17 o-17"},
    },
]  # fmt: skip
CAPTURE = ("captured_at", "pull_id", "mode", "source")


def write(path: Path, lines: list[Any]) -> str:
    text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return str(path)


def records(dlq: Dlq, source: str) -> list[dict[str, Any]]:
    sql = f"select * from records where source = '{source}' order by record_id"
    return [{k: v for k, v in row.items() if k not in CAPTURE} for row in dlq("query", sql).rows]


def test_export_then_import_is_the_identity_by_files_and_pipes(dlq: Dlq, tmp_path: Path) -> None:
    imported = dlq("import", write(tmp_path / "a.jsonl.gz", LETTERS))
    assert (imported.rows[0]["records"], imported.err) == (4, "")
    assert sorted(row["offset"] for row in records(dlq, "import")) == [1, 2, 3, 4], "numbers of lines"
    assert dlq("export", "b.jsonl.gz").rows == [{"records": 4, "refused": 0}]
    exported = dlq("export", "-").out
    assert dlq("import", "b.jsonl.gz", "--source", "again").code == 0
    assert dlq("import", "-", "--source", "piped", stdin=exported).rows[0]["records"] == 4
    assert records(dlq, "import") == records(dlq, "again") == records(dlq, "piped")


def test_letters_that_lie_under_two_sources_are_told_of(dlq: Dlq, tmp_path: Path) -> None:
    dlq("import", write(tmp_path / "a.jsonl", LETTERS))
    dlq("export", "b.jsonl")
    told = dlq("import", "b.jsonl", "--source", "again").err
    assert "4 of these letters lie in the archive under another source" in told


def test_importing_again_adds_nothing(dlq: Dlq, tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", LETTERS * 2)
    dlq("import", path)
    dlq("import", path)
    assert len(records(dlq, "import")) == 8


def test_a_line_with_the_id_of_a_letter_and_other_content_is_a_letter_of_its_own(
    dlq: Dlq, tmp_path: Path
) -> None:
    dlq("import", write(tmp_path / "a.jsonl", LETTERS))
    lines = [json.loads(line) for line in dlq("export", "-").out.splitlines()]
    edited = {**lines[0], "body_text": "edited"}
    edited.pop("body_base64", None)
    path = write(tmp_path / "b.jsonl", [*lines, edited, edited, {**edited, "headers": {"odd": "2"}}])
    done = dlq("import", path)
    assert (done.rows[0]["records"] - done.rows[0]["known"], len(records(dlq, "import"))) == (2, 6)
    assert "2 have ids of letters that the archive holds with other content" in done.err
    assert dlq("import", path).err == ""
    assert len(records(dlq, "import")) == 6
    assert len(dlq("import", path, "--source", "again").rows) == 1
    assert len(records(dlq, "again")) == 6


def test_bad_lines_are_named_and_good_ones_imported(dlq: Dlq, tmp_path: Path) -> None:
    letter = {"broker_kind": "rabbitmq"}
    bad = ["{", {"broker_kind": "pulsar"}, {**letter, "body_base64": "%"}, {**letter, "qeue": "x"}]
    done = dlq("import", write(tmp_path / "a.jsonl", [LETTERS[0], *bad, LETTERS[1]]))
    assert done.code == 3
    assert (done.rows[0]["records"], done.rows[0]["refused"]) == (2, 4)
    for number in (2, 3, 4, 5):
        assert f"line {number}:" in done.err
    assert "did you mean 'queue'" in done.err


FAILED = {
    "x-exception-message": "Read timed out",
    "x-exception-stacktrace": "java.io.IOException: Read timed out",
}


def counts(dlq: Dlq) -> dict[str, int]:
    """How many letters there are, by every way to ask."""
    report = dlq("report", "--format", "json").json
    parts = {
        part: sum(row["letters"] for row in report[part]) for part in ("sources", "causes", "fingerprints")
    }
    return {
        **{
            view: dlq("query", f"select count(*) n from {view}").rows[0]["n"]
            for view in ("records", "letters")
        },
        **parts,
        "report": report["letters"],
        "ls": len(dlq("ls", "--limit", "0").rows),
        "verify": sum(row["captured"] for row in dlq("verify", "-o", "json").json["sources"]),
        "export": dlq("export", "all.jsonl").rows[0]["records"],
    }


def test_a_letter_under_two_sources_counts_once_in_each_by_all_ways(dlq: Dlq, tmp_path: Path) -> None:
    letters = [
        {
            "broker_kind": "rabbitmq", "queue": "orders.dlq", "headers": FAILED, "message_id": f"m-{n}",
            "body_text": str(n), "dead_at": f"2026-11-02T03:{10 + n // 10}:{10 + n % 10}Z",
        }
        for n in range(40)
    ]  # fmt: skip
    path = write(tmp_path / "a.jsonl", letters)
    dlq("import", path, "--source", "one")
    dlq("export", "b.jsonl")
    dlq("import", "b.jsonl", "--source", "two")
    assert set(counts(dlq).values()) == {80}
    assert dlq("analyze").code == 0
    assert set(counts(dlq).values()) == {80}
    assert dlq("query", "select source, count(*) as n from verdicts group by 1 order by 1").rows == [
        {"source": "one", "n": 40},
        {"source": "two", "n": 40},
    ]
    [incident] = dlq("incidents", "-o", "json").json["incidents"]
    assert (incident["size"], incident["sources"]) == (80, ["one", "two"])
