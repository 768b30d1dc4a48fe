-- set_model_limits: replace the limits of a model that operators have set, and grant the slots that are free now.
--
-- KEYS[1] guard
-- ARGV[1] prefix of the keys
-- ARGV[2] lease time in ms
-- ARGV[3] time in ms within which a grant has to be claimed
-- ARGV[4] last epoch of the guard that the caller has seen
-- ARGV[5] model
-- ARGV[6] cap, ARGV[7] requests, ARGV[8] tokens per minute; 0 is no limit per minute; empty: as configured
-- ARGV[9] 1: paused until the next call, 0: not paused
-- ARGV[10] reason of the pause
-- ARGV[11] number of the last resumption; a new one ends a pause that a provider caused, and forgets its failures
-- ARGV[12] event of the operator stream
--
-- Returns {code, next, promotions}:
--   OK  next and promotions: as in release_slot

-- include room
-- include operator

local call = call_of(ARGV[1], KEYS[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]))
local limits, readable = call.prefix .. 'model:' .. ARGV[5] .. ':limits', call.ttl and call.grant and call.known
for i = 6, 8 do readable = readable and string.match(ARGV[i], '^%d*$') end
if not (readable and string.match(ARGV[9], '^[01]$') and string.match(ARGV[11], '^%d+$')) then return redis.error_reply('ERR set_model_limits: unreadable argument') end

for i, field in ipairs({ 'cap', 'rpm', 'tpm' }) do
  if ARGV[5 + i] == '' then
    redis.call('HDEL', limits, field)
  else
    redis.call('HSET', limits, field, ARGV[5 + i])
  end
end
local resumed = redis.call('HGET', limits, 'resumed') or '0'
redis.call('HSET', limits, 'paused', ARGV[9], 'reason', ARGV[10], 'resumed', ARGV[11])
if ARGV[11] ~= resumed then
  redis.call('HDEL', limits, 'until', 'cause', 'probe')
  redis.call('DEL', call.prefix .. 'model:' .. ARGV[5] .. ':breaker')
end
operator_event(call.prefix, ARGV[12])
local room = room_of(call, ARGV[5])
if not room then return { 'OK', 0, {} } end
redis.call('HDEL', room.state, 'granted') -- what follows has another pace
purge(room)
serve(room)
return { 'OK', next_expiry(room), call.promotions }
