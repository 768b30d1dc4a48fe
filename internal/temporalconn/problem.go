package temporalconn

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"time"

	"go.temporal.io/api/serviceerror"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"berth/internal/health"
	"berth/internal/secret"
)

func problem(code, setting, text string, err error) *health.Problem {
	return health.NewProblem(health.Reason{Code: code, Setting: setting, Text: text}, said(err), err)
}

// said returns what the server, or the connection to it, reports in an error: without what gRPC and the SDK add to it.
func said(err error) string {
	text := err.Error()
	for _, mark := range []string{"failed reaching server: ", "authentication handshake failed: ", "latest balancer error: ", "error while dialing: ", "Error while dialing: ", "last connection error: "} {
		if _, rest, ok := strings.Cut(text, mark); ok {
			text = rest
		}
	}
	text = strings.TrimPrefix(text, "connection error: desc = ")
	return strings.Trim(strings.TrimPrefix(text, "transport: "), `"`)
}

const (
	addrSetting      = "BERTH_TEMPORAL_ADDR"
	namespaceSetting = "BERTH_TEMPORAL_NAMESPACE"
	tlsSetting       = "BERTH_TEMPORAL_TLS"
	caSetting        = "BERTH_TEMPORAL_TLS_CA"
	nameSetting      = "BERTH_TEMPORAL_TLS_SERVER_NAME"
	certSetting      = "BERTH_TEMPORAL_TLS_CERT"
	renewServer      = "renew the certificate of Temporal, or correct the clock of this host"
	withoutTLS       = "the server uses no TLS at this port: remove BERTH_TEMPORAL_TLS and the settings that imply it, or set the port that uses TLS"
	needsTLS         = "the server requires TLS at this port: set it to true, and BERTH_TEMPORAL_TLS_CA if the authority is your own"
	needsClient      = "the server does not accept the client certificate: set one, with its key in BERTH_TEMPORAL_TLS_KEY, of an authority that it trusts"
	notTemporal      = "no Temporal frontend answers there: set host and port of its gRPC frontend, usually 7233"
	isUnavailable    = "check that Temporal runs there and that this host can reach it"
)

// texts finds the problem of an error by its text, which is all that gRPC leaves of it. The first row that matches applies.
var texts = []struct {
	contains, code, setting, text string
}{
	{"first record does not look like a TLS handshake", "tls_not_served", tlsSetting, withoutTLS},
	{"signed by unknown authority", "tls_authority", caSetting, "set it to the PEM file of the authority that has issued the server's certificate"},
	{"has expired or is not yet valid", "tls_expired", "", renewServer},
	{"certificate is valid for", "tls_name", nameSetting, "set it to a name in the server's certificate, or correct " + addrSetting},
	{"doesn't contain any IP SANs", "tls_name", nameSetting, "set it to a name in the server's certificate, or use the server's name in " + addrSetting},
	{"not valid for any names", "tls_name", nameSetting, "the server's certificate has no name for hosts; issue one with subjectAltName"},
	{"expired certificate", "tls_client", certSetting, "the server reports that the client certificate has expired: renew it"},
	{"certificate required", "tls_client", certSetting, needsClient},
	{"bad certificate", "tls_client", certSetting, needsClient},
	{"unknown certificate authority", "tls_client", certSetting, needsClient},
	{"tls: handshake failure", "tls_client", certSetting, needsClient},
	{"certificate unknown", "tls_client", certSetting, needsClient},
	{"no such host", "unknown_host", addrSetting, "the name of the host is not known: correct it"},
	{"HTTP/1.1", "not_temporal", addrSetting, notTemporal},
	{"unexpected HTTP status code", "not_temporal", addrSetting, notTemporal},
	{"malformed header", "not_temporal", addrSetting, notTemporal},
	{"unexpected content-type", "not_temporal", addrSetting, notTemporal},
	{"connection refused", "unavailable", addrSetting, isUnavailable},
}

// explain returns the problem of an error of a call to Temporal. It makes one connection where the error itself does not
// show whether both sides use TLS.
func (o Options) explain(ctx context.Context, err error) *health.Problem {
	var denied *serviceerror.PermissionDenied
	var missing *serviceerror.NamespaceNotFound
	var known *health.Problem
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &missing):
		return problem("namespace_missing", namespaceSetting,
			"create the namespace, or set one that exists: temporal operator namespace create --namespace "+o.namespace()+" --retention 168h", err)
	case secret.Named(err): // its text names the setting
		return problem("secret", "", "correct the setting", err)
	case errors.As(err, &denied), code(err) == codes.Unauthenticated, code(err) == codes.PermissionDenied:
		advice := "the server refuses this API key or its rights in the namespace"
		setting := o.apiKey()
		if !setting.IsSet() {
			advice = "the server requires an API key or other rights: set one"
		}
		return problem("permission", setting.Setting(), advice, err)
	case code(err) == codes.Unimplemented:
		return problem("not_temporal", addrSetting, notTemporal, err)
	}
	if p := byText(err); p != nil {
		return p
	}
	if p := o.handshake(ctx); p != nil {
		return p
	}
	return problem("unavailable", addrSetting, isUnavailable, err)
}

func byText(err error) *health.Problem {
	for _, t := range texts {
		if strings.Contains(err.Error(), t.contains) {
			return problem(t.code, t.setting, t.text, err)
		}
	}
	return nil
}

// code returns the code of gRPC, which the SDK's errors have as well.
func code(err error) codes.Code {
	if s, ok := errors.AsType[interface {
		error
		Status() *status.Status
	}](err); ok {
		return s.Status().Code()
	}
	return status.Code(err)
}

// probeTime bounds a connection that only determines the problem.
const probeTime = 2 * time.Second

// handshake connects to the server as a client does. Without TLS it tries whether the server speaks TLS. It returns nil where that finds
// no problem.
func (o Options) handshake(ctx context.Context) *health.Problem {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeTime) // the time of the call may be up
	defer cancel()
	security, err := o.TLS.Config(tlsSetting)
	if err != nil {
		return nil // Open has returned it
	}
	without := security == nil && o.APIKey == "" && o.APIKeyFile == ""
	if security == nil {
		security = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	security.InsecureSkipVerify = without // nothing is sent then: it only shows whether the server uses TLS
	security.NextProtos = []string{"h2"}
	conn, err := (&tls.Dialer{Config: security}).DialContext(ctx, "tcp", o.Addr)
	if err == nil {
		defer func() { _ = conn.Close() }() // nothing was sent
		if deadline, ok := ctx.Deadline(); ok {
			_ = conn.SetReadDeadline(deadline) // the read fails then
		}
		_, err = conn.Read(make([]byte, 1)) // in TLS 1.3 a server refuses a client certificate after the handshake
	}
	var alert tls.AlertError
	var record tls.RecordHeaderError
	var remote *net.OpError
	var name *net.DNSError
	switch {
	case errors.As(err, &name):
		return byText(err)
	case without && (conn != nil || errors.As(err, &alert) || errors.As(err, &remote) && remote.Op == "remote error"):
		return problem("tls_required", tlsSetting, needsTLS, errors.New("the server closed the connection, which it expects to begin with TLS"))
	case without || errors.As(err, &record):
		return nil
	case err != nil:
		return byText(err)
	default:
		return nil
	}
}
