-- count_in_flight: count the slots of a node that expire soon. Those of acknowledged work are held for longer, so these
-- belong to commands that the node has not acknowledged.
--
-- KEYS[1] its slots
-- ARGV[1] ms from now within which the slot of a command expires
--
-- Returns {code, count}
--   OK  counted

-- include clock

local within = tonumber(ARGV[1])
if not within then return redis.error_reply('ERR count_in_flight: not a number') end
local now = clock()
return { 'OK', redis.call('ZCOUNT', KEYS[1], whole(now + 1), whole(now + within)) }
