-- The submissions of one user, in a sorted set of tasks scored by the Redis time in ms: an exact sliding window. A task is
-- counted once, however often it is submitted.

-- rate_of returns how many submissions are left and in how many ms the next one leaves the window, 0 when none is in it. With
-- a limit of 0 there is none: -1 are left. wait: ms until a submission is permitted, 0 when one is.
local function rate_of(key, limit, window, now)
  if limit == 0 then return { left = -1, reset = 0, wait = 0 } end
  local since = '(' .. whole(now - window)
  local used, rate = redis.call('ZCOUNT', key, since, '+inf'), { reset = 0, wait = 0 }
  local function leaves(rank)
    local one = redis.call('ZRANGEBYSCORE', key, since, '+inf', 'WITHSCORES', 'LIMIT', rank, 1)
    return math.max(1, tonumber(one[2]) + window - now)
  end
  if used > 0 then rate.reset = leaves(0) end
  if used >= limit then rate.wait = leaves(used - limit) end
  rate.left = math.max(0, limit - used)
  return rate
end

-- The tokens of the user's tasks: a bucket that holds those of a window, and fills evenly. The key has the time in ms at which it is full.

-- tokens_of is as rate_of, for a task of so many tokens. One that has more than the limit is admitted when the bucket is full.
local function tokens_of(key, limit, size, window, now)
  if limit == 0 then return { left = -1, reset = 0, wait = 0 } end
  local used = math.max(0, tonumber(redis.call('GET', key) or '0') - now)
  local cost = size * window / limit
  return {
    left = math.max(0, math.floor((window - used) * limit / window)),
    reset = math.ceil(used),
    wait = math.ceil(math.max(0, used + math.min(cost, window) - window)),
  }
end

-- use_tokens takes the tokens of a task; a negative number returns them.
local function use_tokens(key, limit, size, window, now)
  if limit == 0 or size == 0 then return end
  local full = math.max(now, tonumber(redis.call('GET', key) or '0')) + size * window / limit
  if full <= now then
    redis.call('DEL', key)
  else
    redis.call('SET', key, string.format('%.3f', full), 'PX', math.ceil(full - now))
  end
end
