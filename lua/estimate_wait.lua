-- estimate_wait: estimate how many leases a model serves before a new one of a user in a queue, and how long that takes.
--
-- KEYS[1] guard
-- KEYS[2] pace of the model, see include served
-- ARGV[1] prefix of the keys
-- ARGV[2] model
-- ARGV[3] queue
-- ARGV[4] user, escaped
--
-- Returns {code, position, wait}:
--   OK        position: leases that are served before; wait: ms until a new lease gets a slot, -1 when it is not known
--   UNKNOWN   no process has used the model since Redis lost its data, if ever

-- include room
-- include served

local call = call_of(ARGV[1], KEYS[1], 1, 1, 0)
local room = room_of(call, ARGV[2])
if not room then return { 'UNKNOWN', 0, -1 } end
local flow = flow_at(room, ARGV[3], ARGV[4])
local function state(field) return tonumber(redis.call('HGET', room.state, field) or '0') end

local live = '(' .. whole(call.now)
local in_use = redis.call('ZCOUNT', room.holders, live, '+inf')
if redis.call('ZCARD', room.waiting) == 0 and in_use < room.cap and stopped(room) == 0 then return { 'OK', 0, 0 } end

-- Each other user of the queue is served as often as this one before it, the other queues as often as their weights allow.
local mine, queued, before = redis.call('ZCARD', flow.key), state('n:' .. flow.queue), 0
if mine > 0 then
  local _, member = head_of(flow)
  before = mine * math.max(1, redis.call('ZCARD', flow.order)) + (redis.call('ZRANK', flow.order, member) or 0)
else
  local tag = math.max(state('V:' .. flow.queue), tonumber(redis.call('ZSCORE', flow.finish, flow.user) or '0'))
  before = redis.call('ZCOUNT', flow.order, '-inf', precise(tag))
end
before = math.min(before, queued)
local position = before
local tag = tonumber(redis.call('ZSCORE', room.order, flow.member) or nil) or math.max(state('V'), state('F:' .. flow.queue))
local all = redis.call('ZRANGE', room.order, 0, -1, 'WITHSCORES')
for i = 1, #all, 2 do
  local queue = string.sub(all[i], 4)
  if queue ~= flow.queue then
    local rounds = tonumber(all[i + 1]) <= tag and 1 or 0
    position = position + math.min(state('n:' .. queue), math.floor((before + rounds) * (WEIGHT[queue] or 1) / flow.weight))
  end
end
local interval = interval_of(KEYS[2])
if interval < 0 or room.paused then return { 'OK', position, -1 } end
return { 'OK', position, math.ceil((position + 1) * interval + stopped(room)) }
