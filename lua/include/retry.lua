-- Who is admitted to a full queue. The last tenth of its admissions is for users who have none in it: one with few tasks need not wait
-- because of those who have many. For a user who is refused a retry is planned: a time at which the queue is expected to admit one more task,
-- after those of the users refused before. It is what the user is asked to wait, and an admission is kept for those whose retry began
-- earlier, so neither the number of submissions nor their moments decide who is admitted. A user has one retry at a time in a queue. Keys of
-- admissions:
--   {key}:of:{user}      zset  task of a user that is admitted -> expiry
--   {key}:retries        zset  user with an admission -> time of the retry
--   {key}:retries:first  zset  the same of users without one
--   {key}:pace           hash  freed: when the last admission ended; gap: ms from one such time to the next, smoothed

-- A retry lasts RETRY_MS: clients round the time until it up to seconds. None begins later than in MAX_RETRY ms.
local RETRY_MS, MAX_RETRY = 3000, 60000

local function admissions_of(key, user) return key .. ':of:' .. user end

-- has_admission reports whether a user has an admission in a queue.
local function has_admission(key, user, now) return redis.call('ZCOUNT', admissions_of(key, user), '(' .. whole(now), '+inf') > 0 end

-- bound_of returns the number of admissions up to which a user is admitted to a queue of so many.
local function bound_of(admissions, has) return has and admissions - math.floor(admissions / 10) or admissions end

local function retries_of(key, has) return has and key .. ':retries' or key .. ':retries:first' end

-- retry_of returns the time of a user's retry, 0 without one, and whether it has begun.
local function retry_of(retries, user, now)
  local retry = tonumber(redis.call('ZSCORE', retries, user) or '0')
  if retry <= now - RETRY_MS then return 0, false end
  return retry, retry <= now
end

-- earlier returns how many retries have begun before that of a user; all of them for one whose retry has not.
local function earlier(retries, retry, begun, now)
  return redis.call('ZCOUNT', retries, '(' .. whole(now - RETRY_MS), begun and '(' .. whole(retry) or whole(now))
end

-- reserved_from returns how many free admissions are kept for others: for those whose retry began before that of a user, and from a user with
-- an admission for all without one whose retry has begun.
local function reserved_from(key, user, has, now)
  local retries = retries_of(key, has)
  local retry, begun = retry_of(retries, user, now)
  return earlier(retries, retry, begun, now) + (has and earlier(retries_of(key, false), 0, false, now) or 0)
end

-- pace_of returns the time in ms between two admissions that become free, -1 when it is not known.
local function pace_of(key) return math.ceil(tonumber(redis.call('HGET', key .. ':pace', 'gap') or '-1')) end
