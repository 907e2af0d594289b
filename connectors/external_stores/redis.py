"""What RocketMQDedupListener and shine-mq keep in Redis, read with SCAN: nothing blocks the server.

Layouts: RedisPersist.buildDedupMessageRedisKey of Jaskey/RocketMQDedupListener; RedisCoordinator and
MqConstant of 7le/shine-mq 2.2. Spring's default template writes Java-serialized strings, others JSON
or plain text: all three are read.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from dlq.connectors import deadline
from dlq.connectors.local.credentials import password_of
from dlq.core import clock
from dlq.core.errors import AccessDenied, BrokerError, ConfigError, Unreachable, UsageError
from dlq.core.runtime import patience
from dlq.core.settings import Evidence
from dlq.core.store_facts import Fact

if TYPE_CHECKING:
    from redis import Redis

_KEYS, _FIELDS = 1000, 100
"""How many a SCAN step looks at: a field of shine-mq holds a whole message."""
_JAVA_STRING = b"\xac\xed\x00\x05t"
_HASHES: Mapping[str, tuple[str, str]] = {
    "distributed_msg_prepare": ("work", "prepared"),
    "distributed_msg_ready": ("message", "ready"),
    "distributed_msg_rollback": ("message", "rolled_back"),
    "receive_retries": ("message", "retries"),
}
"""Hash of shine-mq -> what its fields are ids of, and what being in it means."""


def dedup(settings: Evidence) -> Iterator[Fact]:
    """Yield the consumption records of RocketMQDedupListener."""
    prefix = f"{settings.prefix or 'MSGDEDUP'}:"
    application = f"{settings.application}:" if settings.application else ""
    pattern = re.sub(r"([*?\[\]\\])", r"\\\1", prefix + application) + "*"
    with _connected(settings) as client:
        scan = partial(client.scan, match=pattern, count=_KEYS)
        for keys in _steps(f"evidence.{settings.name}", scan):
            if keys:
                yield from _records(client, keys, len(prefix.encode()))


def _steps(place: str, scan: Callable[[int], Any]) -> Iterator[Any]:
    """Yield what each step of a SCAN finds. A server says itself when it is the last one."""
    cursor, found = scan(0)
    yield found
    while cursor:
        deadline.check(place)
        cursor, found = scan(cursor)
        yield found


def _records(client: "Redis", keys: list[bytes], cut: int) -> Iterator[Fact]:
    asked = client.pipeline(transaction=False)
    asked.mget(keys)
    for key in keys:
        asked.pttl(key)
    states, *lives = asked.execute()
    moment = clock.now()
    for key, state, life in zip(keys, states, lives, strict=True):
        if state is not None:  # else it has expired since
            until = moment + life * 1000 if life >= 0 else None
            yield Fact(_text(key[cut:]), _text(state), until)


def shine(settings: Evidence) -> Iterator[Fact]:
    """Yield the hashes of shine-mq's coordinator, and its counters of failed deliveries."""
    with _connected(settings) as client:
        for name, (kind, state) in _HASHES.items():
            text = f"{settings.prefix or ''}{name}".encode()
            for key in (text, _JAVA_STRING + len(text).to_bytes(2) + text):
                for found in _steps(f"evidence.{settings.name}", partial(_fields, client, key)):
                    for field, value in found.items():
                        yield Fact(f"{kind}:{_text(field)}", state, None, _number(value))


def _fields(client: "Redis", key: bytes, cursor: int) -> Any:
    return client.hscan(key, cursor, count=_FIELDS)


def _text(stored: bytes) -> str:
    """Return a string, however Spring has written it."""
    if stored.startswith(_JAVA_STRING):
        stored = stored[len(_JAVA_STRING) + 2 :]
    elif len(stored) > 1 and stored[:1] == stored[-1:] == b'"':
        stored = stored[1:-1]
    return stored.decode("utf-8", "backslashreplace")


def _number(stored: bytes) -> int | None:
    """Return a counter (HINCRBYFLOAT writes 3 or 3.0); None for anything else, such as a message."""
    return int(float(stored)) if re.fullmatch(rb"\d{1,9}(\.\d{1,9})?", stored) else None


class _Login(NamedTuple):
    """What the client asks, by this method's name, at each connection that it makes."""

    user: str | None
    place: str
    settings: Evidence

    def get_credentials(self) -> tuple[str, ...]:
        """Return the user, if there is one, and the password."""
        secret = password_of(self.place, self.settings) or ""
        return (secret,) if self.user is None else (self.user, secret)


@contextmanager
def _connected(settings: Evidence) -> Iterator["Redis"]:
    place = f"evidence.{settings.name}"
    try:
        import redis
        from redis.backoff import ConstantBackoff
        from redis.retry import Retry
    except ImportError as error:
        raise UsageError(f"{place} needs the Redis client: pip install 'dlq[redis]'") from error
    options: dict[str, Any] = {"socket_timeout": patience.SHORTLY, "socket_connect_timeout": patience.SHORTLY}
    options["retry"] = Retry(ConstantBackoff(1), retries=2)
    try:
        client = redis.Redis.from_url(settings.url, **options)
    except ValueError as error:
        raise ConfigError(f"{place}.url: {error}") from error
    if password_of(place, settings):
        known = client.connection_pool.connection_kwargs
        known["credential_provider"] = _Login(known.pop("username", None), place, settings)
    try:
        with client:
            yield client
    except (redis.AuthenticationError, redis.exceptions.NoPermissionError) as error:
        raise AccessDenied(f"{place}: Redis refused: {error}") from error
    except (redis.ConnectionError, redis.TimeoutError) as error:
        raise Unreachable(f"{place}: Redis does not answer: {error}") from error
    except redis.RedisError as error:
        raise BrokerError(f"{place}: Redis failed: {error}") from error
