package doctor

import (
	"context"
	"errors"

	"berth/internal/redisconn"
	"berth/internal/setting"
	"berth/lua"
)

// redis checks what a process checks at its start and while it runs, in the same order, and states the risks besides.
func (d *doctor) redis(ctx context.Context) {
	client, err := redisconn.Open(ctx, d.cfg.Redis.Options())
	if err != nil {
		d.redisProblem(Error, err)
		return
	}
	defer func() { _ = client.Close() }() // it was only used for checks
	scripts := lua.New(client, lua.Keys{Cell: d.cfg.Redis.Cell})
	guard := scripts.Keys().Guard()
	if err := client.Check(ctx, guard); err != nil {
		d.redisProblem(Error, err)
		return
	}
	server, err := client.Inspect(ctx, guard)
	if err != nil {
		d.redisProblem(Error, err)
		return
	}
	d.redisServer(client.Mode(), server)
	sent := d.now()
	seen, err := scripts.CheckServer(ctx)
	received := d.now()
	if err != nil {
		d.redisProblem(Error, err)
		return
	}
	d.clock("redis", seen.Now, sent, received)
	if err := redisconn.CheckSubscribe(ctx, scripts); err != nil {
		d.redisProblem(Error, err)
		return
	}
	d.add(OK, "redis", "", "scripts run and write, messages can be published and received")
}

// redisProblem adds what processes log about an error of Redis.
func (d *doctor) redisProblem(l Level, err error) {
	if p := redisconn.Explain(err); p != nil {
		d.add(l, "redis", p.Advice, "%s", p.Said)
		return
	}
	advice := "check BERTH_REDIS_ADDR and that Redis runs"
	if _, ok := errors.AsType[*setting.WrongError](err); ok {
		advice = "see docs/operations.md, section Redis"
	}
	d.add(l, "redis", advice, "%s", err)
}

func (d *doctor) redisServer(mode redisconn.Mode, s redisconn.Server) {
	const subject = "redis"
	if s.Version == "" {
		d.add(Warning, subject, "use Redis 7 or Valkey outside of development", "the embedded server: it loses its data when it stops")
		return
	}
	d.add(OK, subject, "", "%s %s, mode %s", s.Name, s.Version, mode)
	if err := s.CheckPolicy(); err != nil {
		d.redisProblem(Error, err)
	}
	switch {
	case s.AppendOnly:
		d.add(OK, subject, "", "persistence: append-only file")
	case s.Save != "":
		d.add(Warning, subject, "set appendonly to yes", "persistence: snapshots only (%s); a restart loses what was written since the last one", s.Save)
	default:
		d.add(Warning, subject, "set appendonly to yes", "no persistence: a restart loses all leases and streams, and grants pause until they are restored")
	}
	if s.Role == "master" && s.Replicas != "0" && s.MinReplicas == "0" {
		d.add(Warning, subject, "set min-replicas-to-write to 1 and min-replicas-max-lag to 2",
			"min-replicas-to-write is 0: a master that is cut off from its replicas continues to grant after they have replaced it")
	}
}
