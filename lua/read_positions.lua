-- read_positions: estimate how many calls are served before each of the given entries, and how long that takes. It changes nothing.
--
-- KEYS[1] guard
-- ARGV[1] prefix of the keys
-- ARGV[2...] model and entry (see include entries) of each
--
-- Returns {code, positions, waits}:
--   OK  for each entry its position, -1 for one that does not wait, and the ms until its call gets a slot, -1 when not known

-- include room

local readable = #ARGV % 2 == 1
for i = 3, #ARGV, 2 do readable = readable and is_lease(ARGV[i]) end
if not readable then return redis.error_reply('ERR read_positions: unreadable argument') end

local call, rooms, positions, waits = call_of(ARGV[1], KEYS[1], 1, 1, 0), {}, {}, {}
for i = 2, #ARGV, 2 do
  local model, entry = ARGV[i], ARGV[i + 1]
  rooms[model] = rooms[model] or room_of(call, model)
  local room, position, wait = rooms[model], -1, -1
  if room and redis.call('ZSCORE', entries_of(room).waiting, entry) then
    position = entry_position(room, entry)
    wait = wait_at(room, position)
  end
  table.insert(positions, position)
  table.insert(waits, wait)
end
return { 'OK', positions, waits }
