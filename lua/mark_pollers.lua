-- mark_pollers: state that this process polls task queues of model calls, or can call upstreams. The caller repeats it.
--
-- KEYS[1] pollers: sorted set of task queues and upstreams, scored by when their last poller is presumed gone
-- ARGV[1] time in ms for which this holds
-- ARGV[2...] task queues and upstreams
--
-- Returns {code}: MARKED

-- include clock

local ttl = tonumber(ARGV[1])
if not ttl then return redis.error_reply('ERR mark_pollers: not a number') end

local now = clock()
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', whole(now))
for i = 2, #ARGV do
  local known = tonumber(redis.call('ZSCORE', KEYS[1], ARGV[i]) or '0')
  redis.call('ZADD', KEYS[1], whole(math.max(known, now + ttl)), ARGV[i])
end
return { 'MARKED' }
