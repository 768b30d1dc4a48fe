-- check_server: do what work needs in the Redis that has this cell's keys, so that an error means that it cannot be done: write a key,
-- publish, read the server's id. A server that is a replica is refused even if it accepts writes, because its master overwrites them.
--
-- KEYS[1] guard
-- KEYS[2] key to write, which expires
-- KEYS[3..] one key of each kind, only so that Redis checks whether this user may use them
-- ARGV[1] channel
--
-- Returns {code, server, now}
--   OK  server: see include server; now: Redis's clock in ms

-- include format
-- include server

if not (KEYS[2] and ARGV[1]) then return redis.error_reply('ERR check_server: no key or channel') end
local guard = redis.call('HMGET', KEYS[1], 'server', 'format')
check_format(guard[1], guard[2])
local info = redis.pcall('INFO', 'replication')
local id = server(info)
if type(info) == 'string' and string.find(info, 'role:slave', 1, true) and string.find(info, 'slave_read_only:0', 1, true) then
  return redis.error_reply('READONLY the server is a replica, although it accepts writes (replica-read-only no)')
end
local t = redis.call('TIME')
redis.call('SET', KEYS[2], '', 'PX', 60000)
redis.call('PUBLISH', ARGV[1], '')
return { 'OK', id, string.format('%.0f', t[1] * 1000 + math.floor(t[2] / 1000)) }
