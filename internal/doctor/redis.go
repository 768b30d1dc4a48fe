package doctor

import (
	"context"
	"errors"
	"fmt"

	"berth/internal/redisconn"
	"berth/lua"
)

const (
	// minRedis is the oldest major version of Redis or Valkey whose commands berth's scripts use.
	minRedis = 7
	// permitUser is the advice where Redis refuses a command.
	permitUser = "permit the user of BERTH_REDIS_USER what docs/operations.md lists"
)

func (d *doctor) redis(ctx context.Context) {
	const subject = "redis"
	client, err := redisconn.Open(ctx, d.cfg.Redis.Options())
	if err != nil {
		d.add(Error, subject, redisAdvice(err), "%s", err)
		return
	}
	defer func() { _ = client.Close() }() // it was only used for checks
	scripts := lua.New(client, lua.Keys{Cell: d.cfg.Redis.Cell})
	guard := scripts.Keys().Guard()
	if err := client.Check(ctx, guard); err != nil {
		d.add(Error, subject, redisAdvice(err), "%s", err)
		return
	}
	server, err := client.Inspect(ctx, guard)
	if err != nil {
		d.add(Error, subject, "", "%s", err)
		return
	}
	d.redisServer(client.Mode(), server)
	sent := d.now()
	seen, err := scripts.ReadServer(ctx)
	received := d.now()
	if lua.UnknownFormat(err) {
		d.add(Error, subject, "", "%s", err)
		return
	}
	if err != nil {
		d.add(Error, subject, permitUser, "scripts cannot read the server: %s", err)
		return
	}
	d.clock(subject, seen.Now.Sub(sent.Add(received.Sub(sent)/2)))
	if _, err := scripts.Tick(ctx, scripts.TickChannel()); err != nil {
		d.add(Error, subject, permitUser, "messages cannot be published: %s", err)
		return
	}
	d.add(OK, subject, "", "scripts run, messages can be published")
}

// redisAdvice returns what to change after a failed connection.
func redisAdvice(err error) string {
	if _, ok := errors.AsType[redisconn.SetupError](redisconn.Setup(err)); ok {
		return "see docs/operations.md, section Redis: modes, TLS, and the permissions of BERTH_REDIS_USER"
	}
	return "check BERTH_REDIS_ADDR and that Redis runs"
}

func (d *doctor) redisServer(mode redisconn.Mode, s redisconn.Server) {
	const subject = "redis"
	if s.Version == "" {
		d.add(Warning, subject, "use Redis 7 or Valkey outside of development", "the embedded server: it loses its data when it stops")
		return
	}
	major := 0
	_, _ = fmt.Sscanf(s.Version, "%d", &major) // 0 is too old
	if major < minRedis {
		d.add(Error, subject, fmt.Sprintf("use version %d or later", minRedis), "%s %s is too old", s.Name, s.Version)
	} else {
		d.add(OK, subject, "", "%s %s, mode %s", s.Name, s.Version, mode)
	}
	if s.Evicts() {
		d.add(Error, subject, "set maxmemory-policy to noeviction", "maxmemory-policy is %s: Redis may delete leases and streams", s.EvictionPolicy)
	}
	switch {
	case s.AppendOnly:
		d.add(OK, subject, "", "persistence: append-only file")
	case s.Save != "":
		d.add(Warning, subject, "set appendonly to yes", "persistence: snapshots only (%s); a restart loses what was written since the last one", s.Save)
	default:
		d.add(Warning, subject, "set appendonly to yes", "no persistence: a restart loses all leases and streams, and grants pause until they are restored")
	}
}
