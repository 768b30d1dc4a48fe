-- set_model_limits: replace the limits of a model, or of one of its upstreams, that operators have set, and grant the slots that are free
-- now.
--
-- KEYS[1] guard
-- ARGV[1] prefix of the keys
-- ARGV[2] lease time in ms
-- ARGV[3] time in ms within which a grant has to be claimed
-- ARGV[4] last epoch of the guard that the caller has seen
-- ARGV[5] model
-- ARGV[6] upstream, empty for the model
-- ARGV[7] cap, ARGV[8] requests, ARGV[9] tokens per minute; 0 is no limit per minute; empty: as configured. For a model they are those
--         of its only upstream.
-- ARGV[10] 1: paused until the next call, 0: not paused
-- ARGV[11] reason of the pause
-- ARGV[12] number of the last resumption; a new one ends a pause that a provider caused, and forgets its failures; for a model it
--          ends those of all its upstreams
-- ARGV[13] event of the operator stream
--
-- Returns {code, next, promotions}:
--   OK  next and promotions: as in release_slot

-- include room
-- include operator

local call = call_of(ARGV[1], KEYS[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]))
local stem, name = call.prefix .. 'model:' .. ARGV[5] .. ':', ARGV[6]
local limits, readable = stem .. 'limits', call.ttl and call.grant and call.known
for i = 7, 9 do readable = readable and string.match(ARGV[i], '^%d*$') end
if not (readable and string.match(ARGV[10], '^[01]$') and string.match(ARGV[12], '^%d+$')) then return redis.error_reply('ERR set_model_limits: unreadable argument') end

local function field(f) return name == '' and f or f .. ':' .. name end
for i, f in ipairs({ 'cap', 'rpm', 'tpm' }) do
  if ARGV[6 + i] == '' then
    redis.call('HDEL', limits, field(f))
  else
    redis.call('HSET', limits, field(f), ARGV[6 + i])
  end
end
local resumed = redis.call('HGET', limits, field('resumed')) or '0'
redis.call('HSET', limits, field('paused'), ARGV[10], field('reason'), ARGV[11], field('resumed'), ARGV[12])
local room = room_of(call, ARGV[5])
if ARGV[12] ~= resumed then
  local names = { [name] = name ~= '' or nil }
  if name == '' then -- also those that are not in the limits
    for _, key in ipairs(redis.call('HKEYS', limits)) do names[string.match(key, '^until:(.*)$') or ''] = true end
    for _, u in ipairs(room and room.upstreams or {}) do names[u.name] = true end
  end
  for u in pairs(names) do
    redis.call('HDEL', limits, 'until:' .. u, 'cause:' .. u, 'probe:' .. u, 'ramp:' .. u, 'broken:' .. u)
    redis.call('DEL', stem .. 'breaker:' .. u)
  end
  room = room_of(call, ARGV[5])
end
operator_event(call.prefix, ARGV[13])
if not room then return { 'OK', 0, {} } end
redis.call('HDEL', room.state, 'granted') -- what follows has another pace
purge(room)
serve(room)
return { 'OK', next_expiry(room), call.promotions }
