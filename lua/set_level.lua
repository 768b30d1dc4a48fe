-- set_level: set the weight of a team or an application among its neighbours, and how many slots it may use at a time.
--
-- KEYS[1] levels
-- ARGV[1] level: its kind, team or app, a colon and its id
-- ARGV[2] weight
-- ARGV[3] maximum number of slots of all models, 0 for no limit
--
-- Returns {code}; code is OK

if not (string.match(ARGV[1], '^%a+:.+$') and tonumber(ARGV[2]) and tonumber(ARGV[2]) > 0 and string.match(ARGV[3], '^%d+$')) then
  return redis.error_reply('ERR set_level: unreadable argument')
end
if tonumber(ARGV[2]) == 1 and ARGV[3] == '0' then
  redis.call('HDEL', KEYS[1], ARGV[1])
else
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[2] .. ' ' .. ARGV[3])
end
return { 'OK' }
