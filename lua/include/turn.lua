-- Who is admitted to a full queue. The last tenth of its places is for users who have none in it: one with few tasks need not wait
-- because of those who have many. A user who is refused gets a turn: a time at which a place is expected to be free, after those of the
-- users refused before. It is what the user is asked to wait, and a free place is kept for those whose turn began earlier, so neither the
-- number of submissions nor their moments decide who is admitted. A user has one turn at a time in a queue. Keys of places:
--   {key}:of:{user}    zset  task of a user with a place -> expiry
--   {key}:turns        zset  user with a place -> time of the turn
--   {key}:turns:first  zset  the same of users without one
--   {key}:pace         hash  freed: when the last place became free; gap: ms from one such time to the next, smoothed

-- A turn lasts TURN_MS: clients round the time until it up to seconds. None begins later than in MAX_TURN ms.
local TURN_MS, MAX_TURN = 3000, 60000

local function places_of(key, user) return key .. ':of:' .. user end

-- has_place reports whether a user has a place in a queue.
local function has_place(key, user, now) return redis.call('ZCOUNT', places_of(key, user), '(' .. whole(now), '+inf') > 0 end

-- bound_of returns how many places a user may find taken in a queue of so many.
local function bound_of(places, has) return has and places - math.floor(places / 10) or places end

local function turns_of(key, has) return has and key .. ':turns' or key .. ':turns:first' end

-- turn_of returns the time of a user's turn, 0 without one, and whether it has begun.
local function turn_of(turns, user, now)
  local turn = tonumber(redis.call('ZSCORE', turns, user) or '0')
  if turn <= now - TURN_MS then return 0, false end
  return turn, turn <= now
end

-- earlier returns how many turns have begun before that of a user; all of them for one whose turn has not.
local function earlier(turns, turn, begun, now)
  return redis.call('ZCOUNT', turns, '(' .. whole(now - TURN_MS), begun and '(' .. whole(turn) or whole(now))
end

-- reserved_from returns how many free places are kept for others: for those whose turn began before that of a user, and from a user with
-- a place for all without one whose turn has begun.
local function reserved_from(key, user, has, now)
  local turns = turns_of(key, has)
  local turn, begun = turn_of(turns, user, now)
  return earlier(turns, turn, begun, now) + (has and earlier(turns_of(key, false), 0, false, now) or 0)
end

-- pace_of returns the time in ms between two places that become free, -1 when it is not known.
local function pace_of(key) return math.ceil(tonumber(redis.call('HGET', key .. ':pace', 'gap') or '-1')) end
