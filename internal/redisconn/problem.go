package redisconn

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"regexp"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"berth/internal/health"
	"berth/internal/secret"
)

// problem returns one whose words are the server's own, or those of the connection.
func problem(r health.Reason, err error) *health.Problem { return health.NewProblem(r, said(err), err) }

// replies are the errors that Redis sends, by how they begin. "ERR " is ignored.
var replies = []struct {
	prefixes []string
	health.Reason
}{
	{[]string{"READONLY"}, health.Reason{
		Code: "read_only", Setting: "BERTH_REDIS_ADDR",
		Text: "the server is a replica, which refuses writes: " +
			"set the address of the master, or those of the Sentinels with BERTH_REDIS_SENTINEL_MASTER; after a failover without Sentinels, " +
			"let the address lead to the new master",
	}},
	{[]string{"MASTERDOWN"}, health.Reason{
		Code: "master_down", Setting: "BERTH_REDIS_ADDR",
		Text: "the server is a replica that has lost its master: " +
			"set the address of the master, or those of the Sentinels with BERTH_REDIS_SENTINEL_MASTER",
	}},
	{[]string{"LOADING"}, health.Reason{
		Code: "loading",
		Text: "the server reads its data after a start: wait until it has",
	}},
	{[]string{"OOM"}, health.Reason{
		Code: "memory_full", Setting: "maxmemory",
		Text: "the memory of Redis is full: raise it, or find what fills the memory with redis-cli --bigkeys",
	}},
	{[]string{"NOREPLICAS"}, health.Reason{
		Code: "no_replicas", Setting: "min-replicas-to-write",
		Text: "too few replicas are connected to the master, which refuses writes: start the replicas, or lower it",
	}},
	{[]string{"MISCONF"}, health.Reason{
		Code: "disk", Setting: "dir",
		Text: "Redis cannot write its data to the disk, and refuses writes: " +
			"free space there or repair its permissions; the log of Redis has the cause",
	}},
	{[]string{"CLUSTERDOWN"}, health.Reason{
		Code: "cluster_down", Setting: "cluster-require-full-coverage",
		Text: "the Cluster has slots without a master: start its masters; redis-cli --cluster check names the slots",
	}},
	{[]string{"TRYAGAIN", "MOVED", "ASK", "CROSSSLOT"}, health.Reason{
		Code: "cluster_moves", Setting: "BERTH_REDIS_MODE",
		Text: "the server is one of a Cluster whose slots move, or the mode is wrong: wait, or set it to cluster",
	}},
	{[]string{"BUSY"}, health.Reason{
		Code: "busy", Setting: "busy-reply-threshold",
		Text: "a script of another client blocks Redis: wait, or end it with redis-cli script kill",
	}},
	{[]string{"max number of clients"}, health.Reason{
		Code: "too_many_clients", Setting: "maxclients",
		Text: "Redis has as many connections as it accepts: raise it",
	}},
	{[]string{"NOPERM", "The user executing the script can't", "INFO is not permitted"}, health.Reason{
		Code: "permission", Setting: "BERTH_REDIS_USER", Lasting: true,
		Text: "the user lacks a permission for commands, keys or channels: grant what docs/operations.md lists in section Redis",
	}},
	{refusals, health.Reason{
		Code: "credentials", Setting: "BERTH_REDIS_PASSWORD", Lasting: true,
		Text: "Redis refuses the password or requires one: set it, and BERTH_REDIS_USER for a user other than default",
	}},
	{[]string{"DENIED"}, health.Reason{
		Code: "protected", Setting: "protected-mode", Lasting: true,
		Text: "Redis accepts only connections of its own host until it has a password: set a password in Redis and BERTH_REDIS_PASSWORD",
	}},
	{[]string{"DB index is out of range", "invalid DB index", "SELECT is not allowed"}, health.Reason{
		Code: "database", Setting: "BERTH_REDIS_ADDR", Lasting: true,
		Text: "the URL has the number of a database that this Redis does not have: remove the number, and separate berths by BERTH_CELL",
	}},
	{[]string{"This instance has cluster support disabled"}, health.Reason{
		Code: "mode", Setting: "BERTH_REDIS_MODE", Lasting: true,
		Text: "the server is none of a Cluster: unset it",
	}},
	{[]string{"unknown command", "Unknown Redis command", "unknown subcommand"}, health.Reason{
		Code: "version", Setting: "BERTH_REDIS_ADDR", Lasting: true,
		Text: "the server lacks a command, or has it renamed: use Redis 7 or later, or Valkey, without rename-command",
	}},
}

