package redisconn

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"berth/internal/health"
	"berth/internal/secret"
)

const (
	// diagnosisTime limits the questions that determine why Redis cannot be used.
	diagnosisTime = 2 * time.Second
	// tlsTime limits the question whether a port uses TLS.
	tlsTime = 500 * time.Millisecond
)

// wants returns the mode that the settings name, empty where it is detected.
func (o Options) wants() Mode {
	if o.Mode == "" && o.SentinelMaster != "" {
		return ModeSentinel
	}
	return o.Mode
}

// suits returns a health.Problem where the settings are those of another mode than the servers of the addresses have.
func (o Options) suits(found Mode, addrs int) error {
	unset := "BERTH_REDIS_MODE"
	if o.SentinelMaster != "" {
		unset = "BERTH_REDIS_SENTINEL_MASTER"
		if o.Mode != "" {
			unset += " and BERTH_REDIS_MODE"
		}
	}
	wrong := func(setting, advice string) error {
		reply := map[Mode]string{
			ModeSingle: "the server is a Redis server", ModeSentinel: "the server is a Sentinel", ModeCluster: "the server is one of a Redis Cluster",
		}[found]
		meaning := map[Mode]string{
			ModeSingle: "a single server is expected", ModeSentinel: "Sentinels are expected", ModeCluster: "a Cluster is expected",
			"": "the settings are not those of such servers",
		}[o.wants()]
		return problem(health.Reason{Code: "mode", Setting: setting, Lasting: true, Text: meaning + ": " + advice}, errors.New(reply))
	}
	const sentinelPort = ", whose port is usually 26379"
	switch want := o.wants(); {
	case found == ModeSentinel && want == ModeSentinel && o.SentinelMaster != "":
	case found == ModeSentinel && (want == "" || want == ModeSentinel):
		return wrong("BERTH_REDIS_SENTINEL_MASTER", "set it to the name of the master, or set BERTH_REDIS_ADDR to the address of Redis")
	case found == ModeSentinel:
		return wrong("BERTH_REDIS_MODE", "unset it, and set BERTH_REDIS_SENTINEL_MASTER to the name of the master")
	case want == ModeSentinel:
		return wrong("BERTH_REDIS_ADDR", "set the addresses of the Sentinels"+sentinelPort+", or unset "+unset)
	case found == ModeCluster && want == ModeSingle:
		return wrong("BERTH_REDIS_MODE", "set BERTH_REDIS_MODE=cluster, or unset it")
	case found == ModeCluster && o.Cell == "":
		return errNoCell
	case found == ModeSingle && want == ModeCluster:
		return wrong("BERTH_REDIS_MODE", "unset BERTH_REDIS_MODE, or set the addresses of a Cluster in BERTH_REDIS_ADDR")
	case found == ModeSingle && addrs > 1:
		return wrong("BERTH_REDIS_ADDR", "set the address of one server; for several servers, use Sentinels or a Cluster")
	}
	return nil
}

// detect asks the servers for their mode, which is that of the first one that replies and empty where none does. The error is then that of a
// setting that is certainly wrong, or else the last one.
func (o Options) detect(ctx context.Context, u *redis.UniversalOptions) (found Mode, err error) {
	ctx, cancel := context.WithTimeout(ctx, diagnosisTime)
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel()
	type answer struct {
		mode Mode
		err  error
	}
	answers := make([]chan answer, len(u.Addrs))
	for i, addr := range u.Addrs {
		answers[i] = make(chan answer, 1)
		asking.Go(func() {
			mode, err := o.ask(ctx, u, addr)
			answers[i] <- answer{mode, err}
		})
	}
	for _, next := range answers {
		a := <-next
		if a.mode != "" {
			return a.mode, nil
		}
		if known := Explain(err); known == nil || !known.Lasting {
			err = a.err
		}
	}
	return "", err
}

// login returns user and password of a connection.
type login func(context.Context) (user, password string, err error)

// logins are what servers may accept: one of another kind than the settings expect has another password, or none.
func (o Options) logins() []login {
	sentinel := func(context.Context) (string, string, error) {
		password, err := o.sentinelPassword().Read()
		return o.SentinelUser, password, err
	}
	none := func(context.Context) (string, string, error) { return "", "", nil }
	if o.wants() == ModeSentinel {
		return []login{sentinel, o.Credentials, none}
	}
	return []login{o.Credentials, sentinel, none}
}

