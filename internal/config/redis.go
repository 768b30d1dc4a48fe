package config

import (
	"regexp"
	"strings"

	"berth/internal/clienttls"
	"berth/internal/redisconn"
	"berth/internal/secret"
	"berth/internal/setting"
)

// Redis holds the settings of the Redis connection.
type Redis struct {
	Mode     string         `help:"How Redis is deployed: single, sentinel or cluster; empty: detected." name:"redis-mode" env:"BERTH_REDIS_MODE" enum:",single,sentinel,cluster" default:""`
	Addr     secret.Address `help:"Address of Redis, host:port; several of Sentinels or of a Cluster, separated by commas; or one redis:// or rediss:// URL." name:"redis-addr" env:"BERTH_REDIS_ADDR" default:"127.0.0.1:6379"`
	User     string         `help:"Redis ACL user; empty for the default user." name:"redis-user" env:"BERTH_REDIS_USER"`
	Password secret.Text    `help:"Redis password." name:"redis-password" env:"BERTH_REDIS_PASSWORD"`

	PasswordFile string `help:"File with the Redis password, read again for every connection." name:"redis-password-file" env:"BERTH_REDIS_PASSWORD_FILE"`

	SentinelMaster   string      `help:"Name under which the Sentinels know the master; the addresses are then those of the Sentinels." name:"redis-sentinel-master" env:"BERTH_REDIS_SENTINEL_MASTER"`
	SentinelUser     string      `help:"ACL user of the Sentinels themselves." name:"redis-sentinel-user" env:"BERTH_REDIS_SENTINEL_USER"`
	SentinelPassword secret.Text `help:"Password of the Sentinels themselves." name:"redis-sentinel-password" env:"BERTH_REDIS_SENTINEL_PASSWORD"`

	SentinelPasswordFile string `help:"File with the password of the Sentinels themselves, read again for every connection." name:"redis-sentinel-password-file" env:"BERTH_REDIS_SENTINEL_PASSWORD_FILE"`

	TLS           bool   `help:"Connect to Redis with TLS. Implied by every other --redis-tls flag and by rediss://." name:"redis-tls" env:"BERTH_REDIS_TLS"`
	TLSCA         string `help:"PEM file of the authorities that verify Redis's certificate; empty for the system's." name:"redis-tls-ca" env:"BERTH_REDIS_TLS_CA" type:"path"`
	TLSCert       string `help:"PEM file of the client certificate for mutual TLS." name:"redis-tls-cert" env:"BERTH_REDIS_TLS_CERT" type:"path"`
	TLSKey        string `help:"PEM file of the client certificate's key." name:"redis-tls-key" env:"BERTH_REDIS_TLS_KEY" type:"path"`
	TLSServerName string `help:"Name in Redis's certificate; empty for the host of the address." name:"redis-tls-server-name" env:"BERTH_REDIS_TLS_SERVER_NAME"`

	Cell string `help:"Hash tag that puts all keys of this cell into one slot of a Redis Cluster, which requires one; empty for none." name:"cell" env:"BERTH_CELL"`
}

// IsDefault reports whether no setting names the server.
func (r Redis) IsDefault() bool { return isDefault(&r, &r.Addr) }

// Options returns the options of a client.
func (r Redis) Options() redisconn.Options {
	return redisconn.Options{
		Mode: redisconn.Mode(r.Mode), Addr: string(r.Addr), User: r.User, Cell: r.Cell,
		Password: string(r.Password), PasswordFile: r.PasswordFile,
		SentinelMaster: r.SentinelMaster, SentinelUser: r.SentinelUser,
		SentinelPassword: string(r.SentinelPassword), SentinelPasswordFile: r.SentinelPasswordFile,
		TLS: clienttls.Files{Enabled: r.TLS, CA: r.TLSCA, Cert: r.TLSCert, Key: r.TLSKey, ServerName: r.TLSServerName},
	}
}

// cellName has no character that is special in hash tags or in the patterns of Redis's ACL.
var cellName = regexp.MustCompile(`^[A-Za-z0-9._-]{0,64}$`)

func (r *Redis) validate(p *problems) {
	p.secret(secret.New("BERTH_REDIS_PASSWORD", string(r.Password), r.PasswordFile).Validate())
	p.secret(secret.New("BERTH_REDIS_SENTINEL_PASSWORD", string(r.SentinelPassword), r.SentinelPasswordFile).Validate())
	if !strings.Contains(string(r.Addr), "://") {
		for addr := range strings.SplitSeq(string(r.Addr), ",") {
			if err := setting.HostPort(strings.TrimSpace(addr)); err != nil {
				p.bad(&r.Addr, "invalid address: %s, or one redis:// or rediss:// URL", err)
			}
		}
	}
	if r.SentinelMaster != "" && r.Mode != "" && r.Mode != string(redisconn.ModeSentinel) {
		p.bad(&r.SentinelMaster, "requires mode sentinel, got %s", r.Mode)
	}
	if r.SentinelMaster == "" && r.Mode == string(redisconn.ModeSentinel) {
		p.bad(&r.SentinelMaster, "must be set in mode sentinel")
	}
	if r.Cell == "" && r.Mode == string(redisconn.ModeCluster) {
		p.bad(&r.Cell, "must be set on a Redis Cluster: berth's scripts need all keys in one slot")
	}
	if !cellName.MatchString(r.Cell) {
		p.bad(&r.Cell, "must have at most 64 letters, digits, dots, hyphens and underscores")
	}
	if (r.TLSCert == "") != (r.TLSKey == "") {
		p.bad(&r.TLSCert, "requires --redis-tls-key (BERTH_REDIS_TLS_KEY), and the reverse")
	}
}
