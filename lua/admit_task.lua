-- admit_task: admit a submission, or refuse it. An admitted task has an admission in the queue of its first step, one among
-- the tasks of its user and service, and one in each of its team and application, and is counted against the user's rate. Admissions are leases: they expire unless the
-- workflow keeps them with update_admission. Idempotent by task: nothing is counted twice.
-- Some are kept for users who have none in the queue, and for those whose retry has begun, see include retry.
--
-- KEYS[1] admissions in the queue: task -> expiry; its keys {key}:of:{user}, {key}:retries and {key}:retries:first, see include retry
-- KEYS[2] admissions of the user and service: task -> expiry; its key {key}:pace, see include retry
-- KEYS[3] recent submissions of the user, see include rate
-- KEYS[4] when the tokens of the user's last minute are used up, see include rate
-- KEYS[5...] admissions of the team and of the application, of those that the task has: task -> expiry; their keys {key}:pace, see include retry
-- ARGV[1] task
-- ARGV[2] maximum number of admissions in the queue, 0 for no limit
-- ARGV[3] maximum number of admissions of the user and service, 0 for no limit
-- ARGV[4] maximum number of submissions in the window, 0 for no limit
-- ARGV[5] window in ms
-- ARGV[6] time in ms for which the admissions last
-- ARGV[7] user
-- ARGV[8] maximum number of tokens in the window, 0 for no limit
-- ARGV[9] tokens of the task
-- ARGV[10...] maximum number of admissions of the team and of the application, in the order of the keys, 0 for no limit
--
-- Returns {code, left, reset, ahead, retry, tokens_left, tokens_reset}:
--   ADMITTED      the task has its admissions
--   RATE_LIMITED  the user has submitted too many tasks
--   TOKENS_LIMITED  the user's tasks have too many tokens
--   QUEUE_FULL    the queue is full, or what is left is kept for other users
--   SERVICE_FULL  the user and service have as many tasks as they may
--   TEAM_FULL, APP_FULL  the team, or the application, has as many tasks as it may
--   left   submissions that the user may still make, -1 without a limit
--   reset  ms until the next submission leaves the window, 0 when none is in it
--   ahead  number of other tasks that are admitted where the task was refused, otherwise in the queue
--   retry  ms until a refused submission may succeed: exact for the rate; for an admission of the user and service, team or application the time
--          between two that end, -1 when it is not known; 0 for an admission in the queue, which plan_retry states
--   tokens_left, tokens_reset  as left and reset, of the tokens: ms until all of them may be used

-- include clock
-- include rate
-- include retry

local queue, service, recent, spent, task = KEYS[1], KEYS[2], KEYS[3], KEYS[4], ARGV[1]
local queue_max, service_max, limit = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local window, hold, user = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7]
local token_limit, size = tonumber(ARGV[8]), tonumber(ARGV[9])
local readable = #ARGV == 5 + #KEYS
for i = 8, #ARGV do readable = readable and tonumber(ARGV[i]) end
if not (task ~= '' and queue_max and service_max and limit and window and hold and user ~= '' and readable) then
  return redis.error_reply('ERR admit_task: unreadable argument')
end

local now = clock()
local live = '(' .. whole(now)
-- others returns how many other tasks are admitted, and until when this one is.
local function others(key)
  local mine = tonumber(redis.call('ZSCORE', key, task) or '0')
  return redis.call('ZCOUNT', key, live, '+inf') - (mine > now and 1 or 0), mine
end

local rate = rate_of(recent, limit, window, now)
local counted = tonumber(redis.call('ZSCORE', recent, task) or '0') > now - window
local tokens = tokens_of(spent, token_limit, size, window, now)
local in_queue, queue_until = others(queue)
local in_service, service_until = others(service)
local function reply(code, ahead, retry) return { code, rate.left, rate.reset, ahead, retry, tokens.left, tokens.reset } end
if rate.wait > 0 and not counted then return reply('RATE_LIMITED', in_queue, rate.wait) end
if tokens.wait > 0 and not counted then return reply('TOKENS_LIMITED', in_queue, tokens.wait) end
local has = has_admission(queue, user, now)
if queue_max > 0 and queue_until <= now and in_queue + reserved_from(queue, user, has, now) >= bound_of(queue_max, has) then
  return reply('QUEUE_FULL', in_queue, 0)
end
if service_max > 0 and in_service >= service_max and service_until <= now then
  return reply('SERVICE_FULL', in_service, pace_of(service))
end
local admissions = { { queue, queue_until }, { admissions_of(queue, user), queue_until }, { service, service_until } }
for i = 5, #KEYS do
  local admitted, level_until = others(KEYS[i])
  local level_max = tonumber(ARGV[5 + i])
  if level_max > 0 and admitted >= level_max and level_until <= now then
    return reply(string.find(KEYS[i], ':+app:', 1, true) and 'APP_FULL' or 'TEAM_FULL', admitted, pace_of(KEYS[i]))
  end
  table.insert(admissions, { KEYS[i], level_until })
end

redis.call('ZREM', retries_of(queue, has), user)
for _, admission in ipairs(admissions) do
  local key = admission[1]
  redis.call('ZREMRANGEBYSCORE', key, '-inf', whole(now))
  redis.call('ZADD', key, whole(math.max(admission[2], now + hold)), task)
  if redis.call('PTTL', key) < hold then redis.call('PEXPIRE', key, hold) end
end
if limit > 0 or token_limit > 0 then
  redis.call('ZREMRANGEBYSCORE', recent, '-inf', whole(now - window))
  if not counted then
    redis.call('ZADD', recent, whole(now), task)
    redis.call('PEXPIRE', recent, window)
    use_tokens(spent, token_limit, size, window, now)
    rate = rate_of(recent, limit, window, now)
    tokens = tokens_of(spent, token_limit, 0, window, now)
  end
end
return reply('ADMITTED', in_queue, 0)
