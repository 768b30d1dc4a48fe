-- withdraw_submission: undo what admit_task has done for a task that is refused afterwards, so that it uses nothing of any limit. Idempotent.
--
-- KEYS[1...] as those of admit_task
-- ARGV[1] task
-- ARGV[2] user
-- ARGV[3] window in ms
-- ARGV[4] maximum number of tokens in the window, 0 for no limit
-- ARGV[5] tokens of the task
--
-- Returns {code}:
--   OK  it has no admissions

-- include clock
-- include rate
-- include retry

local task, user, window, limit, size = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
if not (task ~= '' and user ~= '' and window and limit and size and #KEYS >= 4) then
  return redis.error_reply('ERR withdraw_submission: unreadable argument')
end

redis.call('ZREM', admissions_of(KEYS[1], user), task)
for i = 1, #KEYS do
  if i ~= 3 and i ~= 4 then redis.call('ZREM', KEYS[i], task) end
end
if redis.call('ZREM', KEYS[3], task) == 1 then use_tokens(KEYS[4], limit, -size, window, clock()) end
return { 'OK' }
