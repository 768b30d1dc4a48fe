-- sweep_models: grant and promote what nothing else has, such as after the expiry of slots or a change of limits, and return the
-- promotions whose workflows were not signalled in time.
--
-- KEYS[1] guard
-- ARGV[1] prefix of the keys
-- ARGV[2] lease time in ms
-- ARGV[3] time in ms within which a grant has to be claimed
-- ARGV[4] last epoch of the guard that the caller has seen
-- ARGV[5...] model, and its limits (see limits_of in include upstream), of each model
--
-- Returns {code, promotions}:
--   SWEPT  promotions: model and waiter of each workflow that the caller has to signal

-- include room

local call = call_of(ARGV[1], KEYS[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]))
local readable = call.ttl and call.grant and call.known and #ARGV % 2 == 0
for i = 6, #ARGV, 2 do readable = readable and limits_of(ARGV[i]) end
if not readable then return redis.error_reply('ERR sweep_models: unreadable argument') end

-- Flows return from aside when a slot or a call of their user ends. The sweep checks them, too, each one once in RECHECK ms, because limits
-- change, and a call serves a limited number of rooms.
local RECHECK = 500

for i = 5, #ARGV, 2 do
  local room = room_of(call, ARGV[i], ARGV[i + 1])
  local waiters = waiters_of(room)
  for _, waiter in ipairs(redis.call('ZRANGEBYSCORE', waiters.promoted, '-inf', whole(call.now), 'LIMIT', 0, MAX_STEPS)) do
    redis.call('ZADD', waiters.promoted, whole(call.now + RESIGNAL), waiter)
    table.insert(call.promotions, room.model)
    table.insert(call.promotions, waiter)
  end
  purge(room)
  for _, path in ipairs(redis.call('ZRANGEBYSCORE', waiters.aside, '-inf', whole(call.now - RECHECK), 'LIMIT', 0, MAX_STEPS)) do
    return_node(waiters, node_at(waiters, path))
  end
  serve(room)
end
return { 'SWEPT', call.promotions }
