-- assign: choose a node of a pool and take one of its slots, in one decision. Idempotent by lease id.
--
-- KEYS[1]  guard
-- KEYS[2]  assignments by lease: pool, node, generation and strategy, one per line; further lines are padding
-- ARGV[1]  stem of the scheduler's keys
-- ARGV[2]  lease id
-- ARGV[3]  ms for which the slot is held unless it is confirmed
-- ARGV[4]  pool
-- ARGV[5]  strategy
-- ARGV[6]  random whole number below 2^52
-- ARGV[7]  five texts, each ended by \2: the caller's own node; and lists with one item per line: the places near
--          the caller, nearest first; the services that the work needs; the excluded nodes; the pool's capabilities
-- ARGV[8]  ms of grace to open where Redis may have lost leases
-- ARGV[9]  last epoch of the guard that the caller has seen
--
-- Returns {code, …}
--   OK         {node, generation, strategy}: taken
--   EXISTS     {assignment}: taken by an earlier call: pool, node, generation and strategy, one per line
--   NODE_FULL  {reasons, missing}: every suitable node is full; reasons and numbers of nodes, alternating
--   NO_NODE    {reasons, missing}: no node is suitable; missing: capabilities that no registered node has
--   GRACE      {ms}: Redis may have lost leases: nothing is granted for this time

-- PADDING ends a row. A hash with a value of more than 64 bytes is a hash table; a smaller one is a list, which Redis
-- searches from its start.
local PADDING = '\n                                                                '

-- include guard

local stem, lease = ARGV[1], ARGV[2]
if not (tonumber(ARGV[3]) and tonumber(ARGV[6]) and tonumber(ARGV[8]) and tonumber(ARGV[9])) then return redis.error_reply('ERR assign: not a number') end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local taken, expired = redis.call('HGET', KEYS[2], lease), nil
if taken then
  local node, generation = string.match(taken, '\n([^\n]*)\n([^\n]*)\n')
  local current = redis.call('HGET', stem .. 'node:runtime:' .. node, 'generation')
  expired = stem .. 'node:slots:' .. node
  local expiry = current == generation and redis.call('ZSCORE', expired, lease)
  if expiry and tonumber(expiry) > now then return { 'EXISTS', taken } end
end
local wait = grace(KEYS[1], now, tonumber(ARGV[8]), tonumber(ARGV[9]))
if wait > 0 then return { 'GRACE', wait } end
if expired then redis.call('ZREM', expired, lease) end -- the lease's row gets another node

-- include fleet
-- include settle
-- include choose

local want = asked(now)
local node, strategy = pick(want)
if not node then
  local reasons, missing = refused(want)
  return { want.skipped.full and 'NODE_FULL' or 'NO_NODE', reasons, missing }
end
reserve(want, node, strategy)
redis.call('HSET', KEYS[2], lease, want.pool .. '\n' .. node.id .. '\n' .. node.generation .. '\n' .. strategy .. PADDING)
return { 'OK', node.id, node.generation, strategy }
