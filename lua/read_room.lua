-- read_room: read a model's limits, slots in use and waiters. It changes nothing.
--
-- KEYS[1] guard
-- ARGV[1] prefix of the keys
-- ARGV[2] model
-- ARGV[3] limits of the model, see limits_of in include upstream
-- ARGV[4] maximum number of users to return
--
-- Returns {code, used, waiting, stopped, paused, reason, upstreams, unknown, revision, queues, users}; code is OK
--   used     number of slots in use
--   stopped  ms until the pace or a pause permits a grant, 0 when it does, and for a pause by an operator
--   paused   1 when an operator paused the model, for the reason
--   upstreams  {name, cap, rpm, tpm, slots in use, stopped, paused, reason, until, cause, probing, learned, provider cap, provider used, broken} of each
--            upstream, as for the model; cap: the number of slots, of an automatic one at present; until: when a pause with an end ends, in Redis's ms, 0 for
--            none; cause: its reason; probing: 1 after failures, for the same cause, until a call succeeds; learned: 1 for an automatic cap; provider cap: number of slots of the provider,
--            of all models together, 0 for no limit; provider used: how many of them are in use; broken: 1 where the pause is for a
--            fault that lasts until an operator acts
--   unknown  upstreams that are not in the limits, and for which operators have set some or a pause
--   revision  the highest revision of limits that Redis knows
--   queues   {queue, weight, slots in use, number of waiters, wait} of each queue; wait: ms until a call that is submitted now, of a
--            user without others, gets a slot, -1 when it is not known
--   users    {path of a flow, number of waiters} of those with the most

-- include room
-- include estimate

local call, most = call_of(ARGV[1], KEYS[1], 1, 1, 0), tonumber(ARGV[4])
if not (limits_of(ARGV[3]) and most and most >= 0) then return redis.error_reply('ERR read_room: unreadable argument') end
call.reads = true
local room = room_of(call, ARGV[2], ARGV[3])
local upstreams, live = {}, '(' .. whole(call.now)
for i, u in ipairs(room.upstreams) do
  local why = redis.call('HMGET', room.stem .. 'limits', 'paused:' .. u.name, 'reason:' .. u.name, 'cause:' .. u.name, 'broken:' .. u.name)
  upstreams[i] = {
    u.name, u.whole_cap, u.rpm, u.tpm, used_of(room, u), u.paused and 0 or stopped_for(call, u), why[1] == '1' and 1 or 0, why[2] or '',
    whole(u.resumes > call.now and u.resumes or 0), why[3] or '', u.probing and 1 or 0, u.automatic and 1 or 0,
    u.provider_cap, u.provider and redis.call('ZCOUNT', u.provider, live, '+inf') or 0,
    why[4] == '1' and (u.resumes > call.now or u.probing) and 1 or 0,
  }
end
local settings, found, unknown = redis.call('HGETALL', room.stem .. 'limits'), {}, {}
for _, u in ipairs(room.upstreams) do found[u.name] = true end
for i = 1, #settings, 2 do
  local field, name = string.match(settings[i], '^(%l+):(.+)$')
  local set = field == 'cap' or field == 'rpm' or field == 'tpm' or field == 'paused' and settings[i + 1] == '1'
  if set and not found[name] then
    found[name] = true
    table.insert(unknown, name)
  end
end
table.sort(unknown)
local waiters = waiters_of(room)
local used, total, queues, users, counts = {}, 0, {}, {}, {}
for _, lease in ipairs(redis.call('ZRANGEBYSCORE', room.holders, live, '+inf')) do
  local queue = string.match(lease, '^[^/]+/([^/|]+)') or ''
  used[queue], total = (used[queue] or 0) + 1, total + 1
end
-- Calls may be in queues that this process does not know, such as those that were removed from its routing file.
local names = {}
for queue in pairs(room.queues) do names[queue] = true end
for queue in pairs(used) do names[queue] = true end
for _, order in ipairs({ room.order, waiters.order }) do
  for _, queue in ipairs(redis.call('ZRANGE', order, 0, -1)) do names[queue] = true end
end
for queue in pairs(names) do
  local waiting = tonumber(redis.call('HGET', room.state, 'n:' .. queue) or '0')
  waiting = waiting + tonumber(redis.call('HGET', waiters.state, 'n:' .. queue) or '0')
  local _, wait = estimate(room, queue .. '|user:')
  table.insert(queues, { queue, node_at(room, queue).weight, used[queue] or 0, waiting, wait })
end
-- most_in counts the members of the flows that have most of a set.
local function most_in(key)
  local list = most > 0 and redis.call('ZREVRANGE', key, 0, most - 1, 'WITHSCORES') or {}
  for i = 1, #list, 2 do counts[list[i]] = (counts[list[i]] or 0) + tonumber(list[i + 1]) end
end
most_in(room.users)
most_in(waiters.users)
for name, count in pairs(counts) do table.insert(users, { name, count }) end
table.sort(users, function(a, b) return a[2] > b[2] or a[2] == b[2] and a[1] < b[1] end)
for i = #users, most + 1, -1 do table.remove(users, i) end
return {
  'OK', total, redis.call('ZCARD', room.waiting) + redis.call('ZCARD', waiters.waiting), stopped(room) or 0, room.paused and 1 or 0,
  redis.call('HGET', room.stem .. 'limits', 'reason') or '', upstreams, unknown,
  redis.call('HGET', room.stem .. 'limits', 'revision') or '0', queues, users,
}
