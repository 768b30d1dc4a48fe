-- read_room: read a model's limits, slots in use and waiters.
--
-- KEYS[1] guard
-- ARGV[1] prefix of the keys
-- ARGV[2] model
-- ARGV[3] limits of the model, see limits_of in include room
-- ARGV[4] maximum number of users to return
--
-- Returns {code, cap, rpm, tpm, used, waiting, stopped, paused, reason, until, cause, queues, users}; code is OK
--   used     number of slots in use
--   stopped  ms until the pace or a pause permits a grant, 0 when it does; without meaning for a pause by an operator
--   paused   1 when an operator paused the model, for the reason
--   until    when a pause with an end ends, in Redis's ms, 0 for none; cause: its reason
--   queues   {queue, weight, number of waiters} of each queue with waiters
--   users    {queue/user, number of waiters} of those with the most

-- include room

local call, most = call_of(ARGV[1], KEYS[1], 1, 1, 0), tonumber(ARGV[4])
if not (limits_of(ARGV[3]) and most and most >= 0) then return redis.error_reply('ERR read_room: unreadable argument') end
local room = room_of(call, ARGV[2], ARGV[3])
local why = redis.call('HMGET', room.stem .. 'limits', 'reason', 'cause')
local queues, users, all = {}, {}, redis.call('HGETALL', room.state)
for i = 1, #all, 2 do
  local queue = string.match(all[i], '^n:(.*)$')
  if queue and tonumber(all[i + 1]) > 0 then
    table.insert(queues, { queue, WEIGHT[queue] or 1, tonumber(all[i + 1]) })
  end
end
if most > 0 then
  local list = redis.call('ZREVRANGE', room.users, 0, most - 1, 'WITHSCORES')
  for i = 1, #list, 2 do table.insert(users, { list[i], tonumber(list[i + 1]) }) end
end
return {
  'OK', room.cap, room.rpm, room.tpm, redis.call('ZCOUNT', room.holders, '(' .. whole(call.now), '+inf'),
  redis.call('ZCARD', room.waiting), stopped(room), room.paused and 1 or 0, why[1] or '',
  whole(room.resumes > call.now and room.resumes or 0), why[2] or '', queues, users,
}
