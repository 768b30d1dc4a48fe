-- read_positions: estimate how many calls are served before each of the given waiters, and how long that takes. It changes nothing.
--
-- KEYS[1] guard
-- ARGV[1] prefix of the keys
-- ARGV[2...] model and waiter (see include model_waiters) of each
--
-- Returns {code, positions, waits, paused, upstreams}:
--   OK  for each waiter its position, -1 for one that does not wait; the ms until its call gets a slot, -1 when not known; 1 when no upstream
--       that may make the call works; and the names of these with commas, empty where all may

-- include room
-- include estimate

local readable = #ARGV % 2 == 1
for i = 3, #ARGV, 2 do readable = readable and is_lease(ARGV[i]) end
if not readable then return redis.error_reply('ERR read_positions: unreadable argument') end

local call, rooms, positions, waits, paused, names = call_of(ARGV[1], KEYS[1], 1, 1, 0), {}, {}, {}, {}, {}
for i = 2, #ARGV, 2 do
  local model, waiter = ARGV[i], ARGV[i + 1]
  rooms[model] = rooms[model] or room_of(call, model)
  local room = rooms[model]
  local n, position, upstreams = #positions + 1, nil, nil
  positions[n], waits[n], paused[n], names[n] = -1, -1, 0, ''
  if room then position, upstreams = waiting_position(room, waiter) end
  if position then
    positions[n] = position
    waits[n], paused[n], names[n] = wait_of(room, position, upstreams)
  end
end
return { 'OK', positions, waits, paused, names }
