package redisconn

import (
	"context"
	"fmt"
	"net"
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

// refused reports whether a server requires another password.
func refused(err error) bool {
	return redis.HasErrorPrefix(err, "WRONGPASS") || redis.HasErrorPrefix(err, "NOAUTH")
}

// DialHook is part of redis.Hook: with the next two methods, Options is a hook of go-redis that names the setting of a password that the server
// refuses.
func (o Options) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

// ProcessHook is part of redis.Hook.
func (o Options) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { return o.named(next(ctx, cmd)) }
}

// ProcessPipelineHook is part of redis.Hook.
func (o Options) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { return o.named(next(ctx, cmds)) }
}

func (o Options) named(err error) error {
	if !refused(err) {
		return err
	}
	return o.password().Refused(err)
}
