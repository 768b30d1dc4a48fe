// Package redisconn opens the Redis client of a process, whether Redis is one server, is monitored by Sentinels or is a
// Cluster. It also holds Pub/Sub connections: every subscriber of berth is a Listener, with one policy for detecting a lost
// connection and for reconnecting.
package redisconn

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"berth/internal/clienttls"
	"berth/internal/secret"
	"berth/internal/setting"
)

// Timeouts and retries of the client. An unavailable Redis fails a call soon: the callers know whether and when to retry.
const (
	dialTimeout = 2 * time.Second
	ioTimeout   = 3 * time.Second
	maxRetries  = 1
	// reloadSlots is how old a client's view of a Cluster may be. It is also refreshed when a server redirects a command, but
	// not when a master is unreachable.
	reloadSlots = time.Second
)

// Mode is how Redis is deployed.
type Mode string

// The modes. An empty one is detected.
const (
	ModeSingle   Mode = "single"
	ModeSentinel Mode = "sentinel" // the addresses are those of Sentinels
	ModeCluster  Mode = "cluster"  // the addresses are those of any of its servers
)

// Options are the settings of a client. Only Addr is required.
type Options struct {
	Mode Mode
	// Addr is a comma-separated list of host:port, or one redis:// or rediss:// URL.
	Addr string
	// User and Password replace those of the URL. PasswordFile names a file with the password instead: it is read for every
	// connection, so that a new password is used without a restart.
	User, Password, PasswordFile string
	// SentinelMaster is the name under which the Sentinels know the master; it implies ModeSentinel.
	SentinelMaster string
	// SentinelUser, SentinelPassword and SentinelPasswordFile are for the Sentinels themselves.
	SentinelUser, SentinelPassword, SentinelPasswordFile string

	TLS clienttls.Files
	// Cell is the hash tag of all keys. A Cluster requires one.
	Cell string

	urlPassword string // of Addr
	tls         bool   // connections use TLS
	// mutual is set once the server has requested a certificate of this client.
	mutual *atomic.Bool
}

// Client is a Redis client of any mode. It connects at its first use.
type Client struct {
	redis.UniversalClient
	mode Mode
	opt  Options
}

// Mode returns the mode of the client. See Open.
func (c *Client) Mode() Mode { return c.mode }

// Open returns a client. An empty mode is detected, for which the first server that replies is asked. While none does, a
// client of several addresses is one of a Cluster and a client of one address is one of a single server; Check reports when
// that was wrong. A setting.WrongError cannot be corrected by waiting.
func Open(ctx context.Context, opt Options) (*Client, error) {
	u, err := opt.universal()
	if err != nil {
		return nil, err
	}
	u.CredentialsProviderContext, u.OnConnect = opt.Credentials, opt.authenticateSentinel
	found, err := opt.detect(ctx, u)
	if found != "" {
		if err := opt.suits(found, len(u.Addrs)); err != nil {
			return nil, err
		}
	}
	mode := cmp.Or(opt.wants(), found)
	if p := Explain(err); found == "" && p != nil && p.Lasting && (mode == "" || p.Code == notTLS.Code) {
		return nil, err
	}
	if mode == "" && len(u.Addrs) > 1 && opt.Cell == "" {
		return nil, noneReplies(err)
	}
	return opt.open(u, cmp.Or(mode, opt.assumed(u)))
}

// assumed returns the mode of a client while no server replies.
func (o Options) assumed(u *redis.UniversalOptions) Mode {
	switch mode := o.wants(); {
	case mode != "":
		return mode
	case len(u.Addrs) > 1:
		return ModeCluster
	default:
		return ModeSingle
	}
}

// open returns a client of a mode.
func (o Options) open(u *redis.UniversalOptions, mode Mode) (*Client, error) {
	c := &Client{mode: mode, opt: o}
	switch mode {
	case ModeSentinel:
		if o.SentinelMaster == "" {
			return nil, wrongf("BERTH_REDIS_SENTINEL_MASTER is not set: Sentinels need the name of the master")
		}
		u.MasterName = o.SentinelMaster
		c.UniversalClient = redis.NewUniversalClient(u)
		c.AddHook(newHook(o))
	case ModeCluster:
		if o.Cell == "" {
			return nil, errNoCell
		}
		if u.DB != 0 {
			return nil, wrongf("BERTH_REDIS_ADDR: a Redis Cluster has only database 0")
		}
		cluster := u.Cluster()
		cluster.ClusterStateReloadInterval = reloadSlots
		rdb := redis.NewClusterClient(cluster)
		rdb.OnNewNode(func(node *redis.Client) { node.AddHook(newHook(o)) })
		c.UniversalClient = rdb
	default:
		if len(u.Addrs) > 1 {
			return nil, wrongf("BERTH_REDIS_ADDR: a single server has one address; for several, set BERTH_REDIS_MODE to sentinel or cluster")
		}
		c.UniversalClient = redis.NewUniversalClient(u)
		c.AddHook(newHook(o))
	}
	return c, nil
}

