-- mark_unavailable: mark a service of a node as unavailable for a time; work that needs it does not go to the node.
--
-- KEYS[1] node
-- KEYS[2] unavailable services of the node: service -> until, Redis's ms
-- ARGV[1] service
-- ARGV[2] time in ms, 0 to remove the mark
-- ARGV[3] stem of the scheduler's keys
-- ARGV[4] node id
--
-- Returns {code}
--   OK    done
--   GONE  node not found; nothing changed

-- include fleet
-- include settle

local key, services, service, ttl = KEYS[1], KEYS[2], ARGV[1], tonumber(ARGV[2])
if not ttl then return redis.error_reply('ERR mark_unavailable: not a number') end
local node = node_of(ARGV[3], ARGV[4])
if not node then return { 'GONE' } end

local now = clock()
if ttl > 0 then
  redis.call('HSET', services, service, whole(now + ttl))
else
  redis.call('HDEL', services, service)
end
local all = redis.call('HGETALL', services)
for i = 1, #all, 2 do
  if tonumber(all[i + 1]) <= now then redis.call('HDEL', services, all[i]) end
end
local last = remark(ARGV[3], node, now)
if last > now then redis.call('PEXPIRE', services, whole(last - now)) end
if redis.call('EXISTS', key) == 1 then redis.call('HSET', key, 'unavailable_until', whole(last)) end
-- include announce
announce(ARGV[3], ARGV[4], ttl > 0 and 'unavailable' or 'available', service)
return { 'OK' }
