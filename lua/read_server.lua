-- read_server: read the identity and the clock of the Redis that has this cell's keys, as scripts see them. It fails where the keys
-- have a format that this version does not know.
--
-- KEYS[1] guard
--
-- Returns {code, server, now}
--   OK  server: see include server; now: Redis's clock in ms

-- include format
-- include server

if not KEYS[1] then return redis.error_reply('ERR read_server: no key') end
local guard = redis.call('HMGET', KEYS[1], 'server', 'format')
check_format(guard[1], guard[2])
local t = redis.call('TIME')
return { 'OK', server(redis.pcall('INFO', 'replication')), string.format('%.0f', t[1] * 1000 + math.floor(t[2] / 1000)) }
