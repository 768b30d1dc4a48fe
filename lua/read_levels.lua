-- read_levels: read how many slots of a model teams and applications use, and how many of their calls wait for one. It changes nothing.
--
-- KEYS[1] guard
-- ARGV[1] prefix of the keys
-- ARGV[2] model
-- ARGV[3] limits of the model, see limits_of in include room
-- ARGV[4...] path of each below a queue, such as team:a|app:b; at most 1,000
--
-- Returns {code, uses}; code is OK
--   uses  {number of the path, from 1, queue, slots in use, number of waiters} of each path and queue where there are any

-- include room

local call, wanted = call_of(ARGV[1], KEYS[1], 1, 1, 0), {}
for i = 4, #ARGV do wanted[ARGV[i]] = i - 3 end
if not limits_of(ARGV[3]) or #ARGV > 1003 then return redis.error_reply('ERR read_levels: unreadable argument') end
call.reads = true
local room = room_of(call, ARGV[2], ARGV[3])
local waiters, names, used, uses = waiters_of(room), {}, {}, {}

for _, lease in ipairs(redis.call('ZRANGEBYSCORE', room.holders, '(' .. whole(call.now), '+inf')) do
  local queue, path = string.match(lease, '^[^/]+/([^/|]+)|([^/]*)')
  while path do
    if wanted[path] then
      local of = queue .. '|' .. path
      names[queue], used[of] = true, (used[of] or 0) + 1
    end
    path = string.match(path, '^(.*)|')
  end
end
-- Calls may be in queues that this process does not know, see read_room.
for queue in pairs(room.queues) do names[queue] = true end
for _, order in ipairs({ room.order, waiters.order }) do
  for _, queue in ipairs(redis.call('ZRANGE', order, 0, -1)) do names[queue] = true end
end
for queue in pairs(names) do
  local waiting = {}
  for _, state in ipairs({ room.state, waiters.state }) do
    if #ARGV > 3 and tonumber(redis.call('HGET', state, 'n:' .. queue) or '0') > 0 then
      local fields = {}
      for i = 4, #ARGV do fields[i - 3] = 'n:' .. queue .. '|' .. ARGV[i] end
      for i, n in ipairs(redis.call('HMGET', state, unpack(fields))) do waiting[i] = (waiting[i] or 0) + tonumber(n or '0') end
    end
  end
  for i = 4, #ARGV do
    local holding, waits = used[queue .. '|' .. ARGV[i]] or 0, waiting[i - 3] or 0
    if holding + waits > 0 then table.insert(uses, { i - 3, queue, holding, waits }) end
  end
end
return { 'OK', uses }
