-- mark_pollers: state that this process polls task queues of model calls. The caller repeats it.
--
-- KEYS[1] pollers: sorted set of task queues, scored by when their last poller is presumed gone
-- ARGV[1] time in ms for which this holds
-- ARGV[2...] task queues
--
-- Returns {code}: MARKED

local ttl = tonumber(ARGV[1])
if not ttl then return redis.error_reply('ERR mark_pollers: not a number') end

local t = redis.call('TIME')
local now = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now))
for i = 2, #ARGV do
  local known = tonumber(redis.call('ZSCORE', KEYS[1], ARGV[i]) or '0')
  redis.call('ZADD', KEYS[1], string.format('%.0f', math.max(known, now + ttl)), ARGV[i])
end
return { 'MARKED' }
