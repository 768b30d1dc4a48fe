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

// Problem is a Redis with which berth cannot work, or only with a risk, and what to change. Doctor, logs, /readyz and the console have their
// words from here.
type Problem struct {
	kind
	// Err is the error of the server or of the connection.
	Err error
}

// kind is what an operator has to know about errors of one cause.
type kind struct {
	code string
	// setting is the setting of berth, which begins with BERTH_, or that of Redis.
	setting string
	// meaning says what is wrong, advice what to do with the setting. Both are shown to any caller of /readyz.
	meaning, advice string
	// setup is a wrong setting or a missing permission: a process does not start with it. Everything else can end without one.
	setup bool
	risk  bool
}

// replies are the errors that Redis sends, by how they begin. "ERR " is ignored.
var replies = []struct {
	prefixes []string
	kind
}{
	{[]string{"READONLY"}, kind{
		code: "read_only", setting: "BERTH_REDIS_ADDR", meaning: "the server is a replica, which refuses writes",
		advice: "set the address of the master, or those of the Sentinels with BERTH_REDIS_SENTINEL_MASTER; after a failover without Sentinels, " +
			"let the address lead to the new master",
	}},
	{[]string{"MASTERDOWN"}, kind{
		code: "master_down", setting: "BERTH_REDIS_ADDR", meaning: "the server is a replica that has lost its master",
		advice: "set the address of the master, or those of the Sentinels with BERTH_REDIS_SENTINEL_MASTER",
	}},
	{[]string{"LOADING"}, kind{code: "loading", meaning: "the server reads its data after a start", advice: "wait until it has"}},
	{[]string{"OOM"}, kind{
		code: "memory_full", setting: "maxmemory", meaning: "the memory of Redis is full",
		advice: "raise it, or find what fills the memory with redis-cli --bigkeys",
	}},
	{[]string{"NOREPLICAS"}, kind{
		code: "no_replicas", setting: "min-replicas-to-write", meaning: "too few replicas are connected to the master, which refuses writes",
		advice: "start the replicas, or lower it",
	}},
	{[]string{"MISCONF"}, kind{
		code: "disk", setting: "dir", meaning: "Redis cannot write its data to the disk, and refuses writes",
		advice: "free space there or repair its permissions; the log of Redis has the cause",
	}},
	{[]string{"CLUSTERDOWN"}, kind{
		code: "cluster_down", setting: "cluster-require-full-coverage", meaning: "the Cluster has slots without a master",
		advice: "start its masters; redis-cli --cluster check names the slots",
	}},
	{[]string{"TRYAGAIN", "MOVED", "ASK", "CROSSSLOT"}, kind{
		code: "cluster_moves", setting: "BERTH_REDIS_MODE", meaning: "the server is one of a Cluster whose slots move, or the mode is wrong",
		advice: "wait, or set it to cluster",
	}},
	{[]string{"BUSY"}, kind{
		code: "busy", setting: "busy-reply-threshold", meaning: "a script of another client blocks Redis",
		advice: "wait, or end it with redis-cli script kill",
	}},
	{[]string{"max number of clients"}, kind{
		code: "too_many_clients", setting: "maxclients", meaning: "Redis has as many connections as it accepts", advice: "raise it",
	}},
	{[]string{"NOPERM", "The user executing the script can't", "INFO is not permitted"}, kind{
		code: "permission", setting: "BERTH_REDIS_USER", meaning: "the user lacks a permission for commands, keys or channels",
		advice: "grant what docs/operations.md lists in section Redis", setup: true,
	}},
	{refusals, kind{
		code: "credentials", setting: "BERTH_REDIS_PASSWORD", meaning: "Redis refuses the password or requires one",
		advice: "set it, and BERTH_REDIS_USER for a user other than default", setup: true,
	}},
	{[]string{"DENIED"}, kind{
		code: "protected", setting: "protected-mode", meaning: "Redis accepts only connections of its own host until it has a password",
		advice: "set a password in Redis and BERTH_REDIS_PASSWORD", setup: true,
	}},
	{[]string{"DB index is out of range", "invalid DB index", "SELECT is not allowed"}, kind{
		code: "database", setting: "BERTH_REDIS_ADDR", meaning: "the URL has the number of a database that this Redis does not have",
		advice: "remove the number, and separate berths by BERTH_CELL", setup: true,
	}},
	{[]string{"This instance has cluster support disabled"}, kind{
		code: "mode", setting: "BERTH_REDIS_MODE", meaning: "the server is none of a Cluster", advice: "unset it", setup: true,
	}},
	{[]string{"unknown command", "Unknown Redis command", "unknown subcommand"}, kind{
		code: "version", setting: "BERTH_REDIS_ADDR", meaning: "the server lacks a command, or has it renamed",
		advice: "use Redis 7 or later, or Valkey, without rename-command", setup: true,
	}},
}

