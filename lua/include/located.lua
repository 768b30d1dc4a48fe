-- located returns the class at a rank in all of them together, and the rank in it.
local function located(counts, rank)
  for i, n in ipairs(counts) do
    if rank < n then return i, rank end
    rank = rank - n
  end
end
