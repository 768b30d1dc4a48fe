-- mark_unavailable: mark a service of a node as unavailable for a time; work that needs it does not go to the node.
--
-- KEYS[1] node
-- KEYS[2] unavailable services of the node: service -> until, Redis's ms
-- ARGV[1] service
-- ARGV[2] time in ms, 0 to remove the mark
-- ARGV[3] stem of the scheduler's keys
-- ARGV[4] node id
-- ARGV[5] channel of nodes with free capacity: a removed mark is published there, too
--
-- Returns {code}
--   OK    done
--   GONE  node not found; nothing changed

-- include fleet

local key, services, service, ttl = KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[2])
if not ttl then return redis.error_reply('ERR mark_unavailable: not a number') end
if redis.call('EXISTS', key) == 0 then return { 'GONE' } end

local now, last = clock(), 0
if ttl > 0 then
  redis.call('HSET', services, service, whole(now + ttl))
elseif redis.call('HDEL', services, service) == 1 then
  redis.call('PUBLISH', ARGV[5], ARGV[4])
end
local all = redis.call('HGETALL', services)
for i = 1, #all, 2 do
  local until_ms = tonumber(all[i + 1])
  if until_ms <= now then redis.call('HDEL', services, all[i]) end
  last = math.max(last, until_ms)
end
if last > now then redis.call('PEXPIRE', services, whole(last - now)) end
redis.call('HSET', key, 'unavailable_until', whole(last))
announce(ARGV[3], ARGV[4])
return { 'OK' }