var (
	unknownMaster = kind{
		code: "unknown_master", setting: "BERTH_REDIS_SENTINEL_MASTER", meaning: "the Sentinels monitor no master of this name",
		advice: "set the name of `sentinel monitor`, which redis-cli -p 26379 sentinel masters lists", setup: true,
	}
	noSentinel = kind{
		code: "no_sentinel", setting: "BERTH_REDIS_ADDR", meaning: "no Sentinel replies",
		advice: "check the addresses of the Sentinels and that they run",
	}
	notTLS = kind{
		code: "tls", setting: "BERTH_REDIS_TLS", meaning: "the server does not use TLS",
		advice: "unset it and write redis:// in BERTH_REDIS_ADDR, or set the address of a port with TLS", setup: true,
	}
	needsTLS = kind{
		code: "tls", setting: "BERTH_REDIS_TLS", meaning: "the server requires TLS at this port",
		advice: "set it to true, or set the address of a port without TLS", setup: true,
	}
	certificate = kind{
		code: "certificate", setting: "BERTH_REDIS_TLS_CA, BERTH_REDIS_TLS_SERVER_NAME", meaning: "the certificate of Redis cannot be verified",
		advice: "set the authorities that have signed it, and the name in it", setup: true,
	}
	ownCertificate = kind{
		code: "client_certificate", setting: "BERTH_REDIS_TLS_CERT", meaning: "Redis refuses the certificate of this client or requires one",
		advice: "set a certificate that the authorities of Redis have signed, and BERTH_REDIS_TLS_KEY", setup: true,
	}
	closed = kind{
		code: "closed", setting: "BERTH_REDIS_TLS", meaning: "the server closes the connection without a reply",
		advice: "set it to true if this port requires TLS; otherwise check that BERTH_REDIS_ADDR is that of Redis",
	}
	noReply = kind{
		code: "no_reply", setting: "BERTH_REDIS_ADDR", meaning: "Redis does not reply in time",
		advice: "check the address, the network, and what redis-cli --latency measures",
	}
	noHandshake = kind{
		code: "no_reply", setting: "BERTH_REDIS_TLS", meaning: "the server does not reply to TLS, as one without it does",
		advice: "unset it and write redis:// in BERTH_REDIS_ADDR if this port has no TLS; otherwise check the address",
	}
	unreachable = kind{
		code: "unreachable", setting: "BERTH_REDIS_ADDR", meaning: "there is no connection to Redis", advice: "check the address and that Redis runs",
	}
	unknownFormat = kind{
		code: "format", setting: "BERTH_REDIS_ADDR", meaning: "the keys are those of another version of berth",
		advice: "run a version that knows their format, see docs/operations.md, section Upgrades", setup: true,
	}
	rejected = kind{
		code: "rejected", setting: "BERTH_REDIS_ADDR", meaning: "Redis rejects a command of berth",
		advice: "see docs/operations.md, section Redis", setup: true,
	}
)

