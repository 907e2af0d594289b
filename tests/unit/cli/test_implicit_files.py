"""What nobody has named, and lies where a command happens to run, decides nothing unless it is one's own."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dlq.cli.app import run
from dlq.connectors.local.credentials import password_of
from dlq.connectors.local.ownership import why_foreign
from dlq.core.errors import ConfigError, UsageError
from dlq.core.settings import Ledger
from dlq.operations.programs import tell_program

SOMEBODY = 12_345
TEXT = "archive = 'a'\n"
Put = Callable[[Path, pytest.MonkeyPatch], object]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, below one of the caller's own, with a configuration of the caller's own."""
    place = tmp_path / "home"
    place.mkdir(mode=0o755)
    monkeypatch.chdir(place)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    monkeypatch.delenv("DLQ_CONFIG", raising=False)
    write(place / "dlq.toml")
    return place


def write(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(TEXT)
    path.chmod(0o644)
    return path


def give_away(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is somebody else's: really, where the tests run as root."""
    if os.geteuid() == 0:
        os.chown(path, SOMEBODY, SOMEBODY, follow_symlinks=False)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: SOMEBODY)


def link(target: str) -> Put:
    def make(home: Path, _monkeypatch: pytest.MonkeyPatch) -> None:
        write(home.parent / "open" / "real.toml")
        (home / "dlq.toml").unlink()
        (home / "dlq.toml").symlink_to(target)
        (home.parent / "open").chmod(0o777)

    return make


def link_of_somebody(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "dlq.toml").rename(home / "mine.toml")
    (home / "dlq.toml").symlink_to("mine.toml")
    give_away(home / "dlq.toml", monkeypatch)


def of_the_user(home: Path, _monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "dlq.toml").unlink()
    write(home.parent / "xdg" / "dlq" / "dlq.toml").parent.chmod(0o777)


PUT: dict[str, Put] = {
    "a file of somebody": lambda home, patch: give_away(home / "dlq.toml", patch),
    "a folder of somebody": give_away,
    "a file that all may write": lambda home, _: (home / "dlq.toml").chmod(0o666),
    "a file that a group may write": lambda home, _: (home / "dlq.toml").chmod(0o664),
    "a folder that all may write": lambda home, _: home.chmod(0o777),
    "a folder like /tmp": lambda home, _: home.chmod(0o1777),
    "a folder above that all may write": lambda home, _: home.parent.chmod(0o777),
    "a link of somebody": link_of_somebody,
    "a link to where all may write": link("../open/real.toml"),
    "a link by way of where all may write": link("../open/../open/real.toml"),
    "the user's own where all may write": of_the_user,
}


@pytest.mark.parametrize("put", PUT.values(), ids=PUT)
def test_a_configuration_that_may_be_anybody_s_is_used_only_by_its_name(
    home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], put: Put
) -> None:
    put(home, monkeypatch)
    if os.geteuid() != 0:  # a private group may write what is its user's
        monkeypatch.setattr("dlq.connectors.local.ownership._is_private", lambda *_: False)
    assert run(["rules"]) == 2
    said = capfd.readouterr().err
    named = said.rpartition("-c ")[2].strip()
    assert (said.count("\n"), Path(named).read_text()) == (1, TEXT)
    assert run(["rules", "-c", named]) == 0


def test_one_s_own_is_used_also_by_a_link_and_below_tmp(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home.parent.chmod(0o1777)
    (home / "dlq.toml").rename(home / "mine.toml")
    (home / "dlq.toml").symlink_to("../home/mine.toml")
    assert run(["rules"]) == 0
    assert why_foreign("dlq.toml") is None


def test_a_program_that_is_named_relatively_is_run_from_one_s_own_folder_alone(home: Path) -> None:
    program = home / "pass"
    program.write_text("#!/bin/sh\necho secret\n")
    program.chmod(0o755)
    ledger = Ledger(password_command=("./pass",))
    assert password_of("ledger", ledger) == "secret"
    home.chmod(0o1777)
    with pytest.raises(ConfigError, match=r"ledger\.password_command: \./pass is not run: others can write"):
        password_of("ledger", ledger)
    with pytest.raises((ConfigError, UsageError), match=r"\./pass is not run"):
        tell_program(("./pass",), {}, 30)


def test_python_imports_nothing_from_the_folder_where_it_is_started(home: Path) -> None:
    (home / "typer.py").write_text("print('typer of somebody')")
    started = [sys.executable, "-m", "dlq.cli", "--version"]
    done = subprocess.run(started, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("dlq ")
