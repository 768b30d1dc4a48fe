-- take_outbox: read what befell generations, oldest first, and forget what was taken up. An entry stays until it is
-- acknowledged, so that whoever dies between reading and doing loses nothing.
--
-- KEYS[1] outbox
-- ARGV[1] most entries to read
-- ARGV[2...] entries to forget
--
-- Returns {code, entries, left}
--   TAKEN  entries as JSON; left = how many there are, these included

local outbox, most = KEYS[1], tonumber(ARGV[1])
if not most then return redis.error_reply('ERR take_outbox: not a number') end
for i = 2, #ARGV do redis.call('ZREM', outbox, ARGV[i]) end
local entries = {}
if most > 0 then entries = redis.call('ZRANGE', outbox, 0, most - 1) end
return { 'TAKEN', entries, redis.call('ZCARD', outbox) }
