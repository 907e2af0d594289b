"""The ledger in Redis: the same promises as in SQL, kept by Lua scripts.

What a script writes is one entry of Redis' append-only file: with `appendfsync always` it is on the disk
before the script's answer comes, so a claim is durable before anything is sent.
"""

import json
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, TypeVar
from urllib.parse import urlsplit

import redis
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, ReadOnlyError, RedisError, ResponseError
from redis.retry import Retry

from dlq.archive.schema import REPLAYS
from dlq.connectors.credentials import password_of
from dlq.core.clock import Clock
from dlq.core.errors import ArchiveError, ConfigError, FormatTooNew, LedgerUnreachable
from dlq.core.failures import Event
from dlq.core.settings import Ledger
from dlq.core.settings import Ledger as LedgerSettings
from dlq.core.units import seconds
from dlq.replay.ledger.contract import COLUMNS, Entry, Result, event_of, is_dead, new_owner
from dlq.replay.letters import Letter
from dlq.replay.states import BY_OWNER, BY_RECONCILE, MAY_SEND, MAY_SEND_AGAIN, STATES, State

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


PREFIX = "{dlq}"
FORGOTTEN = "FORGOTTEN"
"""The first word of the error of a server that is no longer the ledger that was opened."""


def _set(states: Iterable[State]) -> str:
    return "{" + ", ".join(f"{state} = true" for state in states) + "}"


def _sets(moves: Mapping[State, Iterable[State]]) -> str:
    return "{" + ", ".join(f"{state} = {_set(sources)}" for state, sources in moves.items()) + "}"


_START = f"""
local P = KEYS[1]
if redis.call('GET', P .. ':ledger') ~= ARGV[1] then
  return redis.error_reply('{FORGOTTEN}')
end
local BY_OWNER = {_sets(BY_OWNER)}
local BY_RECONCILE = {_sets(BY_RECONCILE)}
local MAY_SEND = {_set(MAY_SEND)}
local MAY_SEND_AGAIN = {_set(MAY_SEND_AGAIN)}

local function replay(key) return P .. ':replay:' .. key end
local function in_plan(plan, state) return P .. ':plan:' .. plan .. ':' .. state end

local function move(key, state, moment, why)
  local old = redis.call('HMGET', replay(key), 'plan', 'state', 'number')
  redis.call('ZREM', in_plan(old[1], old[2]), key)
  redis.call('ZADD', in_plan(old[1], state), old[3], key)
  redis.call('ZREM', P .. ':sending', key)
  redis.call('HSET', replay(key), 'state', state, 'updated_at', moment, 'detail', why)
end

local function record_results(me, moment, first, last)
  for i = first, last, 3 do
    local key, state = ARGV[i], ARGV[i + 1]
    local known = redis.call('HMGET', replay(key), 'owner', 'state')
    if known[1] == me and BY_OWNER[state][known[2]] then
      move(key, state, moment, ARGV[i + 2])
    end
  end
end
"""

CLAIM = f"""{_START}
local plan, me, claim, moment, until_, results = unpack(ARGV, 2, 7)
local letters = 8 + 3 * results
record_results(me, moment, 8, letters - 1)
local ours = {{}}
for i = letters, #ARGV, 5 do
  local key, number, record_id, target, lap = unpack(ARGV, i, i + 4)
  local known = redis.call('HMGET', replay(key), 'state', 'plan', 'owner', 'claim')
  local state = known[1]
  local free = not state or MAY_SEND[state] or (MAY_SEND_AGAIN[state] and known[2] ~= plan)
  if free then
    if state then redis.call('ZREM', in_plan(known[2], state), key) end
    redis.call('ZADD', P .. ':keys', 0, key)
    redis.call('ZADD', in_plan(plan, 'sending'), number, key)
    redis.call('ZADD', P .. ':sending', until_, key)
    redis.call('HSET', replay(key), 'key', key, 'plan', plan, 'number', number, 'record_id', record_id,
      'target', target, 'lap', lap, 'state', 'sending', 'owner', me, 'claim', claim, 'lease_until', until_,
      'sent_at', moment, 'updated_at', moment, 'detail', '')
  end
  -- The same claim again: the server took it, but its answer was lost.
  if free or (state == 'sending' and known[3] == me and known[4] == claim) then
    ours[#ours + 1] = key
  end
end
return ours
"""
"""plan, owner, number of the claim, now, end of the lease, results, then three values for each result
and five for each letter; returns the keys that are ours."""

