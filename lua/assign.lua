-- assign: choose a node of a pool and take one of its slots, in one decision (S10, L7). Idempotent by lease id.
--
-- KEYS[1]  guard
-- KEYS[2]  what leases were given: lease -> pool, node, generation, strategy, one per line; more lines mean nothing
-- ARGV[1]  stem of the scheduler's keys
-- ARGV[2]  lease id
-- ARGV[3]  ms the slot is held unless it is confirmed
-- ARGV[4]  pool
-- ARGV[5]  strategy
-- ARGV[6]  random whole number below 2^52
-- ARGV[7]  '' or, each ended by a \2: the caller's own node; the places that are near the caller, the nearest first, the services
--          the work needs, the nodes not to be chosen and the capabilities the pool stands for, these four one per line
--
-- Returns {code, …}
--   OK         {node, generation, strategy}: taken
--   EXISTS     {assignment}: an earlier call took it: pool, node, generation, strategy, one per line
--   NODE_FULL  {reasons, missing}: all nodes that could are full; reasons and numbers in turn
--   NO_NODE    {reasons, missing}: no node can; missing: capabilities that no living node has
--   GRACE      {ms}: Redis may have forgotten leases: grants wait
--   GUARD      the guard is missing: to be checked first

-- LONG ends a row, for a hash with a value of more than 64 bytes is a table; small ones are lists that Redis goes through.
local LONG = '\n                                                                '

local grace = redis.call('HGET', KEYS[1], 'grace')
if not grace then return { 'GUARD' } end
local stem, lease = ARGV[1], ARGV[2]
if not (tonumber(ARGV[3]) and tonumber(ARGV[6])) then return redis.error_reply('ERR assign: not a number') end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local taken = redis.call('HGET', KEYS[2], lease)
if taken then
  local on, of = string.match(taken, '\n([^\n]*)\n([^\n]*)\n')
  local is = redis.call('HGET', stem .. 'node:runtime:' .. on, 'generation')
  local expiry = is == of and redis.call('ZSCORE', stem .. 'node:slots:' .. on, lease)
  if expiry and tonumber(expiry) > now then return { 'EXISTS', taken } end
  redis.call('ZREM', stem .. 'node:slots:' .. on, lease) -- it lapsed: its row is another's from now on
end
if tonumber(grace) > now then return { 'GRACE', tonumber(grace) - now } end

local named = false
-- include usual
if not id then
-- include fleet
-- include settle
-- include choose
  local want, node = asked(now), nil
  node, strategy = pick(want)
  if not node then
    local reasons, missing = refused(want)
    return { want.skipped.full and 'NODE_FULL' or 'NO_NODE', reasons, missing }
  end
  reserve(want, node, strategy)
  id, generation = node.id, node.generation
end
redis.call('HSET', KEYS[2], lease, pool .. '\n' .. id .. '\n' .. generation .. '\n' .. strategy .. LONG)
return { 'OK', id, generation, strategy }
