"""The Lua scripts of a Redis ledger: each is one transaction, which no other client can come between.

    {dlq}:ledger              which ledger this is; a server that has lost it has lost the replays too
    {dlq}:replay:KEY          a hash: the columns of the replay, and `claim`, its owner's how-manieth claim
    {dlq}:keys                all keys, in their order
    {dlq}:plan:PLAN:STATE     keys, by their number in the plan
    {dlq}:sending             keys, by the end of their lease

The braces keep all of it on one node of a cluster. Every script gets the ledger's identity first.
"""

from collections.abc import Iterable, Mapping

from dlq.replay.ledger import COLUMNS
from dlq.replay.states import BY_OWNER, BY_RECONCILE, MAY_SEND, MAY_SEND_AGAIN, State

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

local function settle(me, moment, first, last)
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
local plan, me, claim, moment, until_, settled = unpack(ARGV, 2, 7)
local letters = 8 + 3 * settled
settle(me, moment, 8, letters - 1)
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
"""plan, owner, number of the claim, now, end of the lease, settlements, then three values for each settlement
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

SETTLE = f"""{_START}
settle(ARGV[2], ARGV[3], 4, #ARGV)
"""
"""owner, now, three values for each settlement."""

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
