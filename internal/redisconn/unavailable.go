package redisconn

import (
	"errors"
	"io"
	"slices"

	"github.com/redis/go-redis/v9"

	"berth/internal/secret"
)

// Unavailable reports whether err means that Redis cannot serve at present: it loads its data, has no master or no
// memory, refuses the password, or there is no connection to it. A rejected command is not such an error, nor is one of the
// network or of a context.
func Unavailable(err error) bool {
	if secret.Named(err) || errors.Is(err, io.EOF) || errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) {
		return true
	}
	return slices.ContainsFunc([]string{
		"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "NOREPLICAS", "MISCONF", "OOM", "BUSY", "max number of clients",
	}, func(prefix string) bool { return redis.HasErrorPrefix(err, prefix) })
}
