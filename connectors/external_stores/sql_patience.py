"""How long an SQL server is waited for, and how much it may answer.

One that says nothing would hold a command for ever, and one that never ends its answer take all memory: the
drivers gather what comes. Either counts as a connection that is lost.
"""

import os
import time
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from dlq.core.runtime import patience

LARGEST_ANSWER = 4 * 2**30
"""Bytes by which this process may grow meanwhile: a file of the archive may unpack to as much."""
_PAGE = os.sysconf("SC_PAGE_SIZE")
_PIECES = 64
"""Of an answer, between two looks at the memory."""
_LOST = 2013
"""MySQL's number for it, by which SQLAlchemy gives the connection up."""


def bound_answers(engine: sa.Engine, seconds: float) -> None:
    """Bound answers of this engine: one comes within so many seconds, or the connection is lost."""
    sa.event.listen(engine, "do_connect", _CONNECT[engine.dialect.name](seconds))


class _Answer:
    """What a server says to one question, from now on."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._until = seconds, time.monotonic() + seconds
        self._most = _resident() + LARGEST_ANSWER
        self._pieces = 0

    def fault(self) -> str:
        """Say at each piece why no more is taken; nothing where it may go on."""
        self._pieces += 1
        if time.monotonic() > self._until:
            return f"no whole answer came within {self._seconds:.0f} s"
        if self._pieces % _PIECES == 0 and _resident() > self._most:
            return f"its answer takes more than {LARGEST_ANSWER >> 20:,} MiB"
        return ""


def _resident() -> int:
    """Return bytes of memory that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE


def _to_postgresql(seconds: float) -> Callable[..., Any]:
    def connect(dialect: Any, _record: object, words: list[Any], options: dict[str, Any]) -> Any:
        class Patient(dialect.dbapi.Connection):  # type: ignore[misc]
            def wait(self, steps: Generator[Any, Any, Any], *words: Any, **options: Any) -> Any:
                return super().wait(_watch(steps, _Answer(seconds), self._give_up), *words, **options)

            def _give_up(self, why: str) -> None:
                self.pgconn.finish()
                raise dialect.dbapi.OperationalError(why)

        options.setdefault("connect_timeout", int(patience.SHORTLY))
        options["client_encoding"] = "utf8"  # texts of a database in SQL_ASCII would come as bytes
        return Patient.connect(*words, **options)

    return connect


def _watch(
    steps: Generator[Any, Any, Any], answer: _Answer, give_up: Callable[[str], None]
) -> Generator[Any, Any, Any]:
    """Yield the driver's steps of one answer; between them it waits, a tenth of a second at most."""
    told = None
    try:
        while True:
            told = yield steps.send(told)
            if why := answer.fault():
                give_up(why)
    except StopIteration as end:
        return end.value


def _to_mysql(seconds: float) -> Callable[..., Any]:
    def connect(dialect: Any, _record: object, words: list[Any], options: dict[str, Any]) -> Any:
        class Patient(dialect.dbapi.connections.Connection):  # type: ignore[misc]
            _answer = _Answer(seconds)

            def _execute_command(self, *words: Any) -> None:
                self._answer = _Answer(seconds)
                super()._execute_command(*words)

            def _read_packet(self, *words: Any) -> Any:
                is_gathered = self._result is None or not self._result.unbuffered_active
                if is_gathered and (why := self._answer.fault()):
                    self._force_close()
                    raise dialect.dbapi.OperationalError(_LOST, why)
                return super()._read_packet(*words)

        known = {"connect_timeout": int(patience.SHORTLY), "read_timeout": seconds, "write_timeout": seconds}
        return Patient(*words, **(known | options))

    return connect


_CONNECT: Mapping[str, Callable[[float], Callable[..., Any]]] = {
    "postgresql": _to_postgresql,
    "mysql": _to_mysql,
    "mariadb": _to_mysql,
}
