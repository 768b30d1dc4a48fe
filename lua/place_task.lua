-- place_task: keep the places of an accepted task until its deadline, move it to the queue of its next step, or remove its
-- places. An accepted task is never refused a place. Idempotent.
--
-- KEYS[1] places of the user and service, see admit_task
-- KEYS[2] pace of the model of the step that finished, see include served
-- KEYS[3] leases that wait for this model
-- KEYS[4] places in the queue of the current step
-- KEYS[5...] places in the other queues of the task, which it leaves
-- ARGV[1] what to do: keep; move, which has an effect only if the task has a place; remove
-- ARGV[2] task
-- ARGV[3] ms until the task's deadline
-- ARGV[4] 1 if a call of the model finished
--
-- Returns {code}:
--   PLACED  the task has its places
--   ABSENT  it has none

-- include clock
-- include served

local act, task, ttl = ARGV[1], ARGV[2], tonumber(ARGV[3])
if not (ttl and task ~= '' and (act == 'keep' or act == 'move' or act == 'remove')) then
  return redis.error_reply('ERR place_task: unreadable argument')
end

local now = clock()
local function has(key) return tonumber(redis.call('ZSCORE', key, task) or '0') > now end
local here, elsewhere = has(KEYS[4]), false
for i = 5, #KEYS do elsewhere = elsewhere or has(KEYS[i]) end
local placed = here or elsewhere
local stays = ttl > 0 and (act == 'keep' or act == 'move' and placed)

-- A retried call finds the task where the first one left it, and counts nothing.
if ARGV[4] == '1' and (act == 'move' and elsewhere or act == 'remove' and placed) then
  count_served(KEYS[2], KEYS[3], now)
end
for i = 5, #KEYS do redis.call('ZREM', KEYS[i], task) end
for _, key in ipairs({ KEYS[1], KEYS[4] }) do
  if stays then
    redis.call('ZADD', key, whole(now + ttl), task)
    if redis.call('PTTL', key) < ttl then redis.call('PEXPIRE', key, whole(ttl)) end
  else
    redis.call('ZREM', key, task)
  end
end
return { stays and 'PLACED' or 'ABSENT' }
