-- Reduces `classes`, those of the pool in which a node can be chosen, to those in which the services are available. Part of include pick.
-- include limits
-- include lacks
if #classes > MAX_CLASSES then
-- include pick_some_classes
end
for i = #classes, 1, -1 do
  local _, why_not = lacks(services, classes[i])
  if why_not then
    skipped[why_not] = skipped[why_not] or 1
    table.remove(classes, i)
  end
end
