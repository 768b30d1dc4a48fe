-- estimate_wait: estimate how many calls of a model are served before the one of a task, and how long that takes.
--
-- KEYS[1] guard
-- ARGV[1] prefix of the keys
-- ARGV[2] model
-- ARGV[3] entry of the task, see include entries; it need not exist
--
-- Returns {code, position, wait}:
--   OK        position: calls that are served before; wait: ms until the call gets a slot, -1 when it is not known
--   UNKNOWN   no process has used the model since Redis lost its data, if ever

-- include room

local call, entry = call_of(ARGV[1], KEYS[1], 1, 1, 0), ARGV[3]
if not is_lease(entry) then return redis.error_reply('ERR estimate_wait: unreadable argument') end
local room = room_of(call, ARGV[2])
if not room then return { 'UNKNOWN', 0, -1 } end
local entries = entries_of(room)

-- newcomer_position returns how many calls are served before a new one: each other user of the queue is served as often as this
-- one before it, the other queues as often as their weights allow.
local function newcomer_position(r)
  local flow, before = flow_of(r, entry), 0
  local function state(field) return tonumber(redis.call('HGET', r.state, field) or '0') end
  local mine = redis.call('ZCARD', flow.key)
  if mine > 0 then
    local _, member = head_of(flow)
    before = mine * math.max(1, redis.call('ZCARD', flow.order)) + (redis.call('ZRANK', flow.order, member) or 0)
  else
    local tag = math.max(state('V:' .. flow.queue), tonumber(redis.call('ZSCORE', flow.finish, flow.user) or '0'))
    before = redis.call('ZCOUNT', flow.order, '-inf', precise(tag))
  end
  before = math.min(before, state('n:' .. flow.queue))
  local position = before
  local tag = tonumber(redis.call('ZSCORE', r.order, flow.member) or nil) or math.max(state('V'), state('F:' .. flow.queue))
  local all = redis.call('ZRANGE', r.order, 0, -1, 'WITHSCORES')
  for i = 1, #all, 2 do
    local queue = string.sub(all[i], 4)
    if queue ~= flow.queue then
      local rounds = tonumber(all[i + 1]) <= tag and 1 or 0
      position = position + math.min(state('n:' .. queue), math.floor((before + rounds) * (WEIGHT[queue] or 1) / flow.weight))
    end
  end
  return position
end

local position
if redis.call('ZSCORE', entries.waiting, entry) then
  position = entry_position(room, entry)
elseif redis.call('EXISTS', entries.waiting) == 1 and not redis.call('ZSCORE', entries.signalled, entry) then
  position = all_ahead(entries) + newcomer_position(entries)
else
  local live = '(' .. whole(call.now)
  local expected = redis.call('ZCARD', entries.promoted) + redis.call('ZCOUNT', entries.signalled, live, '+inf')
  if redis.call('ZSCORE', entries.signalled, entry) then expected = expected - 1 end
  local free = room.cap - redis.call('ZCOUNT', room.holders, live, '+inf')
  local waiting = redis.call('ZCARD', room.waiting)
  if waiting == 0 and expected < free and stopped(room) == 0 then return { 'OK', 0, 0 } end
  position = math.max(0, expected - math.max(0, free)) + newcomer_position(room)
end
local gap = gap_of(room)
if gap < 0 or room.paused then return { 'OK', position, -1 } end
return { 'OK', position, math.ceil((position + 1) * gap + stopped(room)) }
