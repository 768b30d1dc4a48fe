-- claim_sampler: become or remain the process that samples the metrics of the whole system. The caller repeats it.
--
-- KEYS[1] hash with the process that samples and until when
-- ARGV[1] id of this process
-- ARGV[2] time in ms for which the claim holds
--
-- Returns {code}:
--   CLAIMED  this process samples
--   OTHER    another process samples

-- include clock

local process, ttl = ARGV[1], tonumber(ARGV[2])
if process == '' or not ttl then return redis.error_reply('ERR claim_sampler: not a process and a number') end

local now = clock()
local holder, expires = unpack(redis.call('HMGET', KEYS[1], 'process', 'until'))
if holder and holder ~= process and tonumber(expires) > now then return { 'OTHER' } end

redis.call('HSET', KEYS[1], 'process', process, 'until', whole(now + ttl))
redis.call('PEXPIRE', KEYS[1], ttl)
return { 'CLAIMED' }
