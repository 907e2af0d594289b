"""dlq replay approve: a plan that a second person has to see, and the table of who did what."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.builders import in_file, memory_sources

from dlq.cli.app import run
from dlq.connectors.memory import MemoryBroker


def test_a_plan_goes_back_with_consent_on_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broker = MemoryBroker(f"{tmp_path}/broker.db")
    for queue in ("orders", "orders.dlq"):
        broker.declare(queue)
    broker.put("orders.dlq", *({"broker_kind": "rabbitmq", "body_text": f"order {n}"} for n in range(3)))
    sources = memory_sources(in_file(tmp_path), "orders", more="[replay]\napproval = true\n")
    (tmp_path / "dlq.toml").write_text(f'archive = "{tmp_path}/archive"\n{sources}')

    def dlq(*words: str, code: int = 0) -> Any:
        assert run(["-c", f"{tmp_path}/dlq.toml", "-o", "json", *words]) == code
        out, err = capsys.readouterr()
        return json.loads(out) if out else err

    dlq("pull")
    one = dlq("ls")[0]["record_id"]
    dlq("dismiss", one, "--reason", "test traffic (mine)")
    wanted = ("--any-advice", "--to", "queue:orders", "--as", "ann@desk", "--reason", "mended")
    made = dlq("replay", "plan", *wanted)
    assert (made["actor"], made["reason"], made["selected"]) == ("ann@desk", "mended", 2)
    plan = made["plan"]
    assert f"another person has to run `dlq replay approve {plan}`" in dlq("replay", "apply", plan, code=2)
    assert "another person" in dlq("replay", "approve", plan, "--as", "ann@laptop", code=2)
    too_long = dlq("replay", "approve", plan, "--as", "bob", "--reason", "x" * 2_001, code=2)
    assert "at most 2,000 characters" in too_long
    assert broker.depth("orders") == 0
    assert dlq("replay", "approve", plan, "--as", "bob", "--reason", "seen")["approved_by"] == "bob"
    assert dlq("replay", "apply", plan)["sent"] == 2
    assert dlq("replay", "apply", plan)["sent"] == 0
    rows = dlq("query", "select about, subject, action, reason, actor from audit order by done_at")
    done = [("plan", "mended"), ("approve", "seen"), ("apply", ""), ("apply", "")]
    told = [("letter", one, "dismiss", "test traffic (mine)"), *(("plan", plan, *each) for each in done)]
    assert [(row["about"], row["subject"], row["action"], row["reason"]) for row in rows] == told
    assert all(row["actor"] for row in rows)
