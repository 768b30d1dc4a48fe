-- FORMAT is the format of the keys that these scripts read and write. A release that changes keys so that an earlier one would misread
-- them raises it.
local FORMAT = '1'
