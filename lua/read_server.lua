-- read_server: read the identity and the clock of the Redis that has this cell's keys, as scripts see them.
--
-- KEYS[1] guard, to name the cell
--
-- Returns {code, server, now}
--   OK  server: see include guard; now: Redis's clock in ms

-- include guard

if not KEYS[1] then return redis.error_reply('ERR read_server: no key') end
local t = redis.call('TIME')
return { 'OK', server(redis.pcall('INFO', 'replication')), string.format('%.0f', t[1] * 1000 + math.floor(t[2] / 1000)) }
