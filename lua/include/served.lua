-- The pace of a model whose slots are all in use: hash with at (Redis time in ms of the last finished call), busy (1 if calls
-- waited then), and n and ms (calls that finished and the time that they took together; older ones weigh less).

local SERVED_MEMORY = 60000 -- ms after which a finished call weighs 1/e
local SERVED_TTL = 3600000

-- count_served records that a call finished. The time since the last one counts only if calls were waiting then.
local function count_served(key, waiting, now)
  local v = redis.call('HMGET', key, 'at', 'busy', 'n', 'ms')
  local n, ms = tonumber(v[3] or '0'), tonumber(v[4] or '0')
  if v[2] == '1' then
    local took = math.max(0, now - tonumber(v[1]))
    local weight = math.exp(-took / SERVED_MEMORY)
    n, ms = n * weight + 1, ms * weight + took
  end
  redis.call('HSET', key, 'at', whole(now), 'busy', redis.call('ZCARD', waiting) > 0 and '1' or '0',
    'n', string.format('%.6f', n), 'ms', string.format('%.3f', ms))
  redis.call('PEXPIRE', key, SERVED_TTL)
end

-- interval_of returns the mean time in ms between two finished calls of a model that is in full use; -1 when it is not known.
local function interval_of(key)
  local v = redis.call('HMGET', key, 'n', 'ms')
  local n = tonumber(v[1] or '0')
  if n <= 0 then return -1 end
  return tonumber(v[2]) / n
end