// ask asks one server for its mode. An error is that of the first login, unless it is one of TLS.
func (o Options) ask(ctx context.Context, u *redis.UniversalOptions, addr string) (found Mode, err error) {
	replying := ctx
	if deadline, ok := ctx.Deadline(); ok { // then there is time for the question about TLS
		var cancel context.CancelFunc
		replying, cancel = context.WithDeadline(ctx, deadline.Add(-tlsTime))
		defer cancel()
	}
	var tried [][2]string
	for _, login := range o.logins() {
		user, password, failed := login(ctx)
		switch as := [2]string{user, password}; {
		case failed != nil:
		case slices.Contains(tried, as):
			continue
		default:
			tried = append(tried, as)
			if found, failed = o.modeAt(replying, u, addr, as); failed == nil {
				return found, nil
			}
		}
		if err == nil {
			err = failed
		}
		if !secret.Named(failed) {
			break
		}
	}
	if p := Explain(err); p != nil && slices.Contains([]string{noReply.Code, closed.Code, unreachable.Code}, p.Code) {
		err = o.overTLS(ctx, addr, err)
	}
	return "", err
}

// modeAt asks one server for its mode as a user.
func (o Options) modeAt(ctx context.Context, u *redis.UniversalOptions, addr string, as [2]string) (Mode, error) {
	opt := u.Simple()
	opt.Addr, opt.DB, opt.MaxRetries, opt.OnConnect, opt.CredentialsProviderContext = addr, 0, -1, nil, nil
	opt.Username, opt.Password = as[0], as[1]
	rdb := redis.NewClient(opt)
	rdb.AddHook(newHook(o))
	closing := sync.OnceFunc(func() { _ = rdb.Close() }) // it is only read from
	defer closing()
	defer context.AfterFunc(ctx, closing)()
	fields, err := info(ctx, rdb, "server")
	if p := Explain(err); p != nil && p.Code != noReply.Code && ctx.Err() != nil { // the error is that of closing
		err = Explained(fmt.Errorf("no reply: %w", ctx.Err()))
	}
	if err != nil {
		return "", err
	}
	return modeOf(fields), nil
}

// overTLS returns the error of a connection, or that of a setting if the server uses TLS and the client does not, or the reverse.
func (o Options) overTLS(ctx context.Context, addr string, err error) error {
	ctx, cancel := context.WithTimeout(ctx, tlsTime)
	defer cancel()
	conn, dialed := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if dialed != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // nothing is lost
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline) // reads fail then
	}
	if o.tls {
		reply := make([]byte, 1)
		if _, failed := io.WriteString(conn, "PING\r\n"); failed != nil {
			return err
		}
		if _, failed := conn.Read(reply); failed == nil && (reply[0] == '+' || reply[0] == '-') {
			return problem(notTLS, errors.New("the server replied to a command without TLS"))
		}
		return err
	}
	failed := tls.Client(conn, &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true}).HandshakeContext(ctx) //nolint:gosec // nothing is sent
	var (
		alert     tls.AlertError
		operation *net.OpError
		authority x509.UnknownAuthorityError
	)
	if failed == nil || errors.As(failed, &alert) || errors.As(failed, &authority) || errors.As(failed, &operation) && operation.Op == "remote error" {
		return problem(needsTLS, errors.New("the server replied with TLS, which this process does not use"))
	}
	return err
}

// Diagnose returns what an error of the client means. Where the error permits several causes, it asks the servers what they are, for which
// the time of the call may have ended.
func (c *Client) Diagnose(ctx context.Context, err error) error {
	p := Explain(err)
	if p == nil || !slices.Contains(ambiguous, p.Code) {
		return Explained(err)
	}
	opt := c.opt
	u, invalid := opt.universal()
	if invalid != nil {
		return p
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), diagnosisTime)
	defer cancel()
	found, failed := opt.detect(ctx, u)
	if found != "" {
		if wrong := opt.suits(found, len(u.Addrs)); wrong != nil {
			return wrong
		}
		return p
	}
	if known := Explain(failed); known != nil && known.Code == notTLS.Code {
		return known
	}
	return p
}

// ambiguous are the codes of errors that a server of another kind causes as well.
var ambiguous = []string{
	noReply.Code, closed.Code, unreachable.Code, noSentinel.Code, rejected.Code, "credentials", "permission", "version", "mode", "cluster_moves",
}

// noneReplies is why several addresses without a mode are refused: while no server replies, both kinds lack a setting.
func noneReplies(err error) error {
	return wrongf("BERTH_REDIS_ADDR has several addresses, and no server replies (%s): for Sentinels, set BERTH_REDIS_SENTINEL_MASTER; "+
		"for a Cluster, set BERTH_CELL", err)
}
