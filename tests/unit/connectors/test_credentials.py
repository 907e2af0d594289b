"""Each connection asks for the password: one process for those of a moment, none kept that was refused."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.waiting import PATIENCE

from dlq.connectors.local import credentials
from dlq.core.errors import AccessDenied
from dlq.core.runtime import patience
from dlq.core.settings import Evidence


@pytest.fixture
def holder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Evidence:
    """Its command prints what lies in `token`; what it has printed is fresh for long."""
    monkeypatch.setattr(patience, "FRESH", PATIENCE)
    monkeypatch.chdir(tmp_path)
    Path("token").write_text("first")
    Path("calls").touch()
    command = ("sh", "-c", f"printf x >> {tmp_path}/calls; cat {tmp_path}/token")
    return Evidence("pay", "redis", "redis://h", password_command=command)


def asked() -> int:
    """How often the command was run."""
    return len(Path("calls").read_text())


def password(holder: Evidence) -> str | None:
    return credentials.password_of("evidence.pay", holder)


def test_connections_of_one_moment_are_one_process(holder: Evidence) -> None:
    with ThreadPoolExecutor(16) as threads:
        assert {*threads.map(lambda _n: password(holder), range(50))} == {"first"}
    assert asked() == 1


def test_a_later_connection_asks_again(holder: Evidence, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "FRESH", 0.0)
    assert [password(holder), password(holder), asked()] == ["first", "first", 2]


def test_what_was_kept_and_is_refused_is_asked_for_anew(holder: Evidence) -> None:
    def connect() -> str | None:
        if (secret := password(holder)) != "second":
            raise AccessDenied("run out")
        return secret

    assert password(holder) == "first"
    Path("token").write_text("second")
    assert credentials.log_in(holder, connect) == "second"
    assert asked() == 2


def test_what_was_just_asked_for_and_is_refused_is_refused(holder: Evidence) -> None:
    def connect() -> None:
        password(holder)
        raise AccessDenied("wrong")

    with pytest.raises(AccessDenied, match="wrong"):
        credentials.log_in(holder, connect)
    assert asked() == 1
    password(holder)
    assert asked() == 2, "what was refused serves no other connection"
