-- extend_grace: let a grace last longer on nodes, while the work that holds slots is still being notified to restore them.
--
-- KEYS[1] guard
-- ARGV[1] Redis's ms at which the grace ends unless it is extended, which identifies it
-- ARGV[2] ms from now for which it has to last
-- ARGV[3] ms after ARGV[1] at which it ends at the latest
--
-- Returns {code}
--   GRACE  it lasts for as long as asked for, or until its latest end
--   OK     it has ended, or another one began; nothing changed

-- include clock

local ends, more, latest = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
if not (ends and more and latest) then return redis.error_reply('ERR extend_grace: not a number') end
local now, v = clock(), redis.call('HMGET', KEYS[1], 'grace', 'nodes')
local last = math.max(ends, tonumber(v[2] or '0'))
if tonumber(v[1] or '0') ~= ends or last <= now then return { 'OK' } end
local later = math.min(now + more, ends + latest)
if later > last then redis.call('HSET', KEYS[1], 'nodes', whole(later)) end
return { 'GRACE' }
