-- check_guard: determine whether this Redis is the one that has every lease, and open a grace when it may not be.
--
-- KEYS[1] guard
-- ARGV[1] ms of grace to open
-- ARGV[2] last epoch of the guard that the caller has seen
--
-- Returns {code, left, until, epoch}; until: Redis's ms at which the last grace ends or ended unless it is extended, which
-- identifies it, 0 when there was none; epoch: the guard's
--   OK     leases may be granted; left: a negative number, the ms since the end of the grace
--   GRACE  leases on nodes may be granted in left ms

-- include clock
-- include guard

local ttl, known = tonumber(ARGV[1]), tonumber(ARGV[2])
if not (ttl and known) then return redis.error_reply('ERR check_guard: not a number') end
local now = clock()
local left = grace(KEYS[1], now, ttl, known, true)
local v = redis.call('HMGET', KEYS[1], 'grace', 'epoch', 'nodes')
local ends = tonumber(v[1])
return { left > 0 and 'GRACE' or 'OK', math.max(ends, tonumber(v[3] or '0')) - now, whole(ends), v[2] }
