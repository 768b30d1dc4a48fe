package api

import (
	"net/http"
	"regexp"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/labstack/echo/v4"

	"berth"
)

// signalRoutes registers the routes of the signalling proxy, which checks the tokens of participants itself.
func (s *server) signalRoutes() {
	if s.Config.SignallingDirect {
		return
	}
	own := rule{public: true, stream: true}
	for _, v := range []struct{ path, id, protocol string }{{"/rtc", "signalling", "before version 2.17"}, {"/rtc/v1", "signalling-v1", "2.17 and later"}} {
		s.route("GET "+v.path, own, s.signal, withResponses(map[string]*huma.Response{
			"101": {Description: "LiveKit's signalling protocol over WebSocket"},
		}, op(v.id, "signalling", "Connect a participant (LiveKit clients "+v.protocol+")",
			"For LiveKit clients, with the url and token of a participant; the query is LiveKit's. While no unit has the conference the "+
				"connection is held, then refused with 503: clients retry. 401: the conference has ended or the participant was removed.")))
		s.route("GET "+v.path+"/validate", own, s.signal, withResponses(map[string]*huma.Response{
			"200": response("The connection would be accepted", echo.MIMETextPlain, &huma.Schema{Type: huma.TypeString}),
		}, op(v.id+"-validate", "signalling", "Check whether a participant may connect")))
	}
}

// isSignal reports whether a request is for the signalling proxy, whose clients are on pages of any origin: a token is all that
// counts, and browsers do not send it by themselves.
func isSignal(c echo.Context) bool {
	path := c.Request().URL.Path
	return path == "/rtc" || strings.HasPrefix(path, "/rtc/")
}

// signalOrigin lets pages of all origins call the signalling proxy.
func signalOrigin(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if !isSignal(c) {
			return next(c)
		}
		h := c.Response().Header()
		h.Set(echo.HeaderAccessControlAllowOrigin, "*")
		h.Set("Cross-Origin-Resource-Policy", "cross-origin")
		if c.Request().Method != http.MethodOptions {
			return next(c)
		}
		h.Set(echo.HeaderAccessControlAllowMethods, http.MethodGet)
		h.Set(echo.HeaderAccessControlAllowHeaders, "Authorization")
		h.Set(echo.HeaderAccessControlMaxAge, "3600")
		return c.NoContent(http.StatusNoContent)
	}
}

func (s *server) signal(c echo.Context) error {
	err := s.Signalling.Serve(c.Response(), c.Request())
	if berth.CodeOf(err) == berth.CodeUnauthenticated {
		c.Response().Header().Set(echo.HeaderWWWAuthenticate, `Bearer realm="berth"`)
	}
	return err
}

// baseOf returns the address of the signalling proxy as the caller of a request reaches this process, as far as it is known here: a
// proxy may change Host and remove a path prefix without a notice. The headers of proxies are used for nothing else: a wrong one only
// misleads its sender.
func baseOf(r *http.Request) string {
	scheme := "ws://"
	if proto := forwarded(r, echo.HeaderXForwardedProto); r.TLS != nil || strings.EqualFold(proto, "https") || strings.EqualFold(proto, "wss") {
		scheme = "wss://"
	}
	host, prefix := forwarded(r, "X-Forwarded-Host"), strings.TrimRight(forwarded(r, "X-Forwarded-Prefix"), "/")
	if !forwardedHost.MatchString(host) {
		host = r.Host
	}
	if !forwardedPrefix.MatchString(prefix) {
		prefix = ""
	}
	return scheme + host + prefix
}

var (
	forwardedHost   = regexp.MustCompile(`^([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?$`)
	forwardedPrefix = regexp.MustCompile(`^(/[A-Za-z0-9._~-]+)*$`)
)

// forwarded returns what the first of several proxies states.
func forwarded(r *http.Request, name string) string {
	first, _, _ := strings.Cut(r.Header.Get(name), ",")
	return strings.TrimSpace(first)
}
