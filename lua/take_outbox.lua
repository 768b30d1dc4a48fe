-- take_outbox: take what befell generations, oldest first, and forget what was taken up. An entry stays until its receipt
-- comes: whoever dies between taking and doing loses nothing. Until a time has passed nobody else gets it: all who hear
-- of it look at once, and one of them is enough.
--
-- KEYS[1] outbox
-- ARGV[1] most entries to take
-- ARGV[2] ms for which they are the caller's
-- ARGV[3...] entries to forget
--
-- Returns {code, entries, left}
--   TAKEN  entries as JSON; left = how many there are, these and those of others included

-- include fleet

local outbox, most, mine = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2])
if not (most and mine) then return redis.error_reply('ERR take_outbox: not a number') end
for i = 3, #ARGV do redis.call('ZREM', outbox, ARGV[i]) end
local now, entries = clock(), {}
if most > 0 then entries = redis.call('ZRANGEBYSCORE', outbox, '-inf', whole(now), 'LIMIT', 0, most) end
for _, entry in ipairs(entries) do redis.call('ZADD', outbox, whole(now + mine), entry) end
return { 'TAKEN', entries, redis.call('ZCARD', outbox) }
