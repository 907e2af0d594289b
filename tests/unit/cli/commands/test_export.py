"""dlq export to a .zip: all that is known of some letters as one file."""

import json
import zipfile
from collections.abc import Callable, Mapping
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from support.archives import write_analysis
from support.builders import in_file, memory_sources, rows

from dlq.archive.storage.store import LocalStore
from dlq.cli.app import run
from dlq.connectors.memory import MemoryBroker

Dlq = Callable[..., Any]
ANALYSIS = "20260101T000000"
INCIDENT, OURS, OTHER = "ab" * 16, "cd" * 16, "ef" * 16
HOSTILE = "../../etc/passwd\n\x1b[31m jane@example.com"


@pytest.fixture
def dlq(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Dlq:
    monkeypatch.chdir(tmp_path)

    def call(*words: str, code: int = 0) -> Any:
        assert run(["-o", "json", *words]) == code
        out, err = capsys.readouterr()
        return json.loads(out) if out else err

    return call


@pytest.fixture
def ids(tmp_path: Path, dlq: Dlq) -> list[str]:
    """Two letters of an incident that were replayed with a second person's consent, and one beside them."""
    broker = MemoryBroker(f"{tmp_path}/broker.db")
    for queue in ("orders", "orders.dlq"):
        broker.declare(queue)
    died = {"broker_kind": "rabbitmq", "message_id": HOSTILE}
    broker.put("orders.dlq", *({**died, "body_text": HOSTILE * n} for n in range(1, 4)))
    sources = memory_sources(in_file(tmp_path), "orders", more="[replay]\napproval = true\n")
    (tmp_path / "dlq.toml").write_text(sources)
    dlq("pull", "--no-analyze")
    found = sorted(row["record_id"] for row in dlq("ls"))
    said = {"cause": "application_error", "advice": "replay"}
    ours = {"fingerprint": OURS, "incident_id": INCIDENT, **said}
    verdicts = [{"record_id": one, **ours} for one in found[:2]]
    verdicts.append({"record_id": found[2], "fingerprint": OTHER, **said})
    incident = {"incident_id": INCIDENT, "size": 2, "sources": ["orders"], "fingerprint": OURS}
    write_analysis(LocalStore(f"{tmp_path}/archive"), ANALYSIS, verdicts, incidents=[incident])
    dlq("failures", "note", OURS, HOSTILE, "--as", "ann")
    dlq("failures", "note", OTHER, "not ours", "--as", "ann")
    wanted = ("--incident", INCIDENT, "--to", "queue:orders", "--reason", HOSTILE, "--as", "ann")
    plan = dlq("replay", "plan", *wanted)["plan"]
    dlq("replay", "approve", plan, "--as", "bob")
    dlq("replay", "apply", plan)
    dlq("dismiss", found[2], "--reason", "not ours")
    return found


def read(path: Path) -> tuple[dict[str, Any], Mapping[str, list[dict[str, Any]]]]:
    """The manifest, which every other member equals, and their lines."""
    with zipfile.ZipFile(path) as bundle:
        content = {name: bundle.read(name) for name in bundle.namelist()}
    manifest = json.loads(content.pop("manifest.json"))
    assert manifest["files"] == [
        {"name": name, "lines": data.count(b"\n"), "bytes": len(data), "sha256": sha256(data).hexdigest()}
        for name, data in content.items()
    ]
    return manifest, {name.removesuffix(".jsonl"): rows(data.decode()) for name, data in content.items()}


def test_a_bundle_holds_all_that_is_known_of_an_incident(tmp_path: Path, dlq: Dlq, ids: list[str]) -> None:
    path = tmp_path / "incident.zip"
    assert dlq("export", "--incident", INCIDENT[:8], str(path)) == {"records": 2, "refused": 0}
    manifest, found = read(path)
    assert (manifest["format"], manifest["masked"], manifest["analysis"]) == (1, False, ANALYSIS)
    members = ["letters", "verdicts", "incidents", "planned", "plans", "replays", "audit", "segments"]
    assert list(found) == members
    assert sorted(row["record"]["record_id"] for row in found["letters"]) == ids[:2]
    assert [row["record_id"] for row in found["verdicts"]] == ids[:2]
    assert {row["replay_state"] for row in found["verdicts"]} == {"confirmed"}
    assert [row["incident_id"] for row in found["incidents"]] == [INCIDENT]
    assert sorted(row["record_id"] for row in found["planned"]) == ids[:2]
    [plan] = found["plans"]
    assert (plan["actor"], plan["reason"], len(plan["digest"])) == ("ann", HOSTILE, 64)
    sent = [(row["record_id"], row["state"]) for row in found["replays"]]
    assert sent == [(one, "confirmed") for one in ids[:2]]
    of_plan = [("plan", action, plan["digest"]) for action in ("plan", "approve", "apply")]
    said = [(row["about"], row["action"], row["value"]) for row in found["audit"]]
    assert said == [("failure", "note", ""), *of_plan]
    assert [row["rows"] for row in found["segments"]] == [3]


def test_the_same_letters_give_the_same_bytes_and_nobody_else_may_read_them(
    tmp_path: Path, dlq: Dlq, ids: list[str]
) -> None:
    first, second = tmp_path / "first.zip", tmp_path / "second.zip"
    for path in (first, second):
        dlq("export", "--failure", OURS, str(path))
    assert first.read_bytes() == second.read_bytes()
    assert first.stat().st_mode & 0o777 == 0o600


def test_a_masked_bundle_hides_what_letters_and_people_say_and_keeps_its_digests(
    tmp_path: Path, dlq: Dlq, ids: list[str]
) -> None:
    plain, masked = tmp_path / "plain.zip", tmp_path / "masked.zip"
    dlq("export", str(plain))
    dlq("export", "--mask", str(masked))
    (_, seen), (manifest, hidden) = read(plain), read(masked)
    assert manifest["masked"] is True
    assert "jane@example.com" in json.dumps(seen)
    assert "jane@example.com" not in json.dumps(hidden)
    for name, field in (("plans", "digest"), ("segments", "digest"), ("audit", "subject")):
        assert [row[field] for row in hidden[name]] == [row[field] for row in seen[name]]
    dlq("export", "--mask", "--where", "body_size > 0 or message_id = 'jane@example.com'", "some.zip")
    manifest, _ = read(tmp_path / "some.zip")
    assert "jane@example.com" not in manifest["letters"]
    assert manifest["letters"].startswith("--where ?")
    assert manifest["dlq"] == version("dlq")


def test_what_cannot_be_done_with_a_bundle_is_one_line(dlq: Dlq, ids: list[str]) -> None:
    dlq("export", "all.zip")
    said = dlq("import", "all.zip", code=2)
    assert said == "dlq: all.zip is a zip bundle: unzip it, then import its letters.jsonl\n"
    said = dlq("export", "missing/all.zip", code=2)
    assert said == "dlq: cannot write missing/all.zip: No such file or directory; name another file\n"
