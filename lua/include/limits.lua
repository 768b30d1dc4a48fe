-- Limits of a search for a node, included in the functions that use them.
local MAX_CLASSES = 32 -- classes of a pool that one decision compares
local MAX_UNFIT = 64 -- nodes that cannot take the job although the index has them, before the search ends