RENEW = f"""{_START}
local me, until_ = ARGV[2], ARGV[3]
local ours = {{}}
for i = 4, #ARGV do
  local key = ARGV[i]
  local known = redis.call('HMGET', replay(key), 'owner', 'state')
  if known[1] == me and known[2] == 'sending' then
    redis.call('ZADD', P .. ':sending', until_, key)
    redis.call('HSET', replay(key), 'lease_until', until_)
    ours[#ours + 1] = key
  end
end
return ours
"""
"""owner, end of the lease, keys; returns those that are still ours."""

RECORD_RESULTS = f"""{_START}
record_results(ARGV[2], ARGV[3], 4, #ARGV)
"""
"""owner, now, three values for each result."""

RESOLVE = f"""{_START}
local state, moment, why = unpack(ARGV, 2, 4)
local moved = 0
for i = 5, #ARGV do
  local from = redis.call('HGET', replay(ARGV[i]), 'state')
  if from and BY_RECONCILE[state][from] then
    move(ARGV[i], state, moment, why)
    moved = moved + 1
  end
end
return moved
"""
"""state, now, detail, keys; returns how many moved."""

FETCH = f"""{_START}
local columns = tonumber(ARGV[2])
local found = {{}}
for i = 3 + columns, #ARGV do
  for _, value in ipairs(redis.call('HMGET', replay(ARGV[i]), unpack(ARGV, 3, 2 + columns))) do
    found[#found + 1] = value
  end
end
return found
"""
"""How many columns, their names, keys; returns the values of all, key by key."""

ADOPT = f"""{_START}
local names = {{{", ".join(f"'{name}'" for name in COLUMNS)}}}
local new = 0
for i = 2, #ARGV, #names do
  local row = {{}}
  for n, name in ipairs(names) do row[name] = ARGV[i + n - 1] end
  if redis.call('ZADD', P .. ':keys', 'NX', 0, row.key) == 1 then
    for n, name in ipairs(names) do redis.call('HSET', replay(row.key), name, row[name]) end
    redis.call('ZADD', in_plan(row.plan, row.state), row.number, row.key)
    if row.state == 'sending' then redis.call('ZADD', P .. ':sending', row.lease_until, row.key) end
    new = new + 1
  end
end
return new
"""
"""The values of each row in the order of COLUMNS; returns how many are new."""

FORGET = f"""{_START}
local forgotten = 0
for i = 2, #ARGV do
  local known = redis.call('HMGET', replay(ARGV[i]), 'plan', 'state')
  if known[2] == 'dismissed' then
    redis.call('ZREM', in_plan(known[1], known[2]), ARGV[i])
    redis.call('ZREM', P .. ':keys', ARGV[i])
    redis.call('DEL', replay(ARGV[i]))
    forgotten = forgotten + 1
  end
end
return forgotten
"""
"""Keys of dismissals; returns how many there were."""

APPEND = f"""{_START}
for i = 2, #ARGV, 2 do
  if redis.call('SADD', P .. ':event_ids', ARGV[i]) == 1 then
    redis.call('RPUSH', P .. ':events', ARGV[i + 1])
  end
end
"""
"""The id of each event, and all of it as JSON."""

EVENTS = f"""{_START}
return redis.call('LRANGE', P .. ':events', 0, -1)
"""
"""All events, in the order in which they were written."""


