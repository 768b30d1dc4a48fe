-- dispatch_job: choose the node of a turn's job, take its slot, write job, request binding and, with the turn's first
-- job, the affinity, in one decision (A1-A8, L6, S10). Idempotent by (request, dispatch number).
--
-- KEYS[1]  guard
-- KEYS[2]  binding of the request and dispatch number
-- KEYS[3]  turn
-- KEYS[4]  session
-- KEYS[5]  job
-- ARGV[1]  stem of the scheduler's keys
-- ARGV[2]  lease id
-- ARGV[3]  ms the slot is held unless it is confirmed
-- ARGV[4]  pool
-- ARGV[5]  strategy
-- ARGV[6]  random whole number below 2^52
-- ARGV[7]  '' or, each ended by a \2: the caller's own node; the places that are near the caller, the nearest first, the services
--          the work needs, the nodes not to be chosen and the capabilities the pool stands for, these four one per line
-- ARGV[8]  turn id
-- ARGV[9]  job id
-- ARGV[10] 1 when the job binds nothing: it ends its turn, or is dispatched anew after its end
-- ARGV[11] ms the binding is kept
-- ARGV[12] what is known of the job, JSON without its closing brace
-- ARGV[13] node that the turn is known to be bound to, '': put back where Redis has lost it (L12)
--
-- Returns {code, …}
--   OK          {node, generation, strategy, affinity, why}: affinity first, hit or miss; why it missed
--   EXISTS      {job}: as JSON, as an earlier call left it
--   NODE_FULL   {reasons, missing}: all nodes that could are full; reasons and numbers in turn
--   NO_NODE     {reasons, missing}: no node can; missing: capabilities that no living node has
--   TURN_ENDED  the turn was finalised, and the job would bind it again
--   GRACE       {ms}: Redis may have forgotten leases: grants wait
--   GUARD       the guard is missing: to be checked first

local grace = redis.call('HGET', KEYS[1], 'grace')
if not grace then return { 'GUARD' } end
local binding, turn, session, job = KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local stem, keep = ARGV[1], ARGV[11]
if not (tonumber(ARGV[3]) and tonumber(ARGV[6]) and tonumber(keep)) then return redis.error_reply('ERR dispatch_job: not a number') end
local bound = redis.call('GET', binding)
if bound then return { 'EXISTS', bound } end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if tonumber(grace) > now then return { 'GRACE', tonumber(grace) - now } end
local ends = ARGV[10] == '1'
local known = redis.call('HGET', turn, 'affinity_node_id')
if not known and not ends then
  local ended = redis.call('HGET', session, 'ended_turns')
  if ended and string.find(ended, '\n' .. ARGV[8] .. '\n', 1, true) then return { 'TURN_ENDED' } end
end

local named = known or ARGV[13] ~= '' and ARGV[13]
local affinity, why = named and 'hit' or 'first', ''
-- include usual
if not id then
-- include fleet
-- include settle
-- include choose
  local want, node = asked(now), nil
  if named then
    node, why = by_name(want, named)
    if node then strategy, why = '', '' else affinity = 'miss' end
  end
  if not node then node, strategy = pick(want) end
  if not node then
    local reasons, missing = refused(want)
    return { want.skipped.full and 'NODE_FULL' or 'NO_NODE', reasons, missing }
  end
  reserve(want, node, strategy)
  id, generation = node.id, node.generation
end
if not known and not ends then
  redis.call('HSET', turn, 'affinity_node_id', named or id)
  redis.call('HSET', session, 'current_turn_id', ARGV[8])
  redis.call('EXPIRE', session, '3600')
end
local row = ARGV[12] .. ',"node_id":"' .. id .. '","generation":' .. generation .. ',"lease_id":"' .. ARGV[2]
  .. '","pool":"' .. pool .. '","strategy":"' .. strategy .. '","affinity":"' .. affinity
  .. '","missed":"' .. why .. '","created_at_ms":' .. string.format('%d', now) .. '}'
redis.call('SET', job, row, 'EX', '3600')
redis.call('SET', binding, row, 'PX', keep)
redis.call('PUBLISH', stem .. 'job:created', ARGV[9])
return { 'OK', id, generation, strategy, affinity, why }
