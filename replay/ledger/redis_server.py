"""Connecting to a Redis ledger, patience while it restarts, and what it promises to keep."""

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar
from urllib.parse import urlsplit

import redis
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, ReadOnlyError, RedisError, ResponseError
from redis.retry import Retry

from dlq.connectors.credentials import password_of
from dlq.core.errors import ArchiveError, ConfigError, LedgerUnreachable
from dlq.core.settings import Ledger
from dlq.replay.ledger.redis_scripts import FORGOTTEN

_PATIENCE_SECONDS = 60.0
"""How long a server may be away: a restart, not an outage."""
_LONGEST_PAUSE = 2.0
_CONNECT_SECONDS = 10
_ANSWER_SECONDS = 60

T = TypeVar("T")
_AWAY = (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError, redis.exceptions.NoPermissionError)


class Server:
    """A client, and work on it. Raises ArchiveError for whatever the server refuses."""

    def __init__(self, settings: Ledger) -> None:
        """Nothing is connected yet. Raises ConfigError."""
        self.client = _client(settings)
        self._shown = settings.url.partition("?")[0]

    def run(self, work: Callable[[Any], T], patient: bool = True) -> T:
        """`work` with the client; again from its start when the server went away."""
        until = time.monotonic() + (_PATIENCE_SECONDS if patient else 0.0)
        pause = 0.05
        while True:
            try:
                return work(self.client)
            except RedisError as error:
                if not _passes(error) or time.monotonic() > until:
                    raise self._failure(error) from error
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def warnings(self) -> Sequence[str]:
        """What the server, as it is set up, may forget of what it has confirmed."""
        try:
            found = {
                **self.run(lambda c: c.config_get("append*")),
                **self.run(lambda c: c.config_get("maxmemory*")),
            }
        except ArchiveError:
            return [f"the ledger {self._shown} does not show its settings; {_WANTED}"]
        return [f"the ledger {self._shown} {text}; {_WANTED}" for text in _weaknesses(found)]

    def _failure(self, error: RedisError) -> ArchiveError:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        if reason.startswith(FORGOTTEN):
            reason = "the server has lost the ledger that this run began with, so nothing more is sent"
        if isinstance(error, _AWAY):
            return LedgerUnreachable(
                f"the ledger {self._shown} cannot be reached, or denies access: {reason}"
            )
        return ArchiveError(f"the ledger {self._shown} failed: {reason}")


_WANTED = (
    "set appendonly yes, appendfsync always and maxmemory-policy noeviction, or letters may be sent twice"
)


def _weaknesses(found: dict[str, str]) -> list[str]:
    weak = []
    if found.get("appendonly") != "yes":
        weak.append("keeps nothing on disk: a restart forgets what was sent")
    elif found.get("appendfsync") != "always":
        weak.append("writes to disk later than it answers: a power cut forgets what was sent last")
    if found.get("maxmemory", "0") != "0" and found.get("maxmemory-policy") != "noeviction":
        weak.append("throws entries away when its memory is full")
    return weak


def _passes(error: RedisError) -> bool:
    """Whether this is a restart or a change of the master, and not a refusal."""
    away = not isinstance(error, ResponseError) and not isinstance(error, AuthenticationError)
    return away or isinstance(error, ReadOnlyError)


def _client(settings: Ledger) -> Any:
    if urlsplit(settings.url).password is not None:
        raise ConfigError(
            "ledger.url holds a password; put it into ledger.password_file, password_command or password_env"
        )
    try:
        return redis.Redis.from_url(
            settings.url,
            password=password_of("ledger", settings),
            decode_responses=True,
            encoding_errors="surrogateescape",
            socket_connect_timeout=_CONNECT_SECONDS,
            socket_timeout=_ANSWER_SECONDS,
            retry=Retry(NoBackoff(), 0),
        )
    except (ValueError, TypeError) as error:
        raise ConfigError(f"ledger.url: {error}; write it like redis://user@host:6379/0") from error
