-- whole formats a number without an exponent, the same on every server.
local function whole(n) return string.format('%.0f', n) end

-- clock returns Redis's time in whole milliseconds.
local function clock()
  local t = redis.call('TIME')
  return tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
end
