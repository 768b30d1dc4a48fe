-- place_task: keep the places of an accepted task until its deadline, move it to the queue of its next step, or remove its
-- places. An accepted task is never refused a place. Idempotent.
--
-- KEYS[1] places of the user and service, see admit_task
-- KEYS[2] places in the queue of the current step
-- KEYS[3...] places in the other queues of the task, which it leaves
-- ARGV[1] what to do: keep; move, which has an effect only if the task has a place; remove
-- ARGV[2] task
-- ARGV[3] ms until the task's deadline
--
-- Returns {code}:
--   PLACED  the task has its places
--   ABSENT  it has none

-- include clock

local act, task, ttl = ARGV[1], ARGV[2], tonumber(ARGV[3])
if not (ttl and task ~= '' and (act == 'keep' or act == 'move' or act == 'remove')) then
  return redis.error_reply('ERR place_task: unreadable argument')
end

local now = clock()
local function has(key) return tonumber(redis.call('ZSCORE', key, task) or '0') > now end
local placed = false
for i = 2, #KEYS do placed = placed or has(KEYS[i]) end
local stays = ttl > 0 and (act == 'keep' or act == 'move' and placed)

for i = 3, #KEYS do redis.call('ZREM', KEYS[i], task) end
for _, key in ipairs({ KEYS[1], KEYS[2] }) do
  if stays then
    redis.call('ZADD', key, whole(now + ttl), task)
    if redis.call('PTTL', key) < ttl then redis.call('PEXPIRE', key, whole(ttl)) end
  else
    redis.call('ZREM', key, task)
  end
end
return { stays and 'PLACED' or 'ABSENT' }
