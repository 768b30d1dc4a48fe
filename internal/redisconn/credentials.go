package redisconn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"berth/internal/secret"
)

// password returns the password of Redis; that of its URL unless another one is set.
func (o Options) password() secret.Secret {
	if o.Password == "" && o.PasswordFile == "" && o.urlPassword != "" {
		return secret.New("BERTH_REDIS_ADDR", o.urlPassword, "")
	}
	return secret.New("BERTH_REDIS_PASSWORD", o.Password, o.PasswordFile)
}

func (o Options) sentinelPassword() secret.Secret {
	return secret.New("BERTH_REDIS_SENTINEL_PASSWORD", o.SentinelPassword, o.SentinelPasswordFile)
}

// Credentials returns user and password of a new connection.
func (o Options) Credentials(context.Context) (user, password string, err error) {
	password, err = o.password().Read()
	return o.User, password, err
}

// failoverAddr is the address of a client that finds its server through Sentinels. go-redis calls OnConnect for connections to that
// server and to Sentinels, and only the text of a connection distinguishes them.
const failoverAddr = "<FailoverClient "

// authenticateSentinel authenticates a new connection to a Sentinel, for which go-redis has no credentials that change.
func (o Options) authenticateSentinel(ctx context.Context, c *redis.Conn) error {
	if o.SentinelMaster == "" || !o.sentinelPassword().IsSet() || strings.Contains(c.String(), failoverAddr) {
		return nil
	}
	password, err := o.sentinelPassword().Read()
	switch {
	case err != nil:
	case o.SentinelUser == "":
		err = c.Auth(ctx, password).Err()
	default:
		err = c.AuthACL(ctx, o.SentinelUser, password).Err()
	}
	if refused(err) {
		err = o.sentinelPassword().Refused(err)
	}
	if err != nil { // go-redis drops the outermost error
		return fmt.Errorf("authenticate at the Sentinel: %w", err)
	}
	return nil
}

// refusals are the replies of a server that requires another password. To a long command it replies with the limit of its length.
var refusals = []string{"WRONGPASS", "NOAUTH", "Protocol error: unauthenticated", "AUTH <password> called without any password"}

// refused reports whether a server requires another password.
func refused(err error) bool {
	return slices.ContainsFunc(refusals, func(reply string) bool { return redis.HasErrorPrefix(err, reply) })
}

// named returns an error that names the setting of a password that the server refuses, and of what Sentinels refuse.
func (o Options) named(err error) error {
	switch {
	case err != nil && strings.Contains(err.Error(), sentinelsUnreachable):
		return o.ofSentinels(err)
	case refused(err):
		return o.password().Refused(err)
	}
	return err
}

// ofSentinels returns what the error of a client means that has found no master. go-redis has redis.Nil in it if a Sentinel does not know
// the name, which callers would read as a key that does not exist.
func (o Options) ofSentinels(err error) error {
	var network net.Error
	switch {
	case secret.Named(err):
		return err
	case refused(err):
		return o.sentinelPassword().Refused(err)
	case redis.HasErrorPrefix(err, "NOPERM"):
		return problem(sentinelPermission, err)
	case !errors.Is(err, redis.Nil):
		return err
	case errors.As(err, &network): // another one may know it
		return problem(noSentinel, errors.New(err.Error()))
	}
	return problem(unknownMaster, fmt.Errorf("no Sentinel knows a master named %q", o.SentinelMaster))
}
