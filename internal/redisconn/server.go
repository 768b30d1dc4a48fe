package redisconn

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"berth/internal/health"
)

// Server is what a Redis server reports about itself.
type Server struct {
	Mode Mode
	// Name is redis or valkey, Version its version.
	Name, Version string
	// EvictionPolicy is maxmemory-policy. Any other than noeviction may delete leases.
	EvictionPolicy string
	// AppendOnly reports whether writes are logged to a file, Save the rules of snapshots; Save is empty where there are none or
	// CONFIG GET is not permitted.
	AppendOnly bool
	Save       string
	// Role is master or slave; Replicas is the number of connected replicas, and MinReplicas min-replicas-to-write, empty where CONFIG GET
	// is not permitted.
	Role                  string
	Replicas, MinReplicas string
	// UsedMemory is the memory in use and MaxMemory its limit in bytes; 0 where the server has no limit or does not report it.
	UsedMemory, MaxMemory int64
}

// minVersion is the oldest major version of Redis or Valkey whose commands the scripts use.
const minVersion = 7

// evicts is the risk of a server that may delete keys before they expire.
var evicts = health.Reason{
	Code: "evicts", Setting: "maxmemory-policy", Risk: true,
	Text: "Redis may delete leases and streams when its memory is full: set it to noeviction",
}

// checkPolicy returns a health.Problem where the server may delete keys before they expire. The embedded server of the development environment has no
// policy and never does.
func checkPolicy(policy string) error {
	if policy == "" || policy == "noeviction" {
		return nil
	}
	return problem(evicts, fmt.Errorf("maxmemory-policy is %s", policy))
}

// CheckPolicy returns the same for the server that was inspected.
func (s Server) CheckPolicy() error { return checkPolicy(s.EvictionPolicy) }

// CheckRisk returns a health.Problem where berth works on the server of a key, and may lose data.
func (c *Client) CheckRisk(ctx context.Context, key string) error {
	rdb, err := c.MasterForKey(ctx, key)
	if err != nil {
		return Explained(err)
	}
	fields, err := info(ctx, rdb, "memory")
	if err != nil {
		return err
	}
	return checkPolicy(fields["maxmemory_policy"])
}

// checkVersion returns a setting.WrongError for a server that is too old. The embedded one has no version.
func checkVersion(fields map[string]string) error {
	version := fields["redis_version"]
	if version == "" {
		return nil
	}
	major := 0
	if _, err := fmt.Sscanf(version, "%d", &major); err == nil && major >= minVersion {
		return nil
	}
	return wrongf("Redis %s is too old (BERTH_REDIS_ADDR): use version %d or later, or Valkey", version, minVersion)
}

// Inspect reads what the server of a key reports: in a Cluster, the master of its slot.
func (c *Client) Inspect(ctx context.Context, key string) (Server, error) {
	rdb, err := c.MasterForKey(ctx, key)
	if err != nil {
		return Server{}, Explained(err)
	}
	f := map[string]string{}
	for _, section := range []string{"server", "memory", "persistence", "replication"} {
		fields, err := info(ctx, rdb, section)
		if err != nil {
			return Server{}, err
		}
		for name, value := range fields {
			f[name] = value
		}
	}
	s := Server{
		Mode: modeOf(f), Name: "redis", Version: f["redis_version"], EvictionPolicy: f["maxmemory_policy"],
		AppendOnly: f["aof_enabled"] == "1", Role: f["role"], Replicas: f["connected_slaves"],
	}
	s.UsedMemory, _ = strconv.ParseInt(f["used_memory"], 10, 64)
	s.MaxMemory, _ = strconv.ParseInt(f["maxmemory"], 10, 64)
	if v := f["valkey_version"]; v != "" {
		s.Name, s.Version = "valkey", v
	}
	if set, err := rdb.ConfigGet(ctx, "save").Result(); err == nil {
		s.Save = set["save"]
	}
	if set, err := rdb.ConfigGet(ctx, "min-replicas-to-write").Result(); err == nil {
		s.MinReplicas = set["min-replicas-to-write"]
	}
	return s, nil
}

// Check returns a setting.WrongError where the server of a key does not suit the client: it is a Cluster and the client is not, or
// the reverse, it is too old, or the user may not read what it is. Any other error means that Redis is unavailable.
func (c *Client) Check(ctx context.Context, key string) error {
	rdb, err := c.MasterForKey(ctx, key)
	if err != nil {
		return c.Diagnose(ctx, err)
	}
	fields, err := info(ctx, rdb, "server")
	if err != nil {
		return c.Diagnose(ctx, err)
	}
	found := modeOf(fields)
	if c.mode != ModeSentinel { // whose master was asked
		if err := c.opt.suits(found, 1); err != nil {
			return err
		}
	}
	if (found == ModeCluster) != (c.mode == ModeCluster) {
		return wrongf("Redis runs in mode %[1]s, not %[2]s: it was unavailable when this process started: restart, or set BERTH_REDIS_MODE=%[1]s",
			found, c.mode)
	}
	return checkVersion(fields)
}

// CheckSubscribe returns an error where messages cannot be received.
func CheckSubscribe(ctx context.Context, s Subscriber) error {
	messages := s.Subscribe(ctx, s.TickChannel())
	defer func() { _ = messages.Close() }() // nothing was published
	if _, err := messages.Receive(ctx); err != nil {
		return Explained(fmt.Errorf("subscribe to a channel of Redis: %w", err))
	}
	return nil
}

// MasterForKey returns a client of the server that has a key, for commands such as SCAN that concern one server. It has the name of the
// method of Cluster clients.
func (c *Client) MasterForKey(ctx context.Context, key string) (*redis.Client, error) {
	switch rdb := c.UniversalClient.(type) {
	case *redis.ClusterClient:
		return rdb.MasterForKey(ctx, key)
	case *redis.Client:
		return rdb, nil
	default:
		return nil, fmt.Errorf("unexpected redis client %T", rdb)
	}
}

// info reads a section. The embedded server of the development environment has no sections of interest.
func info(ctx context.Context, rdb *redis.Client, section string) (map[string]string, error) {
	text, err := rdb.Info(ctx, section).Result()
	if err != nil && strings.Contains(err.Error(), "is not supported") {
		return nil, nil
	}
	if err != nil {
		return nil, Explained(fmt.Errorf("read Redis's INFO %s: %w", section, err))
	}
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields, nil
}

func modeOf(fields map[string]string) Mode {
	switch mode := fields["redis_mode"]; mode {
	case "", "standalone":
		return ModeSingle
	default:
		return Mode(mode)
	}
}
