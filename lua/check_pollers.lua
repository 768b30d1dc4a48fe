-- check_pollers: find task queues of model calls that no process polls, and upstreams that none can call.
--
-- KEYS[1] pollers: see mark_pollers
-- KEYS[2] guard
-- ARGV[1] time in ms for which a poller is known: after a loss of data Redis knows the pollers again within it
-- ARGV[2...] task queues and upstreams
--
-- Returns {code, queues}:
--   OK       queues: those of the arguments without a poller
--   UNKNOWN  Redis lost its data recently: a poller may exist

-- include clock

local ttl = tonumber(ARGV[1])
if not ttl then return redis.error_reply('ERR check_pollers: not a number') end

local now = clock()
local missing = {}
for i = 2, #ARGV do
  if tonumber(redis.call('ZSCORE', KEYS[1], ARGV[i]) or '0') <= now then
    missing[#missing + 1] = ARGV[i]
  end
end
local grace = tonumber(redis.call('HGET', KEYS[2], 'grace') or now)
if #missing > 0 and now < grace + ttl then
  return { 'UNKNOWN', {} }
end
return { 'OK', missing }
