-- Chooses the node with the lowest load. Part of include pick.
local tried = 0
if classes[1] and not classes[2] then -- most often one, and its first node is suitable
  local id = redis.call('ZRANGE', class_key(stem, classes[1], 'free'), '0', '0')[1]
  if id then
-- include try
    tried = 1
  end
end
if not node then
-- include limits
-- include score
  local cursors, unfit = {}, tried > 0 and reason ~= 'excluded' and 1 or 0
  -- advance moves a cursor to the next node of its index.
  local function advance(cursor)
    cursor.at = cursor.at + 2
    if cursor.at > #cursor.batch then
      cursor.batch, cursor.at = redis.call('ZRANGE', cursor.key, cursor.from, cursor.to, 'WITHSCORES'), 1
      cursor.from, cursor.to = cursor.to + 1, cursor.to + 16
    end
    cursor.id, cursor.score = cursor.batch[cursor.at], score_of(cursor.batch[cursor.at + 1])
  end
  for i, class in ipairs(classes) do
    cursors[i] = { key = class_key(stem, class, 'free'), batch = {}, at = 1, from = tried, to = tried }
    advance(cursors[i])
  end
  while not node and unfit < MAX_UNFIT do
    local best
    for _, c in ipairs(cursors) do
      if c.id and (not best or before(c.score, c.id, best.score, best.id)) then best = c end
    end
    if not best then break end
    local id = best.id
-- include try
    if reason ~= 'excluded' then unfit = unfit + 1 end -- the request bounds the excluded ones
    advance(best)
  end
end
