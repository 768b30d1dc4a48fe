package testredis

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"berth/internal/testprocess"
)

// MasterName is the name under which the Sentinels know the master.
const MasterName = "berth"

// Sentinel is a master and a replica with three Sentinels. A master is replaced about two seconds after its death.
type Sentinel struct {
	tb        testing.TB
	servers   []*Server
	sentinels []*Server
}

// StartSentinel runs the servers until the test ends.
func StartSentinel(tb testing.TB) *Sentinel {
	tb.Helper()
	ports := findPorts(tb, 5)
	s := &Sentinel{tb: tb}
	for _, port := range ports[:2] {
		server := newServer(tb, port, tb.TempDir(), "--repl-diskless-sync-delay", "0")
		server.Restart()
		s.servers = append(s.servers, server)
	}
	s.servers[1].Do("REPLICAOF", "127.0.0.1", ports[0])
	for _, port := range ports[2:] {
		dir := tb.TempDir()
		config := fmt.Sprintf("sentinel monitor %[1]s 127.0.0.1 %[2]d 2\nsentinel down-after-milliseconds %[1]s 1000\nsentinel failover-timeout %[1]s 3000\n",
			MasterName, ports[0])
		file := filepath.Join(dir, "sentinel.conf")
		if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
			tb.Fatal(err)
		}
		sentinel := &Server{Process: testprocess.New(tb, "sentinel"), tb: tb, port: port, args: []string{
			file, "--sentinel", "--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", dir,
		}}
		sentinel.Restart()
		s.sentinels = append(s.sentinels, sentinel)
	}
	for _, sentinel := range s.sentinels {
		sentinel.await("the Sentinels to know each other and the replica", func(ctx context.Context, c *redis.Client) error {
			if info := c.Info(ctx, "sentinel").Val(); !strings.Contains(info, "slaves=1,sentinels=3") {
				return errors.New(info)
			}
			return nil
		})
	}
	return s
}

// Addr returns the addresses of the Sentinels, separated by commas.
func (s *Sentinel) Addr() string {
	var addrs []string
	for _, sentinel := range s.sentinels {
		addrs = append(addrs, sentinel.Addr())
	}
	return strings.Join(addrs, ",")
}

// Sentinels returns the Sentinels themselves.
func (s *Sentinel) Sentinels() []*Server { return s.sentinels }

// Master returns the server that the Sentinels name as the master, if it runs.
func (s *Sentinel) Master() (found *Server) {
	s.tb.Helper()
	s.sentinels[0].await("a master", func(ctx context.Context, c *redis.Client) error {
		addr, err := c.Do(ctx, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", MasterName).StringSlice()
		if err != nil {
			return err
		}
		for _, server := range s.servers {
			if server.PID() != 0 && strconv.Itoa(server.port) == addr[1] {
				found = server
				return nil
			}
		}
		return fmt.Errorf("master %v does not run", addr)
	})
	return found
}

// Failover makes the Sentinels replace the master, which becomes a replica, and returns the new one.
func (s *Sentinel) Failover() *Server {
	s.tb.Helper()
	old := s.Master()
	s.sentinels[0].Do("SENTINEL", "FAILOVER", MasterName)
	next := s.Master()
	for next == old {
		next = s.Master()
	}
	return next
}

// Files are the configuration of servers as documentation has it: Master of the first server, Replica of the others, Sentinel of
// the Sentinels. Hosts are written as 10.0.0.1 to 10.0.0.3.
type Files struct{ Master, Replica, Sentinel, Password, SentinelPassword string }

// StartFiles runs three servers and three Sentinels with these files until the test ends.
func StartFiles(tb testing.TB, f Files) *Sentinel {
	tb.Helper()
	ports := findPorts(tb, 6)
	s := &Sentinel{tb: tb}
	start := func(i int, text, password string, args ...string) *Server {
		dir := tb.TempDir()
		file := filepath.Join(dir, "redis.conf")
		text = strings.ReplaceAll(text, "10.0.0.1 6379", "127.0.0.1 "+strconv.Itoa(ports[0]))
		text = regexp.MustCompile(`10\.0\.0\.\d`).ReplaceAllString(text, "127.0.0.1")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			tb.Fatal(err)
		}
		server := &Server{Process: testprocess.New(tb, "redis"), tb: tb, port: ports[i], password: password, args: append(append([]string{file}, args...),
			"--port", strconv.Itoa(ports[i]), "--dir", dir)}
		server.Restart()
		return server
	}
	for i, text := range []string{f.Master, f.Replica, f.Replica} {
		s.servers = append(s.servers, start(i, text, f.Password))
	}
	for i := range 3 {
		s.sentinels = append(s.sentinels, start(3+i, f.Sentinel, f.SentinelPassword, "--sentinel"))
	}
	for _, sentinel := range s.sentinels {
		sentinel.await("the Sentinels to know each other and the replicas", func(ctx context.Context, c *redis.Client) error {
			if info := c.Info(ctx, "sentinel").Val(); !strings.Contains(info, "slaves=2,sentinels=3") {
				return errors.New(info)
			}
			return nil
		})
	}
	return s
}
