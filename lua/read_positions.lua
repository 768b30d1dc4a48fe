-- read_positions: estimate how many calls are served before each of the given waiters, and how long that takes. It changes nothing.
--
-- KEYS[1] guard
-- ARGV[1] prefix of the keys
-- ARGV[2...] model and waiter (see include model_waiters) of each
--
-- Returns {code, positions, waits, paused}:
--   OK  for each waiter its position, -1 for one that does not wait; the ms until its call gets a slot, -1 when not known; and 1 when no
--       slot of its model is granted until that is resumed

-- include room
-- include estimate

local readable = #ARGV % 2 == 1
for i = 3, #ARGV, 2 do readable = readable and is_lease(ARGV[i]) end
if not readable then return redis.error_reply('ERR read_positions: unreadable argument') end

local call, rooms, positions, waits, paused = call_of(ARGV[1], KEYS[1], 1, 1, 0), {}, {}, {}, {}
for i = 2, #ARGV, 2 do
  local model, waiter = ARGV[i], ARGV[i + 1]
  rooms[model] = rooms[model] or room_of(call, model)
  local room = rooms[model]
  local position = room and waiting_position(room, waiter)
  table.insert(positions, position or -1)
  table.insert(waits, position and wait_at(room, position) or -1)
  table.insert(paused, room and out_of_service(room) and 1 or 0)
end
return { 'OK', positions, waits, paused }
