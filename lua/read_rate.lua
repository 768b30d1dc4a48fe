-- read_rate: read how many submissions a user may still make.
--
-- KEYS[1] recent submissions of the user, see include rate
-- ARGV[1] maximum number of submissions in the window, 0 for no limit
-- ARGV[2] window in ms
--
-- Returns {code, left, reset}: code is OK; left and reset as in admit_task

-- include clock
-- include rate

local limit, window = tonumber(ARGV[1]), tonumber(ARGV[2])
if not (limit and window) then return redis.error_reply('ERR read_rate: not a number') end
local rate = rate_of(KEYS[1], limit, window, clock())
return { 'OK', rate.left, rate.reset }
