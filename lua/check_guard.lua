-- check_guard: determine whether this Redis is the one that has every lease, and open a grace when it may not be.
--
-- KEYS[1] guard
-- ARGV[1] ms of grace to open
--
-- Returns {code, left, until}; until: Redis's ms at which the last grace ends or ended, which identifies it, 0 when there
-- was none
--   OK     leases may be granted; left: a negative number, the ms since the end of the grace
--   GRACE  leases may be granted in left ms

-- include queue

local ttl = tonumber(ARGV[1])
if not ttl then return redis.error_reply('ERR check_guard: not a number') end
local now = clock()
local left = grace(KEYS[1], now, ttl)
local ends = tonumber(redis.call('HGET', KEYS[1], 'grace'))
return { left > 0 and 'GRACE' or 'OK', ends - now, whole(ends) }