var (
	unknownMaster = health.Reason{
		Code: "unknown_master", Setting: "BERTH_REDIS_SENTINEL_MASTER", Lasting: true,
		Text: "the Sentinels monitor no master of this name: set the name of `sentinel monitor`, which redis-cli -p 26379 sentinel masters lists",
	}
	noSentinel = health.Reason{
		Code: "no_sentinel", Setting: "BERTH_REDIS_ADDR",
		Text: "no Sentinel replies: check the addresses of the Sentinels and that they run",
	}
	notTLS = health.Reason{
		Code: "tls", Setting: "BERTH_REDIS_TLS", Lasting: true,
		Text: "the server does not use TLS: unset it and write redis:// in BERTH_REDIS_ADDR, or set the address of a port with TLS",
	}
	needsTLS = health.Reason{
		Code: "tls", Setting: "BERTH_REDIS_TLS", Lasting: true,
		Text: "the server requires TLS at this port: set it to true, or set the address of a port without TLS",
	}
	certificate = health.Reason{
		Code: "certificate", Setting: "BERTH_REDIS_TLS_CA, BERTH_REDIS_TLS_SERVER_NAME", Lasting: true,
		Text: "the certificate of Redis cannot be verified: set the authorities that have signed it, and the name in it",
	}
	ownCertificate = health.Reason{
		Code: "client_certificate", Setting: "BERTH_REDIS_TLS_CERT", Lasting: true,
		Text: "Redis refuses the certificate of this client or requires one: " +
			"set a certificate that the authorities of Redis have signed, and BERTH_REDIS_TLS_KEY",
	}
	closed = health.Reason{
		Code: "closed", Setting: "BERTH_REDIS_TLS",
		Text: "the server closes the connection without a reply: " +
			"set it to true if this port requires TLS; otherwise check that BERTH_REDIS_ADDR is that of Redis",
	}
	noReply = health.Reason{
		Code: "no_reply", Setting: "BERTH_REDIS_ADDR",
		Text: "Redis does not reply in time: check the address, the network, and what redis-cli --latency measures",
	}
	noHandshake = health.Reason{
		Code: "no_reply", Setting: "BERTH_REDIS_TLS",
		Text: "the server does not reply to TLS, as one without it does: " +
			"unset it and write redis:// in BERTH_REDIS_ADDR if this port has no TLS; otherwise check the address",
	}
	unreachable = health.Reason{
		Code: "unreachable", Setting: "BERTH_REDIS_ADDR",
		Text: "there is no connection to Redis: check the address and that Redis runs",
	}
	sentinelPermission = health.Reason{
		Code: "permission", Setting: "BERTH_REDIS_SENTINEL_USER", Lasting: true,
		Text: "the user lacks a permission for commands, keys or channels: " +
			"grant +sentinel|get-master-addr-by-name, +sentinel|sentinels and +subscribe with &*",
	}
	unknownFormat = health.Reason{
		Code: "format", Setting: "BERTH_REDIS_ADDR", Lasting: true,
		Text: "the keys are those of another version of berth: run a version that knows their format, see docs/operations.md, section Upgrades",
	}
	rejected = health.Reason{
		Code: "rejected", Setting: "BERTH_REDIS_ADDR", Lasting: true,
		Text: "Redis rejects a command of berth: see docs/operations.md, section Redis",
	}
)

