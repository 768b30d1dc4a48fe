package client

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"berth"
)

// otherServer is the error for a response that berth's API does not send.
type otherServer string

func (e otherServer) Error() string { return string(e) }

func describeOther(res *http.Response) otherServer {
	return otherServer(fmt.Sprintf("the server at %s is not berth's API: it responded to %s; check BERTH_URL, and the proxy if there is one",
		origin(res.Request.URL), answer(res)))
}

func origin(u *url.URL) string { return u.Scheme + "://" + u.Host }

// answer describes a response by its status and media type.
func answer(res *http.Response) string {
	return fmt.Sprintf("%s %s with %s (%s)", res.Request.Method, res.Request.URL.Path, res.Status, cmp.Or(mediaType(res), "no media type"))
}

// foreign returns the error of a response with an error status that berth's API did not send. Where the status states that a proxy
// responded in its place, the problem has the code of the API's response with the same meaning; otherwise it has none.
func foreign(res *http.Response) *Problem {
	p := &Problem{Status: res.StatusCode, Title: res.Status, Detail: describeOther(res).Error()}
	at := origin(res.Request.URL)
	switch res.StatusCode {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		p.Code = berth.CodeUnavailable
		p.Detail = fmt.Sprintf("the proxy at %s has no response of berth: it responded to %s; retry", at, answer(res))
	case http.StatusTooManyRequests:
		p.Code = berth.CodeRateLimited
		p.Detail = fmt.Sprintf("the proxy at %s limits the rate of requests: it responded to %s; retry", at, answer(res))
	case http.StatusRequestEntityTooLarge:
		p.Code = berth.CodeTooLarge
		p.Detail = fmt.Sprintf("the proxy at %s refuses requests of this size: it responded to %s; its operator must raise the limit (nginx: client_max_body_size)",
			at, answer(res))
	}
	p.RetryAfter, _ = strconv.Atoi(res.Header.Get("Retry-After")) // 0 for none, or a date
	if p.Code != "" && p.RetryAfter <= 0 {
		p.RetryAfter = int(p.Code.Info().RetryAfter.Seconds())
	}
	return p
}

// checkRedirect follows a redirect unless it would change the call. A proxy that redirects http to https turns a POST into a GET, whose
// response could be mistaken for that of the call.
func checkRedirect(req *http.Request, via []*http.Request) error {
	first := via[0]
	if req.Method == first.Method && req.URL.Host == first.URL.Host && len(via) < 10 {
		return nil
	}
	hint := "check BERTH_URL"
	if base, ok := strings.CutSuffix(req.URL.Path, first.URL.Path); ok {
		hint = "set BERTH_URL to " + origin(req.URL) + base
	}
	return otherServer(fmt.Sprintf("the server at %s redirects %s %s to %s: %s", origin(first.URL), first.Method, first.URL.Path, origin(req.URL), hint))
}
