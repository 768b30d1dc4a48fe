-- take_turn: give a user whom a full queue refused a turn, see include turn. Idempotent until the turn has begun; one that began without a
-- free place is repeated, before those that have not begun.
--
-- KEYS[1] places in the queue, see admit_task
-- ARGV[1] user
--
-- Returns {code, wait}:
--   OK  wait: ms until the user's turn; -1 when it is not known, because no place has become free recently

-- include clock
-- include turn

local queue, user, now = KEYS[1], ARGV[1], clock()
if user == '' then return redis.error_reply('ERR take_turn: no user') end
local gap, turns = pace_of(queue), turns_of(queue, has_place(queue, user, now))
local turn, begun = turn_of(turns, user, now)
if gap < 0 then return { 'OK', -1 } end
if turn > now then return { 'OK', turn - now } end

if begun then
  turn = now + gap * (earlier(turns, turn, begun, now) + 1)
else
  local last = redis.call('ZREVRANGE', turns, 0, 0, 'WITHSCORES')[2]
  turn = math.max(now, tonumber(last or '0')) + gap
end
turn = math.min(turn, now + MAX_TURN)
redis.call('ZREMRANGEBYSCORE', turns, '-inf', whole(now - TURN_MS))
redis.call('ZADD', turns, whole(turn), user)
redis.call('PEXPIRE', turns, MAX_TURN + TURN_MS)
return { 'OK', turn - now }
