-- update_admission: keep the admissions of an accepted task until its deadline, move it to the queue of its next step, or remove its
-- admissions. An accepted task is never refused one. Idempotent.
--
-- KEYS[1] admissions of the user and service, see admit_task
-- KEYS[2] admissions in the queue of the current step
-- KEYS[3...] admissions of the team and of the application, and then in the other queues of the task, which it leaves
--   each has a key {key}:pace, those of queues {key}:of:{user}, see include retry
-- ARGV[1] what to do: keep; move, which has an effect only if the task has an admission; remove
-- ARGV[2] task
-- ARGV[3] ms until the task's deadline
-- ARGV[4] user
-- ARGV[5] number of the keys of team and application
--
-- Returns {code}:
--   KEPT  the task has its admissions
--   ABSENT  it has none

-- include clock
-- include retry

local act, task, ttl, user, levels = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5])
if not (ttl and task ~= '' and user ~= '' and levels and #KEYS >= 2 + levels and (act == 'keep' or act == 'move' or act == 'remove')) then
  return redis.error_reply('ERR update_admission: unreadable argument')
end

local now = clock()
local function has(key) return tonumber(redis.call('ZSCORE', key, task) or '0') > now end
local admitted = has(KEYS[2])
for i = 3 + levels, #KEYS do admitted = admitted or has(KEYS[i]) end
local stays = ttl > 0 and (act == 'keep' or act == 'move' and admitted)

-- GAP_WEIGHT is the number of admissions over which the time between two is smoothed; it is forgotten after PACE_TTL ms.
local GAP_WEIGHT, PACE_TTL = 16, 600000

-- free removes the task's admission and updates the pace at which admissions become free. The time until the next task arrives is not a part
-- of it.
local function free(key)
  if redis.call('ZREM', key, task) == 0 then return end
  local pace = key .. ':pace'
  local v = redis.call('HMGET', pace, 'freed', 'gap')
  redis.call('HSET', pace, 'freed', whole(now))
  if v[1] then
    local passed = math.max(0, now - tonumber(v[1]))
    local gap = tonumber(v[2] or passed)
    redis.call('HSET', pace, 'gap', string.format('%.3f', gap + (passed - gap) / GAP_WEIGHT))
  end
  if redis.call('EXISTS', key) == 0 then redis.call('HDEL', pace, 'freed') end
  redis.call('PEXPIRE', pace, PACE_TTL)
end

for i = 3 + levels, #KEYS do
  redis.call('ZREM', admissions_of(KEYS[i], user), task)
  free(KEYS[i])
end
local own = admissions_of(KEYS[2], user)
if not stays then redis.call('ZREM', own, task) end
local keys = { unpack(KEYS, 1, 2 + levels) }
if stays then table.insert(keys, own) end
for _, key in ipairs(keys) do
  if stays then
    redis.call('ZADD', key, whole(now + ttl), task)
    if redis.call('PTTL', key) < ttl then redis.call('PEXPIRE', key, whole(ttl)) end
  else
    free(key)
  end
end
return { stays and 'KEPT' or 'ABSENT' }
