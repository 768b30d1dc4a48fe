-- confirm_node_slot: hold a taken slot for longer, such as until the job's timeout. After Redis lost data it restores the
-- slot of its holder, within the grace or the time in which the node is unsure, also for the previous generation of the
-- node's process. Work that a node runs already gets a slot at any time, also when the node is full: counting it keeps other
-- work away.
--
-- KEYS[1] node
-- KEYS[2] its slots
-- KEYS[3] guard
-- KEYS[4] assignments by lease
-- ARGV[1] stem of the scheduler's keys
-- ARGV[2] node id
-- ARGV[3] generation
-- ARGV[4] lease id
-- ARGV[5] ms from now for which the slot is held
-- ARGV[6] pool and strategy of the assignment, one per line, to be restored with the slot; '' for jobs
-- ARGV[7] ms of grace to open where Redis may have lost leases
-- ARGV[8] last epoch of the guard that the caller has seen
-- ARGV[9] 'checked': restore the slot only if the node serves the pool and has a free slot, because the holder is not a workflow of
--         berth; 'running': hold it in any case, because this generation runs the work already; '' otherwise
--
-- Returns {code, generation}: the node's current generation
--   OK         held
--   LOST       the lease expired or was released: another lease may have the slot; or it is not restored, because the pool is not known
--   GONE       the node is unknown, dead, or another generation, and its slots are gone
--   NODE_FULL  it is not restored: the node has no free slot
--   NO_NODE    it is not restored: the node does not serve the pool

-- include guard
-- include fleet
-- include settle

local key, slots, guard, given = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local stem, id, generation, lease, ttl = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local open, known = tonumber(ARGV[7]), tonumber(ARGV[8])
if not (ttl and open and known) then return redis.error_reply('ERR confirm_node_slot: not a number') end
local node = state_of(node_of(stem, id))
if not node or node.state == 'dead' then return { 'GONE', '0' } end
local now = clock()
local wait = grace_left(guard, now, known, true)
local running = ARGV[9] == 'running'
local forgotten = running or wait ~= 0 or node.unsure > now
if node.generation ~= generation and (running or not (forgotten and redis.call('HGET', key, 'previous') == generation)) then
  return { 'GONE', node.generation }
end
local expiry = redis.call('ZSCORE', slots, lease)
if not forgotten and not (expiry and tonumber(expiry) > now) then return { 'LOST', node.generation } end
if ARGV[9] == 'checked' and not (expiry and tonumber(expiry) > now) then
  local pool, pools = string.match(ARGV[6], '^[^\n]*'), '\n' .. pools_of_class(stem, node.class) .. '\n'
  if not string.find(pools, '\n' .. pool .. '\n', 1, true) then
    local capabilities = '\n' .. spec_of(stem, id).capabilities .. '\n'
    if redis.call('HEXISTS', stem .. 'config:pools', pool) == 1 then return { 'NO_NODE', node.generation } end
    for capability in string.gmatch(pool, '[^+]+') do -- a pool without indexes is named by its capabilities
      if not string.find(capabilities, '\n' .. capability .. '\n', 1, true) then return { 'LOST', node.generation } end
    end
  end
  if leases_of(node, now) >= node.max then return { 'NODE_FULL', node.generation } end
end

if not wait then grace(guard, now, open, known) end
redis.call('ZADD', slots, now + ttl, lease)
if not expiry and ARGV[6] ~= '' then
  local pool, strategy = string.match(ARGV[6], '^([^\n]*)\n(.*)$')
  redis.call('HSET', given, lease, pool .. '\n' .. id .. '\n' .. node.generation .. '\n' .. strategy)
end
if not expiry then settle(stem, node, purge(stem, node, now)) end
return { 'OK', node.generation }