// errNoCell is why a Cluster is refused.
var errNoCell = wrongf("Redis is a Cluster, and BERTH_CELL is not set: berth's scripts need all keys in one slot. Set BERTH_CELL to a name; " +
	"each name is an independent berth with its own Temporal namespace and database")

// wrongf returns a setting.WrongError without a cause, which Explain would find.
func wrongf(format string, args ...any) error { return setting.Wrong(fmt.Errorf(format, args...)) }

// universal returns the options of go-redis, and completes o from its URL.
func (o *Options) universal() (*redis.UniversalOptions, error) {
	for _, s := range []secret.Secret{o.password(), o.sentinelPassword()} {
		if err := s.Validate(); err != nil {
			return nil, wrongf("%s", err)
		}
	}
	u := &redis.UniversalOptions{
		DialTimeout: dialTimeout, ReadTimeout: ioTimeout, WriteTimeout: ioTimeout,
		MaxRetries: maxRetries, DialerRetries: maxRetries, ContextTimeoutEnabled: true,
	}
	var err error
	if u.TLSConfig, err = o.TLS.Config("BERTH_REDIS_TLS"); err != nil {
		return nil, wrongf("%s", err)
	}
	if strings.Contains(o.Addr, "://") {
		err := o.fromURL(u)
		o.watchTLS(u.TLSConfig)
		return u, err
	}
	o.watchTLS(u.TLSConfig)
	for addr := range strings.SplitSeq(o.Addr, ",") {
		addr = strings.TrimSpace(addr)
		if strings.Contains(addr, "@") { // it may contain a password
			return nil, wrongf("BERTH_REDIS_ADDR: an address with a user or password must begin with redis:// or rediss://")
		}
		if err := setting.HostPort(addr); err != nil { // it may be a password in the wrong place
			return nil, wrongf("BERTH_REDIS_ADDR: invalid address: %s", err)
		}
		u.Addrs = append(u.Addrs, addr)
	}
	return u, nil
}

// watchTLS notices whether the server requests a certificate of this client. With TLS 1.3 a server that refuses the certificate closes the
// connection after the handshake, and its reason may be lost.
func (o *Options) watchTLS(c *tls.Config) {
	if c == nil {
		return
	}
	o.tls, o.mutual = true, new(atomic.Bool)
	load := c.GetClientCertificate
	c.GetClientCertificate = func(request *tls.CertificateRequestInfo) (*tls.Certificate, error) {
		o.mutual.Store(true)
		if load == nil {
			return &tls.Certificate{}, nil
		}
		return load(request)
	}
}

func (o *Options) fromURL(u *redis.UniversalOptions) error {
	parsed, err := redis.ParseURL(o.Addr)
	if err != nil { // it may contain the password
		return wrongf("BERTH_REDIS_ADDR: invalid URL: must be redis://user:password@host:port/database; " +
			"special characters of user and password are percent-encoded")
	}
	u.Addrs, u.DB = []string{parsed.Addr}, parsed.DB
	o.User, o.urlPassword = cmp.Or(o.User, parsed.Username), parsed.Password
	if u.TLSConfig == nil {
		u.TLSConfig = parsed.TLSConfig
	} else if u.TLSConfig.ServerName == "" && parsed.TLSConfig != nil {
		u.TLSConfig.ServerName = parsed.TLSConfig.ServerName
	}
	return nil
}

// LogTo sends the messages of all Redis clients of this process to the logger, at level debug: they are about single
// connections, and the callers log what follows from them.
func LogTo(logger *slog.Logger) { redis.SetLogger(clientLog{logger}) }

type clientLog struct{ logger *slog.Logger }

// Printf logs one line.
func (l clientLog) Printf(ctx context.Context, format string, v ...any) {
	l.logger.DebugContext(ctx, "redis client", "message", fmt.Sprintf(format, v...))
}
