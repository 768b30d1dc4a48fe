-- assign: choose a node of a pool and take one of its slots, in one decision. Idempotent by lease id. Work that waits for a node is
-- handed one in the order of include handover.
--
-- KEYS[1]  guard
-- KEYS[2]  assignments by lease: pool, node, generation and strategy, one per line; further lines are padding
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
-- ARGV[8]  ms of grace to open where Redis may have lost leases
-- ARGV[9]  last epoch of the guard that the caller has seen
-- ARGV[10] absent for work that does not wait, as are those behind it; TRY to take a slot unless others of the pool wait; JOIN to wait for one
-- ARGV[11] waiter, see include handover
-- ARGV[12] ms until its deadline
-- ARGV[13] number that orders the waiters of a user
-- ARGV[14] 1 to go ahead of those that have just entered
-- ARGV[15] the capabilities that its nodes need where the pool has no indexes, one per line; otherwise ''
--
-- Returns {code, …}
--   OK         {node, generation, strategy, handed}: taken; handed only with JOIN
--   EXISTS     {assignment}: taken by an earlier call: pool, node, generation and strategy, one per line
--   NODE_FULL  {reasons, missing}: every suitable node is full; reasons and numbers of nodes, alternating
--   NO_NODE    {reasons, missing}: no node is suitable; missing: capabilities that no registered node has
--   GRACE      {ms}: Redis may have lost leases: nothing is granted for this time
--   WAITING    {handed}: the work waits, or with TRY has to
-- handed: waiters whose workflows the caller has to signal

-- include grace_left

local stem, lease, ttl, random, open_grace, known = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[6]), tonumber(ARGV[8]), tonumber(ARGV[9])
local mode, waiter, left, order = ARGV[10], ARGV[11], ARGV[12], ARGV[13]
if not (ttl and random and open_grace and known and (not mode or tonumber(left) and string.find(order, '^%d*$'))) then
  return redis.error_reply('ERR assign: not a number')
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- include find_lease
if held then
  if mode then redis.call('ZREM', stem .. 'waiting:promoted', waiter) end
  return { 'EXISTS', taken }
end
local wait = grace_left(KEYS[1], now, known, true)
if not wait then
-- include guard
  wait = grace(KEYS[1], now, open_grace, known, true)
end
if wait > 0 and mode ~= 'JOIN' then return { 'GRACE', wait } end
if taken then -- it gets another node, or none
  redis.call('ZREM', taken_slots, lease)
  redis.call('HDEL', KEYS[2], lease)
end

-- include fleet

local pool, asked, detail, mine = ARGV[4], ARGV[5], ARGV[7], nil
-- include request
if mode == 'JOIN' or mode == 'TRY' and redis.call('ZSCORE', stem .. 'waiting', pool) then
-- include handover
  if mode == 'JOIN' then
    wait_in(waiter, pool, request_row(ttl, pool, asked, detail), tonumber(left), order, ARGV[14] == '1', ARGV[15])
    local granted = wait == 0 and ARGV[15] == '' and serve({ pool, redis.call('ZSCORE', waiting, pool) }, '', waiter)
    if not granted then return { 'WAITING', handed } end
    local row = redis.call('HGET', KEYS[2], lease)
    return { 'OK', granted.id, granted.generation, string.match(row, '^[^\n]*\n[^\n]*\n[^\n]*\n([^\n]*)'), handed }
  end
  local room = pool_room(pool)
  local member = redis.call('ZRANGE', room.stem .. 'order:x', 0, 0)[1]
  if not member or head_of(node_at(room, 'x|' .. name_of(member))) ~= waiter then return { 'WAITING', handed } end
  mine = forget_waiter
end
local node, leases, strategy
-- include pick
if not node then
-- include refused
  return { skipped.full and 'NODE_FULL' or 'NO_NODE', reasons, missing }
end
-- include reserve
if mine then mine(waiter, pool) end
-- include write_lease
return { 'OK', node, generation, strategy }
