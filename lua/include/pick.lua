-- Chooses a node by the pool's strategy. Without one it removes expired leases and marks and chooses again. See include request.
for attempt = 0, 8 do
  if attempt > 0 then
-- include settle
    if purge_due(stem, now, 16) + purge_marks(stem, now, 16) == 0 then break end
  end
  strategy = asked
  if listed ~= '' then
-- include pick_listed
  else
    if own ~= '' and (asked == 'affinity' or asked == 'locality') then
      local named, why = own, nil
-- include pick_named
    end
    if not node and asked == 'round-robin' then
-- include pick_round_robin
    elseif not node then
      local classes = redis.call('ZRANGE', pool_key(stem, pool, 'open'), '0', '32') -- one more than MAX_CLASSES
      if classes[2] or classes[1] and (#classes[1] > 41 or string.find(services, '[+?]')) then
-- include pick_classes
      end
      if asked == '' or asked == 'power-of-two' then
-- include pick_two
      elseif asked == 'locality' then
-- include pick_near
      end
      if not node then
-- include pick_first
      end
    end
  end
  if node then break end
end