// Explain returns the problem that an error of a Redis client means. It returns nil for an error that is none of Redis, and for a SetupError,
// which states all there is.
func Explain(err error) *Problem {
	if err == nil {
		return nil
	}
	if p, ok := errors.AsType[*Problem](err); ok {
		return p
	}
	if named, ok := errors.AsType[*secret.Error](err); ok {
		return &Problem{kind{
			code: "credentials", setting: named.Setting, meaning: named.Problem, advice: "correct it, or the user in Redis", setup: true,
		}, err}
	}
	if k := kindOf(err); k.code != "" {
		return &Problem{k, err}
	}
	return nil
}

func kindOf(err error) kind {
	var reply redis.Error
	if errors.As(err, &reply) && !errors.Is(err, redis.Nil) {
		return replyKind(reply.Error())
	}
	if last, ok := errors.AsType[*farewell](err); ok {
		return replyKind(last.reply)
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
	return kind{}
}

// sentinelsUnreachable is in the error of go-redis if no Sentinel knows the master.
const sentinelsUnreachable = "all sentinels specified in configuration are unreachable"

func replyKind(text string) kind {
	text, general := strings.CutPrefix(text, "ERR ")
	for _, r := range replies {
		if slices.ContainsFunc(r.prefixes, func(prefix string) bool { return strings.HasPrefix(text, prefix) }) {
			return r.kind
		}
	}
	switch {
	case strings.Contains(text, "INFO is not permitted"): // of a script, which adds its line
		return replyKind("NOPERM")
	case strings.Contains(text, "the keys of this Redis have format"):
		return unknownFormat
	}
	k := rejected
	k.setup = general // others have a word of their own and may be temporary
	return k
}

// Error returns the server's reason, then the setting and what to change.
func (p *Problem) Error() string { return p.Cause() + ": " + p.Advice() }

// scriptLine is what Redis appends to the error of a script.
var scriptLine = regexp.MustCompile(` script: [0-9a-f]{40}, on @user_script.*`)

// arguments is what Redis appends to an unknown command. Those of a renamed AUTH are the password.
var arguments = regexp.MustCompile(`(?s), with args beginning with:.*`)

// Cause returns the server's own reason, or that of the connection.
func (p *Problem) Cause() string {
	var (
		reply     redis.Error
		operation *net.OpError
	)
	text := p.Err.Error()
	last, closed := errors.AsType[*farewell](p.Err)
	switch {
	case errors.As(p.Err, &reply):
		text = strings.TrimPrefix(reply.Error(), "ERR ")
	case closed:
		text = strings.TrimPrefix(last.reply, "ERR ")
	case errors.As(p.Err, &operation):
		text = operation.Error()
	}
	text = arguments.ReplaceAllString(scriptLine.ReplaceAllString(text, ""), "")
	return strings.TrimRight(text, ".\n ")
}

// Advice names the setting and what to change.
func (p *Problem) Advice() string {
	if p.setting == "" {
		return p.meaning + ": " + p.advice
	}
	return p.setting + ": " + p.meaning + ": " + p.advice
}

// Explained returns the Problem that an error means, or the error as it is.
func Explained(err error) error {
	if p := Explain(err); p != nil {
		return p
	}
	return err
}

// As makes a wrong setting or a missing permission a SetupError.
func (p *Problem) As(target any) bool {
	wrong, ok := target.(*SetupError)
	if ok && p.setup {
		*wrong = SetupError(p.Error())
	}
	return ok && p.setup
}

// Reason is what /readyz shows.
func (p *Problem) Reason() health.Reason {
	return health.Reason{Code: p.code, Setting: p.setting, Text: p.meaning + ": " + p.advice, Risk: p.risk}
}

func (p *Problem) Unwrap() error { return p.Err }

// Unavailable reports whether err means that Redis cannot be used at present, whatever the cause: requests that need it are refused until it
// can. A command that Redis rejects is not such an error, nor is one of the network or of a context, which may be another server's.
func Unavailable(err error) bool {
	if secret.Named(err) || errors.Is(err, io.EOF) || errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) {
		return true
	}
	var reply redis.Error
	if errors.As(err, &reply) && !errors.Is(err, redis.Nil) {
		return replyKind(reply.Error()).code != rejected.code
	}
	_, explained := errors.AsType[*Problem](err)
	return explained
}
