package testredis

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// masters is the number of masters of a Cluster: the smallest that can elect a new one.
const masters = 3

// Cluster is a Redis Cluster of three masters, perhaps with a replica each. A master is replaced about two seconds after its
// death.
type Cluster struct {
	nodes []*Server // masters at the start, then a replica of each
}

// StartCluster runs a Cluster until the test ends.
func StartCluster(tb testing.TB, replicas bool) *Cluster {
	tb.Helper()
	n := masters
	if replicas {
		n *= 2
	}
	ports, dir := findPorts(tb, 2*n), tb.TempDir()
	c := &Cluster{}
	for i := range n {
		nodeDir := filepath.Join(dir, strconv.Itoa(i))
		if err := os.MkdirAll(nodeDir, 0o700); err != nil {
			tb.Fatal(err)
		}
		c.nodes = append(c.nodes, newServer(tb, ports[i], nodeDir,
			"--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--cluster-port", strconv.Itoa(ports[n+i]),
			"--cluster-node-timeout", "1000", "--cluster-replica-validity-factor", "0", "--cluster-allow-replica-migration", "no",
			"--repl-diskless-sync-delay", "0"))
	}
	c.form(ports[n])
	return c
}

// form starts the servers and makes them a Cluster.
func (c *Cluster) form(firstBusPort int) {
	const slots = 16384
	ids := make([]string, len(c.nodes))
	for i, s := range c.nodes {
		s.tb.Helper()
		s.Restart()
		ids[i] = s.Do("CLUSTER", "MYID")
		if i < masters {
			s.Do("CLUSTER", "SET-CONFIG-EPOCH", i+1)
			s.Do("CLUSTER", "ADDSLOTSRANGE", slots*i/masters, slots*(i+1)/masters-1)
		}
		if i > 0 {
			s.Do("CLUSTER", "MEET", "127.0.0.1", c.nodes[0].port, firstBusPort)
		}
	}
	for i, s := range c.nodes[masters:] {
		s.await("a replica to know its master", func(ctx context.Context, r *redis.Client) error {
			return r.ClusterReplicate(ctx, ids[i]).Err()
		})
	}
	for i, s := range c.nodes {
		s.await("the cluster to be complete", func(ctx context.Context, r *redis.Client) error {
			info, err := r.ClusterInfo(ctx).Result()
			if err != nil {
				return err
			}
			if !strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, "cluster_known_nodes:"+strconv.Itoa(len(c.nodes))) {
				return errors.New(info)
			}
			if replication := r.Info(ctx, "replication").Val(); i >= masters && !strings.Contains(replication, "master_link_status:up") {
				return errors.New(replication)
			}
			return nil
		})
	}
}

// Addr returns the addresses of the servers, separated by commas.
func (c *Cluster) Addr() string {
	var addrs []string
	for _, s := range c.nodes {
		addrs = append(addrs, s.Addr())
	}
	return strings.Join(addrs, ",")
}

// Client returns a client that is closed when the test ends.
func (c *Cluster) Client(tb testing.TB) *redis.ClusterClient {
	rdb := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: strings.Split(c.Addr(), ","), ClusterStateReloadInterval: 100 * time.Millisecond,
	})
	tb.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// Master returns the server that is the master of a key's slot now, if it runs.
func (c *Cluster) Master(tb testing.TB, key string) (found *Server) {
	tb.Helper()
	rdb := c.Client(tb)
	c.nodes[0].await("a master", func(ctx context.Context, _ *redis.Client) error {
		rdb.ReloadState(ctx)
		master, err := rdb.MasterForKey(ctx, key)
		if err != nil {
			return err
		}
		for _, s := range c.nodes {
			if s.PID() != 0 && s.Addr() == master.Options().Addr {
				found = s
				return nil
			}
		}
		return fmt.Errorf("master %s does not run", master.Options().Addr)
	})
	return found
}

// Replica returns the other server of the master of a key's slot.
func (c *Cluster) Replica(tb testing.TB, key string) *Server {
	tb.Helper()
	master := c.Master(tb, key)
	for i, s := range c.nodes {
		if s == master {
			return c.nodes[(i+masters)%len(c.nodes)]
		}
	}
	return nil
}

// SharedCluster is a Cluster without replicas that the tests of a package share, each with a cell of its own. The first use
// starts it. TestMain closes it.
type SharedCluster struct {
	once    sync.Once
	cluster *Cluster
	owner   owner
}

// Client returns a client that is closed when the test ends.
func (s *SharedCluster) Client(tb testing.TB) *redis.ClusterClient {
	tb.Helper()
	s.once.Do(func() {
		s.owner.TB = tb
		s.cluster = StartCluster(&s.owner, false)
	})
	if s.cluster == nil {
		tb.Fatal("the shared cluster did not start")
	}
	return s.cluster.Client(tb)
}

// Close ends the servers, if they were started.
func (s *SharedCluster) Close() { s.owner.end() }

// owner is the test that started a shared Cluster, except that the Cluster outlasts it.
type owner struct {
	testing.TB
	cleanups []func()
}

// Cleanup registers a function that end calls.
func (o *owner) Cleanup(f func()) { o.cleanups = append(o.cleanups, f) }

// TempDir returns a directory that end removes.
func (o *owner) TempDir() string {
	dir, err := os.MkdirTemp("", "testredis-")
	if err != nil {
		o.Fatal(err)
	}
	o.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (o *owner) end() {
	for _, f := range slices.Backward(o.cleanups) {
		f()
	}
}
