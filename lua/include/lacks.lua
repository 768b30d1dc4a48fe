-- lacks returns the first of the services that is marked as unavailable in a class; nil when there is none.
local function lacks(services, class)
  if services == '' or #class == 41 then return nil end
  for service in string.gmatch(services, '[^\n]+') do
    if string.find(class, ',' .. service .. ',', 1, true) then return service end
  end
  return nil
end
