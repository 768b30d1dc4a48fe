-- switch_strategy: decide the strategy of a dynamic pool by load and latency, with hysteresis and a minimum time between
-- two switches, and record each switch.
--
-- KEYS[1] the pool's current strategy
-- KEYS[2] its last switches
-- ARGV[1] pool
-- ARGV[2] load, 0-1
-- ARGV[3] latency in ms
-- ARGV[4] load above which it becomes load-balanced
-- ARGV[5] load below which it no longer is
-- ARGV[6] latency above which it becomes locality
-- ARGV[7] latency below which it no longer is
-- ARGV[8] minimum time in ms between two switches
-- ARGV[9] channel of updated configuration
-- ARGV[10] prefix of the keys
--
-- Returns {code, strategy, since, before}
--   SWITCHED  to strategy, from before
--   KEPT      since: Redis's ms of the last switch, 0 when there was none

-- include fleet
-- include node

local LIFETIME = 3600 -- s after the last call: a pool that is no longer dynamic, or is deleted, leaves nothing

local pool, load, latency = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local load_high, load_low, late_high, late_low = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local dwell = tonumber(ARGV[8])
if not (load and latency and load_high and load_low and late_high and late_low and dwell) then
  return redis.error_reply('ERR switch_strategy: not a number')
end
local state = redis.call('HMGET', KEYS[1], 'strategy', 'since_ms')
local current, since = state[1] or 'round-robin', tonumber(state[2] or '0')
local to = 'round-robin'
if load > load_high or (current == 'load-balanced' and load >= load_low) then
  to = 'load-balanced'
elseif latency > late_high or (current == 'locality' and latency >= late_low) then
  to = 'locality'
end
local now = clock()
redis.call('EXPIRE', KEYS[1], LIFETIME)
redis.call('EXPIRE', KEYS[2], LIFETIME)
if to == current or now - since < dwell then return { 'KEPT', current, whole(since), current } end

redis.call('HSET', KEYS[1], 'strategy', to, 'since_ms', whole(now))
redis.call('LPUSH', KEYS[2], table.concat({ current, to, string.format('%.4f', load), string.format('%.1f', latency), whole(now) }, '\n'))
redis.call('LTRIM', KEYS[2], 0, 49)
redis.call('EXPIRE', KEYS[1], LIFETIME)
redis.call('EXPIRE', KEYS[2], LIFETIME)
redis.call('PUBLISH', ARGV[9], 'strategies')
-- include operator
operator_event(ARGV[10], '{"type":"strategy","ts":' .. whole(now) .. ',"poolId":' .. cjson.encode(pool) .. ',"status":"' .. to
  .. '","before":"' .. current .. '"}')
return { 'SWITCHED', to, whole(now), current }
