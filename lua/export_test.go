package lua

import "github.com/redis/go-redis/v9"

// Redis returns the client of the scripts, with which tests prepare and read data.
func (s *Scripts) Redis() redis.UniversalClient { return s.rdb }
