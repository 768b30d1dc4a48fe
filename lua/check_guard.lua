-- check_guard: see whether this Redis is the one that knows every lease, and open a grace when it may not be (L12).
-- Run before a server sees the scripts that take node slots: a server that has them in its cache was checked.
--
-- KEYS[1] guard
-- ARGV[1] ms of grace to open
--
-- Returns {code, ms}
--   OK     leases may be granted
--   GRACE  not for ms

-- include room

local ttl = tonumber(ARGV[1])
if not ttl then return redis.error_reply('ERR check_guard: not a number') end
local left = grace(KEYS[1], clock(), ttl)
if left > 0 then return { 'GRACE', left } end
return { 'OK', 0 }
