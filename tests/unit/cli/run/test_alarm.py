"""The alarm of a run: a command that gets JSON, and that may fail as it likes."""

import json
import time
from pathlib import Path

from support.running import SECRET_BODY, Team


def test_the_alarm_gets_json_on_stdin_and_no_shell(team: Team, tmp_path: Path) -> None:
    hook = tmp_path / "notify team"
    hook.write_text('#!/bin/sh\n(printf %s "$1"; cat) > told\n')
    hook.chmod(0o700)
    bounds = '["total > 2", "unknown > 90%", "held > 0"]'
    team.profile(f'fail_on = {bounds}\non_alarm = ["{hook}", "$HOME;"]')
    team.put(4)
    done = team.run()
    assert done.code == 5
    assert done.json["alarms"] == ["total > 2: total is 4", "unknown > 90%: unknown is 100.0% (4 of 4)"]
    told = Path("told").read_text()
    assert told.startswith("$HOME;{")
    document = json.loads(told.removeprefix("$HOME;"))
    assert (document["profile"], document["alarms"], document["counts"]["unknown"]) == (
        "nightly",
        done.json["alarms"],
        4,
    )
    assert SECRET_BODY not in told


def test_an_alarm_that_hangs_is_killed_with_its_children(team: Team) -> None:
    hook = '["/bin/sh", "-c", "sleep 600 & echo $! > child; wait"]'
    team.profile(f'fail_on = ["total > 0"]\non_alarm = {hook}\nalarm_timeout = "5s"')
    team.put(1)
    started = time.monotonic()
    done = team.run()
    assert time.monotonic() - started < 60
    assert done.code == 5
    assert "on_alarm: /bin/sh did not end within 5s" in done.err
    until = time.monotonic() + 10
    while not is_dead(int(Path("child").read_text())):
        assert time.monotonic() < until
        time.sleep(0.05)


def is_dead(pid: int) -> bool:
    """Gone, or a zombie that init has not reaped yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_a_hook_that_is_not_there_is_one_line_and_the_alarm_stays(team: Team) -> None:
    team.profile('fail_on = ["total > 0"]\non_alarm = ["/nowhere/hook"]')
    team.put(1)
    done = team.run()
    assert done.code == 5
    assert "on_alarm: /nowhere/hook does not start: No such file" in done.err