// Explain returns the problem that an error of a Redis client means. It returns nil for an error that is none of Redis, and for a
// setting.WrongError, which states all there is.
func Explain(err error) *health.Problem {
	if err == nil {
		return nil
	}
	if p, ok := errors.AsType[*health.Problem](err); ok {
		return p
	}
	if named, ok := errors.AsType[*secret.Error](err); ok {
		return problem(health.Reason{
			Code: "credentials", Setting: named.Setting, Lasting: true, Text: named.Problem + ": correct it, or the user in Redis",
		}, err)
	}
	if r := reasonOf(err); r.Code != "" {
		return problem(r, err)
	}
	return nil
}

func reasonOf(err error) health.Reason {
	var reply redis.Error
	if errors.As(err, &reply) && !errors.Is(err, redis.Nil) {
		return replyReason(reply.Error())
	}
	if last, ok := errors.AsType[*farewell](err); ok {
		return replyReason(last.reply)
	}
	var (
		verification *tls.CertificateVerificationError
		host         x509.HostnameError
		authority    x509.UnknownAuthorityError
		record       tls.RecordHeaderError
		operation    *net.OpError
		network      net.Error
	)
	switch {
	case errors.As(err, &verification), errors.As(err, &host), errors.As(err, &authority):
		return certificate
	case errors.As(err, &record):
		return notTLS
	case errors.As(err, &operation) && operation.Op == "remote error": // an alert of TLS
		return ownCertificate
	case strings.Contains(err.Error(), sentinelsUnreachable):
		return noSentinel
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return closed
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted):
		return noReply
	case errors.As(err, &network) && network.Timeout():
		return noReply
	case errors.As(err, &network):
		return unreachable
	}
	return health.Reason{}
}

// sentinelsUnreachable is in the error of go-redis if no Sentinel knows the master.
const sentinelsUnreachable = "all sentinels specified in configuration are unreachable"

func replyReason(text string) health.Reason {
	text, general := strings.CutPrefix(text, "ERR ")
	for _, r := range replies {
		if slices.ContainsFunc(r.prefixes, func(prefix string) bool { return strings.HasPrefix(text, prefix) }) {
			return r.Reason
		}
	}
	switch {
	case strings.Contains(text, "INFO is not permitted"): // of a script, which adds its line
		return replyReason("NOPERM")
	case strings.Contains(text, "the keys of this Redis have format"):
		return unknownFormat
	}
	r := rejected
	r.Lasting = general // others have a word of their own and may be temporary
	return r
}

// scriptLine is what Redis appends to the error of a script.
var scriptLine = regexp.MustCompile(` script: [0-9a-f]{40}, on @user_script.*`)

// arguments is what Redis appends to an unknown command. Those of a renamed AUTH are the password.
var arguments = regexp.MustCompile(`(?s), with args beginning with:.*`)

// said returns the server's own reason, or that of the connection.
func said(err error) string {
	var (
		reply     redis.Error
		operation *net.OpError
	)
	text := err.Error()
	last, closed := errors.AsType[*farewell](err)
	switch {
	case errors.As(err, &reply):
		text = strings.TrimPrefix(reply.Error(), "ERR ")
	case closed:
		text = strings.TrimPrefix(last.reply, "ERR ")
	case errors.As(err, &operation):
		text = operation.Error()
	}
	text = arguments.ReplaceAllString(scriptLine.ReplaceAllString(text, ""), "")
	return strings.TrimRight(text, ".\n ")
}

// Explained returns the problem that an error means, or the error as it is.
func Explained(err error) error {
	if p := Explain(err); p != nil {
		return p
	}
	return err
}

// Unavailable reports whether err means that Redis cannot be used at present, whatever the cause: requests that need it are refused until it
// can. A command that Redis rejects is not such an error, nor is one of the network or of a context, which may be another server's.
func Unavailable(err error) bool {
	if secret.Named(err) || errors.Is(err, io.EOF) || errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) {
		return true
	}
	var reply redis.Error
	if errors.As(err, &reply) && !errors.Is(err, redis.Nil) {
		return replyReason(reply.Error()).Code != rejected.Code
	}
	_, explained := errors.AsType[*health.Problem](err)
	return explained
}
