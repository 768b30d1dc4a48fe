-- take_outbox: delete the handled notices from the outbox and take the oldest of the others. A notice stays until its
-- receipt is given, so that none is lost with a process that took it. For a time no other caller gets the same notice.
--
-- KEYS[1] outbox
-- ARGV[1] maximum number of notices to take
-- ARGV[2] ms for which no other caller gets them
-- ARGV[3...] notices to delete
--
-- Returns {code, entries, left}
--   TAKEN  entries: notices as JSON; left: the number of notices in the outbox, including taken ones

-- include fleet
-- include node

local outbox, limit, reserved = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2])
if not (limit and reserved) then return redis.error_reply('ERR take_outbox: not a number') end
for i = 3, #ARGV do redis.call('ZREM', outbox, ARGV[i]) end
local now, entries = clock(), {}
if limit > 0 then entries = redis.call('ZRANGEBYSCORE', outbox, '-inf', whole(now), 'LIMIT', 0, limit) end
for _, entry in ipairs(entries) do redis.call('ZADD', outbox, whole(now + reserved), entry) end
return { 'TAKEN', entries, redis.call('ZCARD', outbox) }
