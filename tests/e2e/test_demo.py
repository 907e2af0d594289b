"""The demo shows the whole way, and a second apply that sends nothing."""

from collections.abc import Callable
from typing import Any


def test_the_demo_goes_the_whole_way(dlq: Callable[..., Any]) -> None:
    done = dlq("demo", "--folder", "tour", "--no-color")
    assert done.code == 0, done.err
    for told in (
        "47",
        "application_error",
        "check_max_exceeded",
        "24 sent, 0 already in the ledger",
        "0 sent, 24 already in the ledger",
        "balanced",
        "No verdict differs.",
    ):
        assert told in done.out, told
    assert "\x1b" not in done.out
    assert dlq("-c", "tour/dlq.toml", "ls", "--where", "replay_state = 'confirmed'", "--limit", "0").code == 0


def test_the_demo_without_java_shows_the_step_that_it_leaves_out(dlq: Callable[..., Any]) -> None:
    done = dlq("demo", "--folder", "tour", "--no-color", JAVA_HOME="/nowhere")
    assert done.code == 0, done.err
    shown = " ".join(done.out.partition("balanced")[2].split())
    assert (
        "$ dlq analyze --engine spark Skipped, because Spark cannot run here: no java in JAVA_HOME" in shown
    )
    assert "install Java 17 or newer" in shown
    assert "No verdict differs." not in done.out
