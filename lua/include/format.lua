-- FORMAT is the format of the keys that these scripts read and write. A guard without one is older than its field and has format 1.
-- A release that changes keys so that an earlier one would misread them raises it.
local FORMAT = '1'
