-- dispatch_job: choose the node of a turn's job, take its slot, and write job, request binding and, with the turn's first
-- job, the affinity, in one decision. Idempotent by request and dispatch number.
--
-- KEYS[1]  guard
-- KEYS[2]  binding of the request and dispatch number
-- KEYS[3]  turn
-- KEYS[4]  session
-- KEYS[5]  job
-- ARGV[1]  stem of the scheduler's keys
-- ARGV[2]  lease id
-- ARGV[3]  ms for which the slot is held unless it is confirmed
-- ARGV[4]  pool
-- ARGV[5]  strategy
-- ARGV[6]  random whole number below 2^52
-- ARGV[7]  six texts, each ended by \2: the caller's own node; and lists with one item per line: the locations near
--          the caller, nearest first; the services that the work needs; the excluded nodes, each perhaps with \1 and the only
--          generation that is excluded; the pool's capabilities;
--          the nodes to choose from, '' for those of the pool
-- ARGV[8]  turn id
-- ARGV[9]  job id
-- ARGV[10] 1 when the job does not bind the turn: it ends the turn, or is dispatched again after its end
-- ARGV[11] ms for which the binding is kept
-- ARGV[12] the request, JSON without the closing brace
-- ARGV[13] node to which the turn is bound according to its workflow, or '': restored where Redis has lost it
-- ARGV[14] ms of grace to open where Redis may have lost leases
-- ARGV[15] last epoch of the guard that the caller has seen
-- ARGV[16] of a job that waits for a node if it gets none: its waiter, see include handover; otherwise ''
--
-- Returns {code, …}
--   OK          {node, generation, strategy, affinity, why}: affinity first, hit or miss; why it missed
--   EXISTS      {job}: as JSON, as an earlier call wrote it
--   NODE_FULL   {reasons, missing}: every suitable node is full; reasons and numbers of nodes, alternating
--   NO_NODE     {reasons, missing}: no node is suitable; missing: capabilities that no registered node has
--   TURN_ENDED  the turn was finalized, and the job would bind it again
--   GRACE       {ms}: Redis may have lost leases: nothing is granted for this time
--   WAITING     other work of the pool waits, so that the job has to wait, too

-- include grace_left

local binding, turn, session, job, lease, waiter = KEYS[2], KEYS[3], KEYS[4], KEYS[5], ARGV[2], ARGV[16]
local stem, keep, ttl, random, open_grace, epoch = ARGV[1], ARGV[11], tonumber(ARGV[3]), tonumber(ARGV[6]), tonumber(ARGV[14]), tonumber(ARGV[15])
if not (ttl and random and tonumber(keep) and open_grace and epoch and waiter) then
  return redis.error_reply('ERR dispatch_job: unreadable argument')
end
local bound = redis.call('GET', binding)
if bound then return { 'EXISTS', bound } end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local ends = ARGV[10] == '1'
local known = redis.call('HGET', turn, 'affinity_node_id')
if not known and not ends then
  local ended = redis.call('HGET', session, 'ended_turns')
  if ended and string.find(ended, '\n' .. ARGV[8] .. '\n', 1, true) then return { 'TURN_ENDED' } end
end
local wait = grace_left(KEYS[1], now, epoch, true)
if not wait then
-- include guard
  wait = grace(KEYS[1], now, open_grace, epoch, true)
end
local reserved
if waiter ~= '' then
-- include find_lease
  if held then
    reserved = { slots = taken_slots }
    reserved.node, reserved.generation, reserved.strategy = string.match(taken, '\n([^\n]*)\n([^\n]*)\n([^\n]*)')
  elseif wait == 0 and redis.call('ZSCORE', stem .. 'waiting', ARGV[4]) then
    return { 'WAITING' }
  elseif wait == 0 and taken then -- it gets another node, or none
    redis.call('ZREM', taken_slots, lease)
    redis.call('HDEL', stem .. 'leases', lease)
  end
end
if wait > 0 and not reserved then return { 'GRACE', wait } end

local named = known or ARGV[13] ~= '' and ARGV[13]
local affinity, why = named and 'hit' or 'first', ''
-- include fleet

local pool, asked, detail, node, leases, strategy = ARGV[4], ARGV[5], ARGV[7], nil, nil, ''
-- include request
if reserved then
  node, generation, strategy = reserved.node, reserved.generation, reserved.strategy
  if named and named ~= node then affinity = 'miss' end
elseif named then
  why = nil
-- include pick_named
  if node then why = '' else affinity = 'miss' end
end
if not node then
-- include pick
end
if not node then
-- include refused
  return { skipped.full and 'NODE_FULL' or 'NO_NODE', reasons, missing }
end
if reserved then
  redis.call('ZREM', stem .. 'waiting:promoted', waiter)
  redis.call('ZADD', reserved.slots, whole(now + ttl), lease)
  redis.call('HDEL', stem .. 'leases', lease) -- it belongs to the job from now on
else
-- include reserve
end
if not known and not ends then
  redis.call('HSET', turn, 'affinity_node_id', named or node)
  redis.call('HSET', session, 'current_turn_id', ARGV[8])
  redis.call('EXPIRE', session, '3600')
end
local row = ARGV[12] .. ',"assignment":{"leaseId":"' .. lease .. '","nodeId":"' .. node
  .. '","generation":' .. generation .. ',"poolId":"' .. pool .. '","strategy":"' .. strategy .. '","affinity":"' .. affinity
  .. '","missed":"' .. why .. '"},"createdAtMs":' .. string.format('%d', now) .. '}'
redis.call('SET', job, row, 'EX', '3600')
redis.call('SET', binding, row, 'PX', keep)
redis.call('PUBLISH', stem .. 'job:created', ARGV[9])
return { 'OK', node, generation, strategy, affinity, why }