_FORMAT = 1
_CHUNK_OF_KEYS = 5_000
_INTEGERS = {"number", "lap", "lease_until", "sent_at", "updated_at"}
_P = PREFIX


class RedisLedger:
    """`dlq.replay.ledger.Ledger` in one database of a Redis server, 6 or newer."""

    def __init__(self, settings: LedgerSettings, clock: Clock | None = None) -> None:
        """`clock`: that of the server unless given. Makes the ledger where there is none. Raises ConfigError,
        ArchiveError, FormatTooNew."""
        self._lease = round(seconds(settings.lease) * 1_000_000)
        self._clock = clock or self._server_time
        self.owner = new_owner()
        self._claims = 0
        self._server = Server(settings)
        self._scripts: dict[str, Any] = {}
        self._identity = self._server.run(_identity, patient=False)

    def _server_time(self) -> int:
        """Leases are compared between hosts, whose clocks differ."""
        whole, micros = self._server.run(lambda client: client.time())
        return int(whole) * 1_000_000 + int(micros)

    def claim(self, plan: str, letters: Sequence[Letter], results: Sequence[Result] = ()) -> set[str]:
        """One script, which the server runs whole: results first, then the claims."""
        self._claims += 1
        moment = self._clock()
        about = [plan, self.owner, self._claims, moment, moment + self._lease, len(results)]
        rows = ((x.key, x.number, x.record_id, str(x.target), x.lap) for x in letters)
        return set(self._run(CLAIM, *about, *_flat(results), *chain.from_iterable(rows)))

    def renew(self, keys: Sequence[str]) -> set[str]:
        """One script; nothing is asked for no keys."""
        until = self._clock() + self._lease
        return set(self._run(RENEW, self.owner, until, *keys)) if keys else set()

    def record_results(self, results: Sequence[Result]) -> None:
        """One script; only from states that the sender itself may leave."""
        self._run(RECORD_RESULTS, self.owner, self._clock(), *_flat(results))

    def expire(self) -> int:
        """Reads the set of replays that are `sending`, whose scores are the ends of their leases."""
        moment = self._clock()
        sending = self._server.run(lambda client: client.zrange(f"{_P}:sending", 0, -1, withscores=True))
        owners = [row[0] for row in self._read([key for key, _ in sending], ["owner"])]
        dead = {owner for owner in set(owners) if owner and is_dead(owner)}
        claims = list(zip(sending, owners, strict=True))
        over = {
            "its sender died before the answer came": [key for (key, _), owner in claims if owner in dead],
            "the lease ended before the answer came": [
                key for (key, until), owner in claims if owner not in dead and until < moment
            ],
        }
        return sum(self.resolve(keys, "in_doubt", why) for why, keys in over.items())

    def states(self, keys: Sequence[str]) -> Mapping[str, State]:
        """Keys that are not known are absent."""
        found = zip(keys, self._read(keys, ["state"]), strict=True)
        return {key: row[0] for key, row in found if row[0] is not None}

    def counts(self, plan: str) -> Mapping[State, int]:
        """The sizes of the sets of the plan, read in one transaction."""

        def work(client: Any) -> Sequence[int]:
            with client.pipeline(transaction=True) as pipe:
                for state in STATES:
                    pipe.zcard(_of_plan(plan, state))
                return list(pipe.execute())

        return {state: n for state, n in zip(STATES, self._server.run(work), strict=True) if n}

    def entries(self, plan: str, state: State) -> list[Entry]:
        """By the set of the plan and state; what has moved on since it was read is left out."""
        keys = self._server.run(lambda client: client.zrange(_of_plan(plan, state), 0, -1))
        rows = (Entry(*row) for row in self._read(keys, Entry._fields))
        return [entry for entry in rows if (entry.plan, entry.state) == (plan, state)]

    def resolve(self, keys: Sequence[str], state: State, detail: str) -> int:
        """A script for each chunk; from states that reconcile may leave."""
        moment = self._clock()
        return sum(self._run(RESOLVE, state, moment, detail, *some) for some in _chunks(keys))

    def rows(self) -> Iterator[tuple[Sequence[object], ...]]:
        """Page by page; a page is some keys and their hashes."""
        for chunk in self._paged(REPLAYS.names):
            yield tuple(zip(*chunk, strict=True))

    def everything(self) -> Iterator[Sequence[tuple[Any, ...]]]:
        """Page by page, as `rows`."""
        return self._paged(COLUMNS)

    def adopt(self, rows: Sequence[tuple[Any, ...]]) -> int:
        """A script for each chunk, which leaves known keys alone."""

        def values(some: Sequence[tuple[Any, ...]]) -> Iterator[Any]:
            return ("" if value is None else value for row in some for value in row)

        return sum(self._run(ADOPT, *values(some)) for some in _chunks(rows))

    def forget(self, keys: Sequence[str]) -> int:
        """A script for each chunk; only replays of the state dismissed."""
        return sum(self._run(FORGET, *some) for some in _chunks(keys))

    def events(self) -> list[Event]:
        """One list, read whole."""
        return [event_of(text) for text in self._run(EVENTS)]

    def append(self, events: Sequence[Event]) -> None:
        """A script for each chunk; an id that is known is left alone."""
        pairs = [(event.id, json.dumps(event)) for event in events]
        for some in _chunks(pairs):
            self._run(APPEND, *chain.from_iterable(some))

    def warnings(self) -> Sequence[str]:
        """From the server's configuration: persistence, fsync, eviction."""
        return self._server.warnings()

    def close(self) -> None:
        """Closes the connections."""
        self._server.client.close()

    def _run(self, text: str, *arguments: object) -> Any:
        if text not in self._scripts:
            self._scripts[text] = self._server.client.register_script(text)
        script = self._scripts[text]
        return self._server.run(lambda _client: script([_P], [self._identity, *arguments]))

    def _paged(self, columns: Sequence[str]) -> Iterator[list[tuple[Any, ...]]]:
        start = "-"
        while keys := self._server.run(_page_after(start)):
            yield self._read(keys, columns)
            start = f"({keys[-1]}"

    def _read(self, keys: Sequence[str], columns: Sequence[str]) -> list[tuple[Any, ...]]:
        """These columns of these replays; all None for a key that is not known."""
        return [row for some in _chunks(keys) for row in self._fetch(some, columns)]

    def _fetch(self, keys: Sequence[str], columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        found = self._run(FETCH, len(columns), *columns, *keys)
        values = (found[place :: len(columns)] for place in range(len(columns)))
        typed = (
            [int(value) if value else None for value in column]
            if name in _INTEGERS
            else [value or None for value in column]
            for name, column in zip(columns, values, strict=True)
        )
        return zip(*typed, strict=True)


def _identity(client: Any) -> str:
    """Which ledger this is; the first to open it says so."""
    client.set(f"{_P}:ledger", f"{_FORMAT}:{secrets.token_hex(8)}", nx=True)
    identity = str(client.get(f"{_P}:ledger"))
    if int(identity.partition(":")[0]) > _FORMAT:
        raise FormatTooNew(f"the ledger has format {identity}; this dlq knows up to {_FORMAT}: upgrade dlq")
    return identity


def _of_plan(plan: str, state: State) -> str:
    return f"{_P}:plan:{plan}:{state}"


def _page_after(start: str) -> Callable[[Any], list[str]]:
    return lambda client: list(client.zrangebylex(f"{_P}:keys", start, "+", 0, _CHUNK_OF_KEYS))


def _flat(results: Sequence[Result]) -> Iterator[str]:
    return chain.from_iterable((one.key, one.state, one.detail or "") for one in results)


def _chunks(items: Sequence[Any]) -> Iterator[Sequence[Any]]:
    return (items[start : start + _CHUNK_OF_KEYS] for start in range(0, len(items), _CHUNK_OF_KEYS))
