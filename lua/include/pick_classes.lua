-- Reduces `classes`, those of the pool in which a node can be chosen, to those in which the services are available. Part of include pick.
-- include limits
-- include lacks
if #classes > MAX_CLASSES then
-- include pick_some_classes
end
for i = #classes, 1, -1 do
  if lacks(services, classes[i]) then
    skipped.service_unavailable = skipped.service_unavailable or 1
    table.remove(classes, i)
  end
end
