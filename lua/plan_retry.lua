-- plan_retry: plan the retry of a user whom a full queue refused, see include retry. Idempotent until the retry has begun; one that began
-- while the queue was full is planned again, before those that have not begun.
--
-- KEYS[1] admissions in the queue, see admit_task
-- ARGV[1] user
--
-- Returns {code, wait}:
--   OK  wait: ms until the user's retry; -1 when it is not known, because no admission has ended recently

-- include clock
-- include retry

local queue, user, now = KEYS[1], ARGV[1], clock()
if user == '' then return redis.error_reply('ERR plan_retry: no user') end
local gap, retries = pace_of(queue), retries_of(queue, has_admission(queue, user, now))
local retry, begun = retry_of(retries, user, now)
if gap < 0 then return { 'OK', -1 } end
if retry > now then return { 'OK', retry - now } end

if begun then
  retry = now + gap * (earlier(retries, retry, begun, now) + 1)
else
  local last = redis.call('ZREVRANGE', retries, 0, 0, 'WITHSCORES')[2]
  retry = math.max(now, tonumber(last or '0')) + gap
end
retry = math.min(retry, now + MAX_RETRY)
redis.call('ZREMRANGEBYSCORE', retries, '-inf', whole(now - RETRY_MS))
redis.call('ZADD', retries, whole(retry), user)
redis.call('PEXPIRE', retries, MAX_RETRY + RETRY_MS)
return { 'OK', retry - now }
