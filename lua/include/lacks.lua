-- lacks returns the first of the services that the nodes of a class do not have, and the reason; nil when they have all of them. No
-- service may be marked as unavailable. One behind a + has to be declared by the node, one behind a ? by a node that declares any.
local function lacks(services, class)
  if services == '' or #class == 41 and not string.find(services, '[+?]') then return nil end
  local declared
  for need, service in string.gmatch(services, '([+?]?)([^\n]+)') do
    if string.find(class, ',' .. service .. ',', 1, true) then return service, 'service_unavailable' end
    if need ~= '' then
      declared = declared or redis.call('HGET', stem .. 'class:services', class) or ''
      if (need == '+' or declared ~= '') and not string.find('\n' .. declared .. '\n', '\n' .. service .. '\n', 1, true) then
        return service, 'service_missing'
      end
    end
  end
  return nil
end
