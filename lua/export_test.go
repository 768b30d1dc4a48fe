package lua

import "github.com/redis/go-redis/v9"

// Redis returns the client of the scripts, so that tests can prepare and read data.
func (s *Scripts) Redis() redis.UniversalClient { return s.rdb }
